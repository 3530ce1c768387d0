// What requests cost, as measured, beside what the classes say they cost.

import { put } from './api.js';
import { h, liveTable, notice } from './dom.js';
import { number } from './format.js';

const path = name => `v1/tunables/${encodeURIComponent(`class.${name}.cost`)}`;

const configured = row => row.configured === 'learned'
  ? `learned, now ${number(row.charged)}`
  : `configured as ${number(row.configured)}`;

export function costs(page) {
  const adopt = async ({ class: name, configured, measured }) => {
    const value = Math.max(0.01, Number(measured.toFixed(2)));
    const set = (to, why) => put(path(name), { value: to, why });
    try {
      await set(value, 'as measured');
      const undo = () => set(configured, 'undone: as measured').then(page.refresh, error => notice(error.message, { isBad: true }));
      notice(`${name} costs ${number(value)}.`, { action: { name: 'Undo', run: undo } });
      page.refresh();
    } catch (error) {
      notice(error.message, { isBad: true });
    }
  };
  const button = get => {
    const made = h('button', { type: 'button', class: 'quiet', click: () => adopt(get()) }, 'Adopt');
    made.setAttribute('aria-label', `Adopt the measured cost of ${get().class}`);
    return made;
  };
  const list = liveTable([
    ['Class', row => h('b', {}, row.class), 'words'],
    ['Cost', row => row.measured === null
      ? `${configured(row)}, not enough data to measure`
      : [
        `${configured(row)}, measured as `,
        h('b', {}, number(row.measured)),
        h('span', { class: 'note' }, ` (${number(row.low)} to ${number(row.high)})`),
      ], 'words'],
    ...page.mayWrite ? [['', button, '', 'kept']] : [],
  ], { label: 'Costs', key: row => row.class });
  const element = h('section', { class: 'card', 'aria-label': 'Costs' }, h('h2', {}, 'What a request costs'), list.element,
    h('p', { class: 'note' }, 'Relative to the mean request. The room and the rates of classes count by these costs.'));
  return {
    element,
    update() {
      const rows = page.found.costs ?? [];
      element.hidden = rows.length === 0;
      list.update(rows);
      for (const [i, row] of [...element.querySelectorAll('tbody tr')].entries()) {
        const of = row.querySelector('button');
        if (of) of.disabled = rows[i]?.measured === null;
      }
    },
  };
}
