// Any figure over any stretch of a year: zoom by dragging, export as CSV and PNG.

import { get, getText } from './api.js';
import { Chart } from './chart.js';
import { h, notice } from './dom.js';

const STRETCHES = [['15 minutes', '-15m'], ['1 hour', '-1h'], ['6 hours', '-6h'], ['1 day', '-1d'], ['1 week', '-7d'], ['30 days', '-30d'], ['1 year', '-365d']];

function save(name, blob) {
  const link = h('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function history(main, _shared, asked) {
  const metric = h('select', { change: () => draw() });
  const group = h('select', { change: () => draw() });
  const stretch = h('select', { change: () => { zoom = null; draw(); } }, STRETCHES.map(([title, from]) => h('option', { value: from }, title)));
  const out = h('button', { type: 'button', class: 'quiet', disabled: true, click: () => { zoom = null; draw(); } }, 'Zoom out');
  const about = h('p', { class: 'note' });
  const box = h('div', { class: 'chart' });
  let chart = null;
  let zoom = null;
  let known = new Map();
  let detectors = [];

  const query = () => {
    const params = new URLSearchParams({ metric: metric.value });
    const [kind, name] = group.value.split(':', 2);
    const isOfDetector = known.get(metric.value)?.of === 'detector';
    // A detector's figure is always of one of them, and no other figure is.
    if (isOfDetector) params.set('detector', kind === 'detector' ? name : detectors[0] ?? '');
    else if (name && kind !== 'detector' && known.get(metric.value)?.of === 'class') params.set(kind, name);
    if (zoom) {
      params.set('from', Math.floor(zoom[0]));
      params.set('to', Math.ceil(zoom[1]));
    } else params.set('from', stretch.value);
    return params;
  };

  async function draw() {
    try {
      const { rows, unit, step } = await get(`v1/history?${query()}`);
      chart?.close();
      box.replaceChildren();
      const range = { onZoom: (from, to) => { zoom = [from, to]; draw(); }, unit };
      chart = new Chart(box, [{ name: 'average', colour: '--s1' }, { name: 'least', colour: '--s6', dash: [4, 4] }, { name: 'most', colour: '--s2', dash: [4, 4] }], range);
      chart.show([0, 1, 2, 3].map(i => rows.map(row => row[i])));
      out.disabled = zoom === null;
      about.textContent = `${known.get(metric.value)?.help ?? ''} Unit: ${unit}. One point is ${step} s.`;
    } catch (error) {
      about.textContent = error.message;
    }
  }

  const csv = async () => {
    const params = query();
    params.set('format', 'csv');
    await getText(`v1/history?${params}`).then(
      body => save(`${metric.value}.csv`, new Blob([body], { type: 'text/csv' })),
      error => notice(error.message, { isBad: true }));
  };
  const png = async () => chart && save(`${metric.value}.png`, await chart.png());

  main.append(h('section', { class: 'card' },
    h('div', { class: 'row' },
      h('label', {}, 'Figure', metric), h('label', {}, 'Of', group), h('label', {}, 'Over', stretch), out,
      h('button', { type: 'button', class: 'quiet', click: csv }, 'CSV'),
      h('button', { type: 'button', class: 'quiet', click: png }, 'PNG')),
    about, box));

  get('v1/history').then(({ metrics, classes, tiers, detectors: named }) => {
    known = new Map(metrics.map(of => [of.name, of]));
    detectors = named;
    metric.append(...metrics.map(({ name }) => h('option', { value: name, selected: name === (asked.get('metric') ?? 'goodput') }, name)));
    group.append(h('option', { value: '' }, 'everything'),
      ...classes.map(name => h('option', { value: `class:${name}` }, `class ${name}`)),
      ...tiers.map(name => h('option', { value: `tier:${name}` }, `tier ${name}`)),
      ...detectors.map(name => h('option', { value: `detector:${name}` }, `detector ${name}`)));
    draw();
  }, error => { about.textContent = error.message; });
  return { close: () => chart?.close() };
}
