// Types of requests, most culpable first: the paper's "top talkers". The operator ticks those to throttle.

import { drawn, h, liveTable, write } from './dom.js';
import { number, part, probability } from './format.js';
import { describe, typeName } from './throttles.js';

/** Types shown before the operator asks for all. */
const FIRST = 12;

function verdict({ culprit, significant, r }) {
  if (culprit) return h('span', { class: 'chip bad' }, 'culprit');
  if (significant) return h('span', { class: 'chip warn' }, 'comes along');
  return r === null && h('span', { class: 'soft' }, 'not enough data');
}

const cost = ({ cost: of }) => of
  ? [number(of.per_request), h('div', { class: 'note' }, `${number(of.low)} to ${number(of.high)}`)]
  : h('span', { class: 'soft' }, 'not enough data');

const share = ({ share: of, culprit, significant }) => [
  part(of),
  drawn('svg', { class: 'meter', width: '100%', height: 4, 'aria-hidden': 'true' },
    drawn('rect', { class: `part ${culprit ? 'k0' : significant ? 'along' : 'rest'}`, width: `${Math.min(100, 100 * of)}%`, height: 4 })),
];

/** `ticked`: the types that are ticked, a set; `onTick` is called when it has changed. */
export function talkers(ticked, onTick) {
  let found = null;
  let all = false;
  let throttles = [];
  const inForce = ({ type }) => {
    const of = throttles.find(throttle => throttle.type === type);
    return of && h('div', { class: 'note' }, `throttled: ${describe(of.action)}`);
  };
  const tick = get => h('input', {
    type: 'checkbox', 'aria-label': `Tick ${typeName(get().type)}`, checked: ticked.has(get().type),
    disabled: get().kind === 'other',
    title: get().kind === 'other' ? 'Only types with a name can be throttled.' : null,
    change: ({ target }) => {
      if (target.checked) ticked.add(get().type);
      else ticked.delete(get().type);
      onTick();
    },
  });
  const list = liveTable([
    ['', tick, '', 'kept'],
    ['Requests', row => [h('b', {}, typeName(row.type)), ' ', verdict(row), inForce(row)], 'words wide'],
    ['Share', share, 'number'],
    ['Requests/s', ({ per_s: perS }) => number(perS), 'number'],
    ['Cost of one', cost, 'number'],
    ['r', ({ r }) => r === null ? '–' : r.toFixed(2).replace('-', '−'), 'number'],
    ['p', ({ p }) => probability(p), 'number'],
    ['Lag', ({ lag, r }) => r === null ? '–' : `${number(lag * found.interval_s)} s`, 'number'],
  ], { label: 'Top talkers', key: ({ type }) => type, empty: 'No request has come yet.' });
  const more = h('button', { type: 'button', class: 'quiet', click: () => { all = !all; show(); } });
  const about = h('p', { class: 'note' });

  function show() {
    if (!found) return;
    const { types } = found;
    list.update(all ? types : types.filter(({ type }, at) => at < FIRST || ticked.has(type)));
    more.hidden = types.length <= FIRST;
    write(more, all ? `Only the first ${FIRST}` : `All ${types.length} types`);
    write(about, `r: Pearson's correlation with ${found.figure} over ${found.intervals} intervals of ${number(found.interval_s)} s; `
      + `p: the chance that an innocent type looks like this (culprits: below ${found.alpha}${found.false_discovery ? ', corrected for the number of types' : ''}). `
      + `Cost of one: how far one request raises ${found.figure} beside all others, and where the true value lies in 95 of 100 cases.`);
  }
  const element = h('section', { class: 'card', 'aria-label': 'Top talkers' }, h('h2', {}, 'Top talkers'), list.element, h('p', { class: 'row' }, more), about);
  return {
    element,
    update(now) {
      found = now;
      show();
    },
    state(state) {
      throttles = state.throttles ?? [];
    },
  };
}
