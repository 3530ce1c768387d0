// The operator's dashboard: which page is shown, the connection to the gate, the theme.

import { events, get, login } from './api.js';
import { redrawAll } from './chart.js';
import { h, write } from './dom.js';
import { classes } from './classes.js';
import { culprits } from './culprits.js';
import { history } from './history.js';
import { kernel } from './kernel.js';
import { overview } from './overview.js';
import { room } from './room.js';
import { rules } from './rules.js';
import { sessions } from './sessions.js';

/** Pages by their address: a title, and what opens them. That returns `{ update(state), close() }`. */
const PAGES = {
  overview: ['Overview', overview],
  room: ['Waiting room', room],
  classes: ['Classes and settings', classes],
  culprits: ['Culprits', culprits],
  rules: ['Rules', rules],
  sessions: ['Sessions', sessions],
  kernel: ['Kernel', kernel],
  history: ['History', history],
};

const main = document.getElementById('main');
const chip = document.getElementById('state');
/** What pages share: the last state, and what the operator may do. */
const shared = { state: null, mayWrite: false, who: '' };
let page = null;

const nav = document.getElementById('nav');
nav.append(...Object.entries(PAGES).map(([name, [title]]) => h('a', { href: `#${name}` }, title)));

function open() {
  const [name, rest = ''] = location.hash.slice(1).split('?');
  const known = Object.hasOwn(PAGES, name) ? name : 'overview';
  page?.close?.();
  for (const link of nav.children) {
    if (link.hash === `#${known}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const [title, begin] = PAGES[known];
  document.title = `${title} – Tidegate`;
  main.replaceChildren(h('h1', {}, title));
  page = begin(main, shared, new URLSearchParams(rest));
  if (shared.state) page.update?.(shared.state);
}

function say(text, kind) {
  write(chip, text);
  chip.className = `chip ${kind}`;
}

function onState(state) {
  shared.state = state;
  if (state.draining) say('Draining', 'bad');
  else if (state.replicas.length && state.replicas.every(replica => !replica.healthy)) say('No replica is usable', 'bad');
  else if (state.room.waiting > 0) say(state.overloaded ? 'Overloaded, visitors wait' : 'Visitors wait', 'warn');
  else if (state.overloaded) say('Overloaded', 'bad');
  else say(state.shadow ? 'Serving (shadow: nothing is enforced)' : 'Serving', 'good');
  page?.update?.(state);
}

/** Asks for a token until one is taken. */
function askForToken(message) {
  return new Promise(resolve => {
    const typed = h('input', { type: 'password', autocomplete: 'current-password', required: true, id: 'token' });
    const dialog = h('dialog', { 'aria-labelledby': 'login' },
      h('h2', { id: 'login' }, 'Token'),
      h('p', { class: 'note' }, message),
      h('form', { method: 'dialog' },
        h('div', { class: 'row' }, h('label', {}, 'listen.admin_token or listen.admin_read_token', typed), h('button', {}, 'Log in'))));
    dialog.addEventListener('cancel', event => event.preventDefault());
    dialog.addEventListener('close', () => {
      login(typed.value);
      dialog.remove();
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function whoAmI() {
  const { who, may_write: mayWrite } = await get('v1/access');
  Object.assign(shared, { who, mayWrite });
}

async function begin() {
  for (;;) {
    try {
      await whoAmI();
      break;
    } catch (error) {
      if (error.status === 401) await askForToken(error.message);
      else {
        say('No connection', 'bad');
        main.replaceChildren(h('p', { class: 'note' }, `${error.message} – trying again.`));
        await new Promise(resolve => setTimeout(resolve, 2000));
      }
    }
  }
  open();
  addEventListener('hashchange', () => { open(); main.focus(); });
  events({
    onState,
    onLost: () => say('Connection lost, trying again', 'bad'),
    onRefused: async error => {
      await askForToken(error.message);
      await whoAmI().catch(() => {});
      open();
    },
  });
}

const KEPT = 'tidegate-theme';
const root = document.documentElement;
const system = matchMedia('(prefers-color-scheme: dark)');
function theme() {
  root.dataset.theme = localStorage.getItem(KEPT) ?? (system.matches ? 'dark' : 'light');
  redrawAll();
}
system.addEventListener('change', theme);
document.getElementById('theme').addEventListener('click', () => {
  localStorage.setItem(KEPT, root.dataset.theme === 'dark' ? 'light' : 'dark');
  theme();
});
theme();
begin();
