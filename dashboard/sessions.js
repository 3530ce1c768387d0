// Admitted sessions: how many, and who.

import { get, remove } from './api.js';
import { ask } from './dialog.js';
import { h, liveTable, notice, write } from './dom.js';
import { number, seconds, when } from './format.js';
import { tiles } from './overview.js';

const POLL_MS = 5000;

const TILES = [
  ['Open', 'sessions', s => number(s.sessions?.open), s => `${number(s.sessions?.begun)} begun since the start`],
  ['Refused', 'sessions', s => number(s.sessions?.refused), () => 'since the start'],
  ['A session lasts', '', s => seconds(s.sessions?.length_s), () => 'in the mean'],
  ['Places free', '1/s', s => number(s.sessions?.free_per_s), () => 'as sessions end'],
];

const COLUMNS = [
  ['Session', ({ key }) => key, 'words'],
  ['Service level', ({ tier }) => tier, 'words'],
  ['Begun', ({ begun_ms: at }) => when(at)],
  ['Last request', ({ last_ms: at }) => when(at)],
  ['Requests', ({ requests }) => number(requests), 'number'],
  ['Under way', ({ under_way: underWay }) => number(underWay), 'number'],
];

export function sessions(main, shared) {
  const update = tiles(main, TILES);
  const end = get => h('button', { type: 'button', class: 'quiet', click: () => finish(get()) }, 'End');
  const list = liveTable([...COLUMNS, ...shared.mayWrite ? [['', end, '', 'kept']] : []],
    { label: 'Sessions', key: ({ key }) => key, empty: 'No session is open.' });
  const trouble = h('p', { class: 'note' });
  main.append(h('section', { class: 'card', 'aria-label': 'Sessions' }, h('h2', {}, 'The first hundred'), trouble, list.element));

  async function finish({ key }) {
    const why = await ask({ title: 'End a session', about: h('p', {}, h('b', {}, key)), yes: 'End it' });
    if (why === null) return;
    await remove(`v1/sessions/${encodeURIComponent(key)}`, { why: why || 'ended on the dashboard' })
      .then(() => notice('The session has ended.'), error => notice(error.message, { isBad: true }));
    load();
  }

  async function load() {
    try {
      list.update((await get('v1/sessions?limit=100')).sessions);
      list.element.hidden = false;
      write(trouble, '');
    } catch (error) {
      if (!error.status) return;
      list.element.hidden = true;
      write(trouble, error.message);
    }
  }
  load();
  const timer = setInterval(load, POLL_MS);
  return { update, close: () => clearInterval(timer) };
}
