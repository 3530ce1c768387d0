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

/** A table from columns `[title, cell(row), kind]`; kind `number` is aligned to the right. */
export function table(columns, rows, { label, empty = 'None.' }) {
  if (rows.length === 0) return h('p', { class: 'note' }, empty);
  const cell = (tag, kind, content) => h(tag, { class: kind, scope: tag === 'th' ? 'col' : null }, content);
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    h('table', {},
      h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => cell('th', kind, title)))),
      h('tbody', {}, rows.map(row => h('tr', {}, columns.map(([, of, kind]) => cell('td', kind, of(row))))))));
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
