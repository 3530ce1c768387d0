// Questions to the operator.

import { h } from './dom.js';

/**
 * Asks whether something is to be done, and why. Resolves to `null` or the reason. `why` is the reason to begin
 * with; `null`: it is not asked for.
 */
export function ask({ title, about, yes, why = '' }) {
  return new Promise(resolve => {
    const reason = h('input', { id: 'why', maxlength: '200', value: why ?? '' });
    const dialog = h('dialog', { 'aria-labelledby': 'change' },
      h('h2', { id: 'change' }, title),
      about,
      h('form', { method: 'dialog' },
        why !== null && h('label', {}, 'Why (kept in the audit)', reason),
        h('p', { class: 'row' }, h('button', { value: 'yes' }, yes), h('button', { value: 'no', class: 'quiet', formnovalidate: true }, 'Cancel'))));
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? reason.value : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    if (why !== null) reason.focus();
  });
}
