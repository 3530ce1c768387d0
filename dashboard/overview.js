// Everything at a glance, at one second.

import { get } from './api.js';
import { LiveChart } from './chart.js';
import { h, write } from './dom.js';
import { milliseconds, number, percent, seconds } from './format.js';

/** `[name, unit, value(state), more(state)]` */
const TILES = [
  ['Offered', 'requests/s', s => number(s.offered_per_s), s => `${number(s.connections)} connections`],
  ['Admitted', 'requests/s', s => number(s.admitted_per_s), s => `${number(s.shed_per_s)} refused per second`],
  ['Goodput', 'requests/s', s => number(s.goodput_per_s), s => s.capacity.rate ? `${percent(s.goodput_per_s / s.capacity.rate)} of the capacity` : ''],
  ['Capacity', 'cost units/s', s => number(s.capacity.rate), s => `${s.capacity.phase}, ${s.capacity.estimator}`],
  ['Waiting', 'visitors', s => number(s.room.waiting), s => `a newcomer waits ${seconds(s.room.newcomer_wait_s)}`],
  ['Response time', 'median', s => milliseconds(s.response_ms.p50), s => `p99 ${milliseconds(s.response_ms.p99)}`],
  ['At the service', 'requests', s => number(s.gate.in_flight), s => s.capacity.max_in_flight ? `at most ${number(s.capacity.max_in_flight)}` : 'no limit'],
  ['At the gate', 'requests', s => number(s.gate.queued), s => `${number(s.gate.held)} held by their class's limits`],
];

const CHARTS = [
  ['Traffic', 'requests/s', [
    { name: 'offered', colour: '--s2', metric: 'arrivals', of: s => s.offered_per_s },
    { name: 'admitted', colour: '--s4', metric: 'admitted', of: s => s.admitted_per_s },
    { name: 'goodput', colour: '--s3', metric: 'goodput', of: s => s.goodput_per_s },
    { name: 'refused', colour: '--s5', of: s => s.shed_per_s },
    { name: 'capacity', colour: '--s6', dash: [6, 4], metric: 'capacity', of: s => s.capacity.rate },
  ]],
  ['Visitors who wait', 'visitors', [
    { name: 'waiting', colour: '--s1', metric: 'waiting', of: s => s.room.waiting },
  ]],
  ['Response time of the service', 'ms', [
    { name: 'median', colour: '--s1', metric: 'response_p50', of: s => s.response_ms.p50 },
    { name: 'p99', colour: '--s5', metric: 'response_p99', of: s => s.response_ms.p99 },
  ]],
  ['Requests in the gate', 'requests', [
    { name: 'at the service', colour: '--s3', metric: 'in_flight', of: s => s.gate.in_flight },
    { name: 'queued', colour: '--s2', metric: 'queue_length', of: s => s.gate.queued },
    { name: 'limit', colour: '--s6', dash: [6, 4], metric: 'max_in_flight', of: s => s.capacity.max_in_flight },
  ]],
];

/** Figures of the last minutes from the history, as columns for a chart; without `metric` it has none. */
async function past(series) {
  const answers = await Promise.all(series.map(async ({ metric }) => !metric ? { rows: [] }
    : get(`v1/history?metric=${metric}&from=-5m&step=1`).catch(() => ({ rows: [] }))));
  const times = [...new Set(answers.flatMap(({ rows }) => rows.map(([at]) => at)))].sort((a, b) => a - b);
  const columns = answers.map(({ rows }) => {
    const by = new Map(rows.map(([at, average]) => [at, average]));
    return times.map(at => by.get(at) ?? null);
  });
  return [times, ...columns];
}

/** Live charts with a heading, begun from the history. Returns them. */
export function charts(parent, list) {
  const grid = h('div', { class: 'charts' });
  parent.append(grid);
  return list.map(([title, unit, series]) => {
    const box = h('div', { class: 'chart' });
    grid.append(h('section', { class: 'card', 'aria-label': title }, h('h2', {}, title), box));
    const chart = new LiveChart(box, series, { unit });
    past(series).then(data => chart.begin(data), () => {});
    return chart;
  });
}

/** Tiles of figures. Returns what updates them. */
export function tiles(parent, list) {
  const made = list.map(([name, unit, value, more]) => {
    const [shown, under] = [h('span', {}, '–'), h('div', { class: 'more' })];
    const tile = h('div', { class: 'tile' },
      h('div', { class: 'name' }, name),
      h('div', { class: 'value' }, shown, h('span', { class: 'unit' }, unit)),
      under);
    return [tile, state => { write(shown, value(state)); write(under, more(state)); }];
  });
  parent.append(h('div', { class: 'tiles' }, made.map(([tile]) => tile)));
  return state => made.forEach(([, update]) => update(state));
}

/** What is red, and the way to its cause. */
function alarm(parent) {
  const list = h('ul', {});
  const element = h('section', { class: 'card alarm', 'aria-label': 'Red', hidden: true }, list);
  parent.append(element);
  let shown = '';
  return ({ detectors }) => {
    const red = detectors.filter(({ level }) => level === 'red').map(({ name }) => name);
    if (red.join('\n') === shown) return;
    shown = red.join('\n');
    element.hidden = red.length === 0;
    list.replaceChildren(...red.map(name => h('li', {}, h('b', {}, name), ' is red: ',
      h('a', { href: `#culprits?figure=${encodeURIComponent(name)}` }, 'see which requests load it'))));
  };
}

export function overview(main) {
  const warn = alarm(main);
  const update = tiles(main, TILES);
  const shown = charts(main, CHARTS);
  return {
    update(state) {
      warn(state);
      update(state);
      shown.forEach(chart => chart.push(state));
    },
    close: () => shown.forEach(chart => chart.close()),
  };
}
