// Numbers as people read them.

const plain = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** Three digits, or a dash where nothing is known. */
export const number = value =>
  value === null || value === undefined || !Number.isFinite(value) ? '–'
    : Math.abs(value) >= 1000 ? whole.format(value) : plain.format(value);

/** Milliseconds. */
export const milliseconds = ms =>
  ms === null || ms === undefined ? '–' : ms >= 1000 ? `${number(ms / 1000)} s` : `${number(ms)} ms`;

/** Seconds. */
export function seconds(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return '–';
  if (s < 90) return `${number(s)} s`;
  if (s < 5400) return `${number(s / 60)} min`;
  return `${number(s / 3600)} h`;
}

export const percent = share => share === null || share === undefined ? '–' : `${number(100 * share)} %`;

export const when = ms => new Date(ms).toLocaleString();
