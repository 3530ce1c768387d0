// Classes and their queues, all settings, and who changed what.

import { get } from './api.js';
import { h, liveTable, table } from './dom.js';
import { milliseconds, number, when } from './format.js';
import { settings } from './settings.js';

// What a request is charged, and what the gate has learned that it costs.
const cost = row => row.learned_cost === null
  ? number(row.cost)
  : [
    number(row.cost),
    h('span', { class: 'note' }, ` (learned ${number(row.learned_cost)} ± ${number(row.learned_cost_error)})`),
  ];

const COLUMNS = [
  ['Class', row => h('b', {}, row.name), 'words'],
  ['Cost', cost, 'number'],
  ['Offered/s', row => number(row.offered_per_s), 'number'],
  ['Admitted/s', row => number(row.admitted_per_s), 'number'],
  ['Refused/s', row => number(row.shed_per_s), 'number'],
  ['Goodput/s', row => number(row.goodput_per_s), 'number'],
  ['p99', row => milliseconds(row.response_p99_ms), 'number'],
  ['At the service', row => number(row.in_flight), 'number'],
  ['Queued', row => number(row.queued), 'number'],
  ['Errors', row => number(row.errors), 'number'],
];

export function classes(main, shared) {
  const now = liveTable(COLUMNS, { label: 'Classes', key: (row, at) => `${at} ${row.name}` });
  const shown = h('section', { class: 'card', 'aria-label': 'Classes' }, h('h2', {}, 'Now'), now.element);
  const tuned = h('section', { class: 'card', 'aria-label': 'Settings' }, h('h2', {}, 'Settings'));
  const audit = h('section', { class: 'card', 'aria-label': 'Changes' });
  main.append(shown, tuned, audit);
  settings(tuned, shared, () => true);

  let last = '';
  async function changes() {
    const { changes } = await get('v1/audit?limit=20').catch(() => ({ changes: [] }));
    if (JSON.stringify(changes) === last) return;
    last = JSON.stringify(changes);
    const what = row => row.key ? `${row.key}: ${row.old ?? '–'} → ${row.new ?? '–'}` : '';
    audit.replaceChildren(h('h2', {}, 'Last changes'), table([
      ['When', row => when(row.at_ms)],
      ['Who', row => row.who, 'words'],
      ['What', row => [row.action, ' ', what(row)], 'words'],
      ['Why', row => row.why ?? '', 'words'],
    ], changes, { label: 'Changes', empty: 'Nothing was changed.' }));
  }
  changes();
  const timer = setInterval(changes, 3000);
  return {
    update: state => now.update(state.classes),
    close: () => clearInterval(timer),
  };
}
