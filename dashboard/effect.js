// Before and after: what became of the figure and of the requests when types were throttled.

import { Chart } from './chart.js';
import { h, notice, table } from './dom.js';
import { number } from './format.js';
import { describe, end, typeName, undo } from './throttles.js';

/** Seconds before the throttle that count as "before". */
const BEFORE_S = 60;
/** Types that have a line of their own. */
const LINES = 4;
const COLOURS = ['--s1', '--s4', '--s2', '--s3'];

/** What was applied last, here or elsewhere. It outlives the page's being left. */
let last = null;

const listen = list => list.map(({ throttle }) => throttle);

/** Throttles that were applied elsewhere: the latest, and those applied with it. */
function elsewhere(throttles) {
  const latest = Math.max(...throttles.map(({ since_ms: since }) => since));
  if (!(latest > (last?.sinceMs ?? 0) + 2000)) return;
  const group = throttles.filter(({ since_ms: since }) => since > latest - 2000);
  last = { applied: group.map(throttle => ({ throttle, replaced: null })), sinceMs: latest, endedMs: null, expected: null, figure: null, isOurs: false };
}

export function effect(page) {
  const box = h('div', { class: 'chart' });
  const means = h('div', {});
  const about = h('p', {});
  const say = text => notice(text);
  const fail = error => notice(error.message, { isBad: true });
  const takeBack = of => undo(of.applied).then(() => { close(of); say('Undone.'); }, fail);
  const finish = of => end(listen(of.applied).map(({ id }) => id)).then(() => { close(of); say('The throttles have ended.'); }, fail);
  const undoing = h('button', { type: 'button', click: () => takeBack(last) }, 'Undo');
  const ending = h('button', { type: 'button', class: 'quiet', click: () => finish(last) }, 'End');
  const element = h('section', { class: 'card', 'aria-label': 'Before and after', hidden: true },
    h('h2', {}, 'Before and after'), about, h('div', { class: 'split' }, means, box), page.mayWrite && h('p', { class: 'row' }, undoing, ending));
  let chart = null;
  let drawnFor = null;

  function close(of) {
    of.endedMs ??= page.now();
    update();
  }

  function draw() {
    chart?.close();
    box.replaceChildren();
    drawnFor = last;
    last.types = listen(last.applied).map(({ type }) => type);
    last.lines = last.types.slice(0, LINES);
    chart = new Chart(box, [
      { name: page.samples.figure, colour: '--s5' },
      ...last.lines.map((type, i) => ({ name: `${typeName(type)}, requests/s`, colour: COLOURS[i], right: true })),
    ]);
    about.replaceChildren(...listen(last.applied).map(({ type, action }, i) => [i > 0 ? '; ' : '', h('b', {}, typeName(type)), `: ${describe(action)}`]).flat());
  }

  function show() {
    const { all } = page.samples;
    const [since, until] = [last.sinceMs / 1000, last.endedMs === null ? Infinity : last.endedMs / 1000];
    chart.show([
      all.map(({ at }) => at),
      all.map(({ figure }) => figure),
      ...last.lines.map(type => all.map(({ requests }) => requests[type] ?? null)),
    ]);
    chart.mark([{ at: since, name: 'throttled' }, ...last.endedMs === null ? [] : [{ at: until, name: 'ended' }]]);
    // The interval in which it was applied belongs to neither.
    const step = page.found.interval_s;
    const row = (name, of, expects = null) => ({
      name, expects,
      before: page.samples.mean(of, since - BEFORE_S, since),
      after: page.samples.mean(of, since + step, until),
    });
    const predicted = last.figure === page.samples.figure ? last.expected : null;
    const rows = [
      row(page.samples.figure, ({ figure }) => figure, predicted?.figure ?? null),
      ...last.types.map(type => row(`${typeName(type)}, requests/s`, ({ requests }) => requests[type])),
      row('all requests/s', ({ requests }) => Object.values(requests).reduce((sum, value) => sum + (value ?? 0), 0)),
    ];
    const next = table([
      ['Mean', ({ name }) => name, 'words'],
      ['Before', ({ before }) => number(before), 'number'],
      [last.endedMs === null ? 'Since' : 'Meanwhile', ({ after }) => number(after), 'number'],
      ['Predicted', ({ expects }) => expects === null ? '' : number(expects), 'number'],
    ], rows, { label: 'Before and after' });
    if (!means.firstChild?.isEqualNode(next)) means.replaceChildren(next);
  }

  function update() {
    element.hidden = last === null;
    if (last === null || page.samples.all.length === 0) return;
    if (drawnFor !== last || chart.series[0].name !== page.samples.figure) draw();
    undoing.hidden = !last.isOurs || last.endedMs !== null;
    ending.hidden = last.endedMs !== null;
    show();
  }

  return {
    element,
    update,
    /** Throttles in force: those of others are followed too, and the end of what is shown is noticed. */
    state({ throttles = [], at_ms: now }) {
      if (throttles.length) elsewhere(throttles);
      if (!last || last.endedMs !== null) return;
      const ids = new Set(throttles.map(({ id }) => id));
      const isGone = listen(last.applied).every(({ id }) => !ids.has(id));
      // A state may be older than the throttle.
      if (isGone && now > last.sinceMs + 2000) last.endedMs = now;
    },
    applied(applied, expects) {
      const sinceMs = Math.max(...listen(applied).map(({ since_ms: since }) => since));
      last = { applied, sinceMs, endedMs: null, expected: expects, figure: page.samples.figure, isOurs: true };
      const mine = last;
      update();
      element.scrollIntoView({ block: 'nearest' });
      notice(`${applied.length === 1 ? typeName(applied[0].throttle.type) : `${applied.length} types`} throttled.`, { action: { name: 'Undo', run: () => takeBack(mine) } });
    },
    close: () => chart?.close(),
  };
}
