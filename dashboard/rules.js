// Detectors, rules and what they refused; why one request was refused.

import { get } from './api.js';
import { h, liveTable, table } from './dom.js';
import { number, seconds, when } from './format.js';
import { level } from './level.js';
import { typeName } from './throttles.js';

const DETECTORS = [
  ['Detector', row => h('b', {}, row.name), 'words'],
  ['Level', row => level(row.level)],
  ['Figure', row => number(row.figure), 'number'],
  ['Orange', row => number(row.orange), 'number'],
  ['Red', row => number(row.red), 'number'],
  ['Kind', row => row.kind],
  ['', row => h('a', { href: `#culprits?figure=${encodeURIComponent(row.name)}` }, 'What loads it')],
  ['Trouble', row => row.trouble ?? '', 'words'],
];

const now = row => row.in_force ? h('span', { class: 'chip warn' }, row.shadow ? 'in force (shadow)' : 'in force') : row.enabled ? 'ready' : 'disabled';

const RULES = [
  ['Rule', row => h('b', {}, row.name), 'words'],
  ['Now', now],
  ['Times', row => number(row.times), 'number'],
  ['Figures', row => row.figures, 'words'],
];

const ENFORCED = [
  ['Rule', row => h('b', {}, row.name), 'words'],
  ['Done', row => Object.entries(row.actions).map(([action, times]) => `${action} ${number(times)}`).join(', ') || '–', 'words'],
  ['Would have refused (shadow)', row => number(row.would_refuse), 'number'],
];

/** Fields of an explanation that need more than their name and value. */
const EXPLAINED = {
  at_ms: ['when', when],
  tier: ['service level', String],
  by: ['refused by', by => by.replaceAll('_', ' ')],
  throttle: ['throttled', ({ id, type }) => `${typeName(type)} (throttle ${id})`],
  retry_after_s: ['told to come back after', seconds],
};

function explained(why) {
  const rows = Object.entries(why).filter(([, value]) => value !== null).map(([name, value]) => {
    const [title, of] = EXPLAINED[name] ?? [name, value => typeof value === 'object' ? JSON.stringify(value) : String(value)];
    return [title, of(value)];
  });
  return table([['What', ([title]) => title], ['Value', ([, value]) => value, 'words']], rows, { label: 'Why it was refused' });
}

/** The question why one request was refused. */
function question() {
  const id = h('input', { required: true, size: 30, placeholder: 'the id in its answer or log line' });
  const found = h('div', {});
  const form = h('form', {
    class: 'row',
    submit: async event => {
      event.preventDefault();
      try {
        found.replaceChildren(explained(await get(`v1/explain/${encodeURIComponent(id.value.trim())}`)));
      } catch (error) {
        found.replaceChildren(h('p', { class: 'note' }, error.message));
      }
    },
  }, h('label', {}, 'Request', id), h('button', {}, 'Explain'));
  return h('section', { class: 'card', 'aria-label': 'Why was this refused?' }, h('h2', {}, 'Why was this refused?'), form, found);
}

export function rules(main) {
  const key = ({ name }, at) => `${at} ${name}`;
  const parts = [
    ['Detectors', liveTable(DETECTORS, { label: 'Detectors', key }), state => state.detectors],
    ['Rules', liveTable(RULES, { label: 'Rules', key }), state => state.rules],
    ['What rules did since the start', liveTable(ENFORCED, { label: 'Enforced', key, empty: 'No rule was in force yet.' }), state => state.enforced],
  ];
  main.append(...parts.map(([title, list]) => h('section', { class: 'card', 'aria-label': title }, h('h2', {}, title), list.element)), question());
  return { update: state => parts.forEach(([, list, of]) => list.update(of(state))) };
}
