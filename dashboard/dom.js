// Elements are made here and nowhere else: texts become text nodes, so that no name, path or message from
// outside is ever read as markup.

/** An element. `attributes` that are functions are listeners, `false` and `null` are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces the text only if it is another one: screen readers and the browser have less to do. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SVG = 'http://www.w3.org/2000/svg';

/** An element of a picture. */
export function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat());
  return element;
}

/** A table from columns `[title, cell(row), kind]`; kind `number` is aligned to the right. */
export function table(columns, rows, { label, empty = 'None.' }) {
  if (rows.length === 0) return h('p', { class: 'note' }, empty);
  const cell = (tag, kind, content) => h(tag, { class: kind, scope: tag === 'th' ? 'col' : null }, content);
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', {},
      h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => cell('th', kind, title)))),
      h('tbody', {}, rows.map(row => h('tr', {}, columns.map(([, of, kind]) => cell('td', kind, of(row))))))));
}

/** Replaces the content of a cell if it is another one. */
function fill(cell, content) {
  const next = h('td', { class: cell.getAttribute('class') }, content);
  if (!cell.isEqualNode(next)) cell.replaceChildren(...next.childNodes);
}

/**
 * A table that goes on with every state. A row is known by `key(row, at)` and stays the same elements, so that what
 * has the focus, is ticked or scrolled stays so. Columns as in `table`; with `kept` as the fourth, the cell is
 * made once, as `cell(get)`, where `get()` is the row as it is now: what has listeners must be kept. Rows keep
 * their order while one of them has the focus: nothing may move away under the operator's finger.
 */
export function liveTable(columns, { label, key, empty = 'None.' }) {
  const note = h('p', { class: 'note' }, empty);
  const body = h('tbody', {});
  const shown = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', {}, h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => h('th', { class: kind, scope: 'col' }, title)))), body));
  const element = h('div', {}, note);
  const rows = new Map();

  function begin(row) {
    const kept = { row, cells: [] };
    kept.line = h('tr', {}, columns.map(([, cell, kind, mode]) => {
      const made = h('td', { class: kind }, mode === 'kept' && cell(() => kept.row));
      if (mode !== 'kept') kept.cells.push([made, cell]);
      return made;
    }));
    return kept;
  }

  function update(list) {
    const wanted = list.length ? shown : note;
    if (element.firstChild !== wanted) element.replaceChildren(wanted);
    const names = new Set(list.map(key));
    for (const [name, { line }] of rows) {
      if (names.has(name)) continue;
      line.remove();
      rows.delete(name);
    }
    const mayMove = !body.contains(document.activeElement);
    list.forEach((row, at) => {
      const name = key(row, at);
      if (!rows.has(name)) rows.set(name, begin(row));
      const kept = rows.get(name);
      kept.row = row;
      for (const [cell, content] of kept.cells) fill(cell, content(row));
      const isInPlace = kept.line.parentNode && (!mayMove || body.children[at] === kept.line);
      if (!isInPlace) body.insertBefore(kept.line, body.children[at] ?? null);
    });
  }
  return { element, update };
}

/** A message at the edge of the window, with at most one button. It goes after some seconds. */
export function notice(text, { isBad = false, action = null } = {}) {
  const element = h('div', { class: `notice ${isBad ? 'bad' : ''}` }, h('span', {}, text));
  if (action) {
    element.append(h('button', { type: 'button', class: 'quiet', click: () => { element.remove(); action.run(); } }, action.name));
  }
  document.getElementById('notices').append(element);
  setTimeout(() => element.remove(), action ? 20_000 : 8_000);
}
