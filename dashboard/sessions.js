// Admitted sessions: how many, and who.

import { get, remove } from './api.js';
import { h, notice, table } from './dom.js';
import { number, seconds } from './format.js';
import { tiles } from './overview.js';

const TILES = [
  ['Open', 'sessions', s => number(s.sessions?.open), s => `${number(s.sessions?.begun)} begun since the start`],
  ['Refused', 'sessions', s => number(s.sessions?.refused), () => 'since the start'],
  ['A session lasts', '', s => seconds(s.sessions?.length_s), () => 'in the mean'],
  ['Places free', '1/s', s => number(s.sessions?.free_per_s), () => 'as sessions end'],
];

export function sessions(main, shared) {
  const update = tiles(main, TILES);
  const list = h('section', { class: 'card', 'aria-label': 'Sessions' });
  main.append(list);

  async function end(key) {
    await remove(`v1/sessions/${encodeURIComponent(key)}`, { why: 'ended on the dashboard' })
      .then(() => notice('The session has ended.'), error => notice(error.message, { isBad: true }));
    load();
  }

  async function load() {
    try {
      const { sessions } = await get('v1/sessions?limit=100');
      const columns = Object.keys(sessions[0] ?? {}).map(name => [
        name,
        row => row[name] === null ? '–' : typeof row[name] === 'number' ? number(row[name]) : String(row[name]),
        'words',
      ]);
      if (shared.mayWrite) {
        columns.push(['', row => h('button', { type: 'button', class: 'quiet', click: () => end(row.key) }, 'End')]);
      }
      list.replaceChildren(h('h2', {}, 'The first hundred'), table(columns, sessions, { label: 'Sessions' }));
    } catch (error) {
      list.replaceChildren(h('p', { class: 'note' }, error.message));
    }
  }
  load();
  return { update };
}
