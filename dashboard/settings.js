// Tunables, edited in place: what is in force is shown, a change is confirmed, can be undone, and is in the
// audit.

import { get, put, remove } from './api.js';
import { ask } from './dialog.js';
import { h, notice, table } from './dom.js';

const text = value => typeof value === 'string' ? value : JSON.stringify(value);

/** What was typed, as the schema wants it: numbers and truths are not texts. */
function typed(raw, { type }) {
  const kinds = [type].flat();
  if (kinds.includes('number') || kinds.includes('integer') || kinds.includes('boolean') || kinds.includes('array')) {
    try {
      return JSON.parse(raw);
    } catch {
      return raw;
    }
  }
  return raw;
}

/** Asks whether a change is to be made, and why. */
const confirm = (name, from, to) =>
  ask({ title: 'Change a setting', about: h('p', {}, h('b', {}, name), `: ${from} → ${to}`), yes: 'Change' });

/** A table of the tunables whose name `belongs`. */
export function settings(parent, shared, belongs) {
  const filter = h('input', { type: 'search', placeholder: 'part of a name', input: () => show() });
  const box = h('div', {});
  parent.append(h('div', { class: 'row' }, h('label', {}, 'Find', filter)), box);
  if (!shared.mayWrite) parent.append(h('p', { class: 'note' }, 'Your token may read, and not change anything.'));
  let all = [];
  /** What was typed and not applied yet, by name: the table is drawn anew after every change. */
  const drafts = new Map();

  const path = name => `v1/tunables/${encodeURIComponent(name)}`;

  async function change(tunable, to, { asks = true, why = '' } = {}) {
    const from = tunable.value;
    const reason = asks ? await confirm(tunable.name, text(from), text(to)) : why;
    if (reason === null) return;
    if (asks) drafts.delete(tunable.name);
    try {
      await put(path(tunable.name), reason ? { value: to, why: reason } : { value: to });
      const undo = () => change({ ...tunable, value: to }, from, { asks: false, why: `undone: ${reason}`.slice(0, 200) });
      notice(`${tunable.name} is ${text(to)}.`, { action: { name: 'Undo', run: undo } });
    } catch (error) {
      notice(error.message, { isBad: true });
    }
    await load();
  }

  async function reset(tunable) {
    const reason = await confirm(tunable.name, text(tunable.value), `${text(tunable.file)} (as in the file)`);
    if (reason === null) return;
    drafts.delete(tunable.name);
    await remove(path(tunable.name), reason ? { why: reason } : undefined)
      .catch(error => notice(error.message, { isBad: true }));
    await load();
  }

  function editor(tunable) {
    const { name, value, schema, expected } = tunable;
    const label = `${name}: ${expected}`;
    const shown = drafts.get(name) ?? text(value);
    const keep = event => drafts.set(name, event.target.value);
    const input = schema.enum
      ? h('select', { 'aria-label': label, input: keep }, schema.enum.map(choice => h('option', { value: choice, selected: text(choice) === shown }, text(choice))))
      : h('input', { value: shown, input: keep, 'aria-label': label, title: expected, size: 16 });
    input.disabled = !shared.mayWrite;
    const apply = h('button', { type: 'submit', disabled: !shared.mayWrite }, 'Apply');
    return h('form', {
      class: 'row',
      submit: event => {
        event.preventDefault();
        change(tunable, typed(input.value, schema));
      },
    }, input, apply,
    tunable.tuned !== null && h('button', { type: 'button', class: 'quiet', disabled: !shared.mayWrite, click: () => reset(tunable) }, 'Back to the file'));
  }

  function show() {
    const wanted = filter.value.toLowerCase();
    const rows = all.filter(({ name }) => belongs(name) && name.toLowerCase().includes(wanted));
    box.replaceChildren(table([
      ['Setting', row => [h('b', {}, row.name), h('div', { class: 'note' }, row.doc)], 'words'],
      ['Value', editor],
      ['Default', row => text(row.default)],
    ], rows, { label: 'Settings', empty: 'None has such a name.' }));
  }

  async function load() {
    try {
      all = (await get('v1/tunables')).tunables;
      show();
    } catch (error) {
      box.replaceChildren(h('p', { class: 'note' }, error.message));
    }
  }
  return load();
}
