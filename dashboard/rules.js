// Detectors, rules and what they refused; why one request was refused.

import { get } from './api.js';
import { h, table } from './dom.js';
import { number, when } from './format.js';

const KIND = { green: 'good', orange: 'warn', red: 'bad', unknown: 'soft' };
const level = name => h('span', { class: `chip ${KIND[name] ?? 'soft'}` }, name);

export function rules(main) {
  const [detectors, list, enforced] = ['Detectors', 'Rules', 'Enforced'].map(title =>
    h('section', { class: 'card', 'aria-label': title }));
  const id = h('input', { required: true, size: 30, placeholder: 'the id in its answer or log line' });
  const found = h('div', {});
  const form = h('form', {
    class: 'row',
    submit: async event => {
      event.preventDefault();
      try {
        const why = await get(`v1/explain/${encodeURIComponent(id.value.trim())}`);
        const rows = Object.entries(why).filter(([, value]) => value !== null);
        found.replaceChildren(table([
          ['', ([name]) => name],
          ['', ([name, value]) => name === 'at_ms' ? when(value) : typeof value === 'object' ? JSON.stringify(value) : String(value), 'words'],
        ], rows, { label: 'Why it was refused' }));
      } catch (error) {
        found.replaceChildren(h('p', { class: 'note' }, error.message));
      }
    },
  }, h('label', {}, 'Request', id), h('button', {}, 'Explain'));
  main.append(detectors, list, enforced,
    h('section', { class: 'card', 'aria-label': 'Why was this refused?' }, h('h2', {}, 'Why was this refused?'), form, found));
  return {
    update(state) {
      detectors.replaceChildren(h('h2', {}, 'Detectors'), table([
        ['Detector', row => h('b', {}, row.name), 'words'],
        ['Level', row => level(row.level)],
        ['Figure', row => number(row.figure), 'number'],
        ['Orange', row => number(row.orange), 'number'],
        ['Red', row => number(row.red), 'number'],
        ['Kind', row => row.kind],
        ['Trouble', row => row.trouble ?? '', 'words'],
      ], state.detectors, { label: 'Detectors' }));
      list.replaceChildren(h('h2', {}, 'Rules'), table([
        ['Rule', row => h('b', {}, row.name), 'words'],
        ['Now', row => row.in_force ? h('span', { class: 'chip warn' }, row.shadow ? 'in force (shadow)' : 'in force') : row.enabled ? 'ready' : 'disabled'],
        ['Times', row => number(row.times), 'number'],
        ['Figures', row => row.figures, 'words'],
      ], state.rules, { label: 'Rules' }));
      enforced.replaceChildren(h('h2', {}, 'What rules did since the start'), table([
        ['Rule', row => h('b', {}, row.name), 'words'],
        ['Done', row => Object.entries(row.actions).map(([action, times]) => `${action} ${number(times)}`).join(', ') || '–', 'words'],
        ['Would have refused (shadow)', row => number(row.would_refuse), 'number'],
      ], state.enforced, { label: 'Enforced', empty: 'No rule was in force yet.' }));
    },
  };
}
