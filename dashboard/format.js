// Numbers as people read them.

const plain = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const tenths = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
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

/** A share of a whole whose other shares stand beside it. */
export const part = share => share === null || share === undefined ? '–' : `${tenths.format(100 * share)} %`;

export const when = ms => new Date(ms).toLocaleString();

/** Bytes, in powers of ten. */
export function bytes(count) {
  if (count === null || count === undefined) return '–';
  const power = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(1, count)) / 3)));
  return `${number(count / 1000 ** power)} ${['B', 'kB', 'MB', 'GB', 'TB'][power]}`;
}

/** A probability: four digits are enough. */
export const probability = p => p === null || p === undefined ? '–' : p < 0.0001 ? '< 0.0001' : p.toFixed(4);
