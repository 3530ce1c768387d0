// Hold one type for some seconds, and see whether the figure falls: the proof that no correlation can give.

import { post, remove } from './api.js';
import { h, notice, write } from './dom.js';
import { number, percent } from './format.js';
import { typeName } from './throttles.js';

const PHASES = { before: 'looking at the figure before', held: 'holding', after: 'looking at the figure after', done: 'done' };
const VERDICTS = {
  confirmed: ['good', 'Confirmed', 'the figure fell while it was held'],
  'not confirmed': ['bad', 'Not confirmed', 'the figure did not fall while it was held'],
  inconclusive: ['warn', 'Inconclusive', 'the figure varies too much to tell'],
};

export function hold(page) {
  const keep = h('input', { type: 'number', min: 0, max: 90, value: 50, required: true });
  const length = h('select', {}, [5, 10, 20, 30].map(s => h('option', { value: `${s}s`, selected: s === 10 }, `${s} seconds`)));
  const button = h('button', {}, 'Hold it and see');
  const which = h('p', { class: 'note' });
  const fail = error => notice(error.message, { isBad: true });
  const form = h('form', {
    submit: event => {
      event.preventDefault();
      const [type] = page.ticked;
      post('v1/correlation/confirmation', { type, keep: keep.valueAsNumber / 100, for: length.value, figure: page.found.figure }).then(page.refresh, fail);
    },
  }, which, h('div', { class: 'row' }, h('label', {}, 'Let pass, %', keep), h('label', {}, 'For', length), button));
  const progress = h('progress', { max: 1, 'aria-label': 'Progress' });
  const phase = h('p', {});
  const stop = h('button', { type: 'button', class: 'quiet', click: () => remove('v1/correlation/confirmation', { why: 'stopped on the dashboard' }).then(page.refresh, fail) }, 'Stop');
  const running = h('div', { hidden: true }, phase, h('div', { class: 'row' }, progress, page.mayWrite && stop));
  const result = h('div', { role: 'status' });
  const element = h('section', { class: 'card', 'aria-label': 'Hold it and see' }, h('h2', {}, 'Hold it and see'),
    h('p', {}, 'The proof: one type is held back for some seconds, and the figure is compared before, meanwhile and after.'),
    page.mayWrite && form, running, result);
  let shown = '';

  function show(seen, at) {
    const isRunning = Boolean(seen) && seen.phase !== 'done';
    running.hidden = !isRunning;
    if (isRunning) {
      progress.value = Math.min(1, Math.max(0, (at - seen.began_ms) / Math.max(1, seen.ends_ms - seen.began_ms)));
      write(phase, `${typeName(seen.type)}: ${PHASES[seen.phase] ?? seen.phase}${seen.phase === 'held' ? ` to ${percent(seen.keep)}` : ''}`);
    }
    const key = seen?.verdict ? JSON.stringify(seen) : '';
    if (key === shown) return;
    shown = key;
    if (!key) return result.replaceChildren();
    const [kind, title, means] = VERDICTS[seen.verdict] ?? ['soft', seen.verdict, ''];
    result.replaceChildren(
      h('p', {}, h('span', { class: `chip ${kind}` }, title), ` ${typeName(seen.type)}, held to ${percent(seen.keep)}: ${means}.`),
      h('p', {}, `${seen.figure}: ${number(seen.before)} before, ${number(seen.during)} meanwhile, ${number(seen.after)} after.`));
  }
  return {
    element,
    update() {
      const [type] = page.ticked;
      const isOne = page.ticked.size === 1;
      const seen = page.found.confirmation;
      write(which, isOne ? typeName(type) : 'Tick one type in the list.');
      button.disabled = !isOne || (seen && seen.phase !== 'done');
      show(seen, page.found.at_ms);
    },
  };
}
