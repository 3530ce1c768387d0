// What is to be done about the ticked types: the choice, its predicted effect, its confirmation. And what the
// gate itself suggests.

import { ask } from './dialog.js';
import { h, notice, write } from './dom.js';
import { level } from './level.js';
import { number, part } from './format.js';
import { levelOf, predict } from './prediction.js';
import { apply, describe, typeName } from './throttles.js';

const DURATIONS = [['1 minute', '1m'], ['5 minutes', '5m'], ['10 minutes', '10m'], ['30 minutes', '30m'], ['1 hour', '1h'], ['until it is ended', '']];

/** What is asked of a type: requests/s that come, and those that reach the service, lately. */
function flow(type, { found, samples, throttles }) {
  const of = found.types.find(row => row.type === type);
  const passing = samples.now(({ requests }) => requests[type]) ?? of?.per_s ?? 0;
  const throttle = throttles.find(row => row.type === type);
  const offered = throttle && throttle.passed > 0 ? passing * throttle.seen / throttle.passed : passing;
  return { type, passing, offered, cost: of?.cost ?? null };
}

/** What `[{ type, action }]` is expected to do. */
export function expected(wanted, page) {
  const types = wanted.map(({ type, action }) => ({ ...flow(type, page), action }));
  const perS = page.samples.now(({ requests }) => Object.values(requests).reduce((sum, value) => sum + (value ?? 0), 0)) ?? page.found.per_s;
  return predict({ now: page.samples.now(({ figure }) => figure), perS, intervalS: page.found.interval_s, types });
}

/** The same in words. */
function words(wanted, page) {
  const { found, detectors } = page;
  if (wanted.some(({ action }) => 'bandwidth' in action)) {
    return [h('p', {}, 'No prediction is made for bandwidth: how many requests come while answers are slower cannot be told. See what happens below.')];
  }
  const effect = expected(wanted, page);
  if (!effect) return [];
  const lines = [];
  if (effect.figure !== null) {
    const detector = detectors.find(({ name }) => name === found.figure);
    const then = detector && levelOf(effect.figure, detector);
    lines.push(h('p', { class: 'headline' }, found.figure, ': ', number(page.samples.now(({ figure }) => figure)), ' → about ',
      h('b', { class: 'big' }, number(effect.figure)), ` (${number(effect.low)} to ${number(effect.high)}) `, then && level(then)));
  }
  const { removed, share } = effect;
  const more = wanted.some(({ type }) => page.throttles.some(throttle => throttle.type === type)) ? ' more than now' : '';
  lines.push(h('p', {}, removed >= 0
    ? `Refuses about ${number(removed)} requests/s${more}, ${part(share)} of all.`
    : `Lets about ${number(-removed)} requests/s pass more than now.`));
  if (effect.without.length) {
    lines.push(h('p', { class: 'note' }, `${effect.without.map(typeName).join(', ')}: cost not known, so ${effect.figure === null ? 'the figure cannot be predicted' : 'not in the prediction'}.`));
  }
  return lines;
}

/** Confirms and applies `[{ type, action }]`. */
async function perform(wanted, page, { duration, why = '' }) {
  const until = duration ? ` for ${DURATIONS.find(([, of]) => of === duration)?.[0] ?? duration}` : ' until it is ended';
  const about = h('div', {},
    h('ul', {}, wanted.map(({ type, action }) => h('li', {}, h('b', {}, typeName(type)), `: ${describe(action)}${until}`))),
    words(wanted, page));
  const reason = await ask({ title: 'Throttle', about, yes: 'Throttle', why });
  if (reason === null) return;
  const effect = expected(wanted, page);
  try {
    const applied = await apply(wanted, { duration: duration || null, why: reason });
    page.onApplied(applied, effect);
  } catch (error) {
    notice(error.message, { isBad: true });
  }
}

/** Two significant digits, for a value to begin with. */
const rounded = value => Number(Math.max(0.1, value).toPrecision(2));

function choice(page) {
  let isRateTyped = false;
  const fields = {
    refuse: h('input', { type: 'number', min: 1, max: 100, step: 1, value: 50, required: true, 'aria-label': 'Share to refuse, in percent' }),
    rate: h('input', { type: 'number', min: 0.1, step: 'any', required: true, 'aria-label': 'Requests per second that pass', input: () => { isRateTyped = true; } }),
    bandwidth: h('input', { type: 'number', min: 1, step: 'any', value: 125, required: true, 'aria-label': 'Kilobytes per second' }),
  };
  const texts = {
    refuse: ['Refuse', '% of their requests'],
    rate: ['Let pass', 'requests/s in all'],
    bandwidth: ['Send', 'kB/s of each type'],
  };
  const radios = Object.fromEntries(Object.keys(fields).map(name => [name,
    h('input', { type: 'radio', name: 'action', value: name, id: `do-${name}`, checked: name === 'refuse', change: () => enable() })]));
  const chosen = () => Object.keys(radios).find(name => radios[name].checked);
  const enable = () => Object.entries(fields).forEach(([name, field]) => { field.disabled = name !== chosen(); });
  enable();
  const rows = Object.entries(texts).map(([name, [before, after]]) =>
    h('div', { class: 'choice' }, radios[name], h('label', { for: `do-${name}`, class: 'plain' }, before), fields[name], h('span', {}, after)));

  /** `[{ type, action }]`, or nothing where what was typed is not a number that is allowed. */
  function wanted() {
    const types = [...page.ticked];
    const name = chosen();
    if (!fields[name].checkValidity()) return [];
    const value = fields[name].valueAsNumber;
    if (name === 'refuse') return types.map(type => ({ type, action: { refuse: value / 100 } }));
    if (name === 'bandwidth') return types.map(type => ({ type, action: { bandwidth: Math.round(1000 * value) } }));
    // The rate of all is divided as they come now.
    const offered = types.map(type => flow(type, page).offered);
    const all = offered.reduce((sum, one) => sum + one, 0);
    return types.map((type, i) => ({ type, action: { rate: Number((value * (all > 0 ? offered[i] / all : 1 / types.length)).toPrecision(3)) } }));
  }

  function suggestRate() {
    if (isRateTyped || document.activeElement === fields.rate || !page.ticked.size) return;
    fields.rate.value = rounded(0.5 * [...page.ticked].reduce((sum, type) => sum + flow(type, page).offered, 0));
  }
  return { element: h('fieldset', {}, h('legend', {}, 'Do what'), rows), wanted, update: suggestRate };
}

/** The card for the ticked types. */
export function action(page) {
  const what = choice(page);
  const duration = h('select', {}, DURATIONS.map(([title, value]) => h('option', { value, selected: value === '10m' }, title)));
  const effect = h('div', { class: 'effect' });
  const button = h('button', {}, 'Throttle');
  const types = h('p', {});
  const form = h('form', {
    submit: event => {
      event.preventDefault();
      const wanted = what.wanted();
      if (wanted.length) perform(wanted, page, { duration: duration.value });
    },
    input: () => update(),
  }, types, what.element, h('div', { class: 'row' }, h('label', {}, 'For how long', duration)), h('h3', {}, 'Predicted effect'), effect, page.mayWrite && button);
  const element = h('section', { class: 'card', 'aria-label': 'Throttle the ticked types' }, h('h2', {}, 'Throttle'), form);

  function update() {
    const count = page.ticked.size;
    what.update();
    write(types, count ? [...page.ticked].map(typeName).join(', ') : 'Tick the types to throttle in the list.');
    write(button, count ? `Throttle ${count} ${count === 1 ? 'type' : 'types'} …` : 'Throttle …');
    button.disabled = count === 0;
    const next = h('div', { class: 'effect' }, count ? words(what.wanted(), page) : h('p', { class: 'note' }, 'Nothing is ticked.'));
    if (!effect.isEqualNode(next)) effect.replaceChildren(...next.childNodes);
  }
  return { element, update };
}

/** Puts a text on the clipboard. Pages without TLS from elsewhere may not: the text is selected then. */
async function copy(pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
    notice('Copied.');
  } catch {
    getSelection().selectAllChildren(pre);
    pre.focus();
    notice('The lines are selected: copy them with the keyboard.');
  }
}

/** What the gate suggests. */
export function suggestion(page) {
  const body = h('div', {});
  const element = h('section', { class: 'card', 'aria-label': 'Suggestion' }, h('h2', {}, 'What the gate suggests'), body);
  let shown = '';

  function show({ why, throttles, toml }) {
    const effect = h('div', { class: 'effect' });
    const lines = h('pre', { tabindex: '0', role: 'region', 'aria-label': 'Configuration lines' }, toml ?? '');
    body.replaceChildren(...h('div', {},
      h('p', {}, why),
      h('ul', {}, throttles.map(({ type, action: what }) => h('li', {}, h('b', {}, typeName(type)), `: ${describe(what)}`))),
      effect,
      h('p', { class: 'row' },
        page.mayWrite && h('button', { type: 'button', click: () => perform(throttles, page, { duration: '10m', why: 'as the gate suggests' }) }, 'Apply the suggestion …'),
        toml && h('button', { type: 'button', class: 'quiet', click: () => copy(lines) }, 'Copy its configuration')),
      toml && h('details', {}, h('summary', {}, 'Its configuration lines'), lines)).childNodes);
  }
  return {
    element,
    update() {
      const { suggestion: now, auto } = page.found;
      element.hidden = !now && !auto?.enabled;
      const next = JSON.stringify([now && { ...now, why: '' }, auto?.enabled]);
      if (next !== shown) {
        shown = next;
        if (now) show(now);
        else body.replaceChildren(h('p', {}, 'Nothing at the moment.'));
        if (auto?.enabled) body.append(h('p', { class: 'note' }, 'Suggestions are applied automatically, within the bounds of [correlate.auto].'));
      }
      const [why, effect] = [body.querySelector('p'), body.querySelector('.effect')];
      if (now) {
        write(why, now.why);
        effect.replaceChildren(...words(now.throttles, page));
      }
    },
  };
}
