// What the kernel does with connections before the gate accepts them (Voigt et al.): rules for SYNs, the agent,
// the order of accepts, and TCP services.

import { get, patch, put, remove } from './api.js';
import { ask } from './dialog.js';
import { h, liveTable, notice, write } from './dom.js';
import { bytes, number, percent } from './format.js';
import { charts, tiles } from './overview.js';

const POLL_MS = 1000;

const path = name => `v1/kernel/rules/${encodeURIComponent(name)}`;
const perSecond = rate => rate === null ? 'no limit' : `${number(rate)}/s`;
const port = of => of === 0 ? '*' : String(of);
const fail = error => notice(error.message, { isBad: true });

const TILES = [
  ['SYNs', 'per second', k => number(k.totals.syns_per_s), k => `${number(k.totals.syns)} since the start`],
  ['Passed', 'per second', k => number(k.totals.passed_per_s), k => `${number(k.totals.passed)} by a rule`],
  ['Refused', 'per second', k => number(k.totals.refused_per_s), k => `${number(k.totals.refused)} dropped or reset`],
  ['No rule', 'SYNs', k => number(k.totals.unmatched), () => 'they pass'],
];

const CHARTS = [['SYNs that rules are about', 'SYNs/s', [
  { name: 'passed', colour: '--s3', metric: 'syns_passed', of: k => k.mechanism === null ? null : k.totals.passed_per_s },
  { name: 'refused', colour: '--s5', metric: 'syns_refused', of: k => k.mechanism === null ? null : k.totals.refused_per_s },
]]];

const REASONS = [
  ['Rule', ({ rule }) => h('b', {}, rule), 'words'],
  ['Asked for', row => `${number(row.demand_per_s)}/s`, 'number'],
  ['Passed', row => `${number(row.passed_per_s)}/s`, 'number'],
  ['Served', row => percent(row.served), 'number'],
  ['Why', ({ why }) => why, 'words'],
];

const SERVICES = [
  ['Service', ({ name }) => h('b', {}, name), 'words'],
  ['Listens at', ({ listen }) => listen],
  ['Relayed to', ({ to }) => to],
  ['Open', ({ open }) => number(open), 'number'],
  ['Accepted', ({ accepted }) => number(accepted), 'number'],
  ['Refused', ({ refused }) => number(refused), 'number'],
  ['Failed', ({ failed }) => number(failed), 'number'],
  ['In', row => bytes(row.bytes_in), 'number'],
  ['Out', row => bytes(row.bytes_out), 'number'],
];

const PRIORITIES = [
  ['Priority', ({ priority }) => String(priority)],
  ['Accepted', ({ accepted }) => number(accepted), 'number'],
  ['Waiting', ({ waiting }) => number(waiting), 'number'],
];

/** How it is, in one sentence. */
function summary({ attached, policing, error }) {
  if (attached.length) return `SYNs are policed at ${attached.map(to => `${to.interface} (${to.mode})`).join(', ')}.`;
  if (policing === 'off') return 'SYNs are not policed: kernel.policing is "off".';
  return error ? 'SYNs are not policed, and the gate runs without.' : 'SYNs are not policed: there is no rule. Nothing is attached to the kernel.';
}

/** Which SYNs a rule is about. */
const about = rule => [
  h('div', {}, `from ${rule.src}, port ${port(rule.sport)}`),
  h('div', {}, `to ${rule.dst}, port ${port(rule.dport)}`),
];

const whose = rule => [rule.set_by === 'agent' ? 'agent' : rule.made ? 'API' : 'file', rule.by && h('div', { class: 'note' }, rule.why ? `${rule.by}: ${rule.why}` : rule.by)];

/** What is put to have a rule again. */
const again = ({ src, sport, dst, dport, configured_rate: rate, burst, priority, excess, preferred, min_rate: least }) =>
  ({ src, sport, dst, dport, rate, burst, priority, excess, preferred, min_rate: least });

function ruleTable(shared, load) {
  const changed = (name, rate) => `${name} lets ${rate === null || rate === 0 ? 'all SYNs' : `${number(rate)} SYNs/s`} pass.`;

  async function setRate(name, before, rate) {
    const why = await ask({
      title: 'Change a rate', yes: 'Change',
      about: h('p', {}, h('b', {}, name), `: ${perSecond(before)} → ${perSecond(rate === 0 ? null : rate)}`),
    });
    if (why === null) return false;
    const undo = () => patch(path(name), { rate: before ?? 0, why: `undone: ${why}`.slice(0, 200) }).then(load, fail);
    try {
      await patch(path(name), { rate, why });
      notice(changed(name, rate), { action: { name: 'Undo', run: undo } });
    } catch (error) {
      fail(error);
    }
    await load();
    return true;
  }

  async function takeAway(rule) {
    const why = await ask({ title: 'Remove a rule', yes: 'Remove', about: h('p', {}, h('b', {}, rule.name)) });
    if (why === null) return;
    const undo = () => put(path(rule.name), { ...again(rule), why: `undone: ${why}`.slice(0, 200) }).then(load, fail);
    await remove(path(rule.name), { why }).then(() => notice(`${rule.name} is removed.`, { action: { name: 'Undo', run: undo } }), fail);
    await load();
  }

  /** The rate as configured. What is typed stays until it is applied, whatever the figures do. */
  function editor(rule) {
    const { name } = rule();
    const input = h('input', { type: 'number', min: '0', step: 'any', size: '8', placeholder: 'no limit', 'aria-label': `Rate of ${name}, SYNs per second; empty: no limit` });
    const shown = () => rule().configured_rate ?? '';
    input.value = shown();
    input.disabled = !shared.mayWrite;
    return h('form', {
      class: 'row',
      submit: async event => {
        event.preventDefault();
        if (await setRate(name, rule().configured_rate, Number(input.value))) input.value = shown();
      },
    }, input, h('button', { type: 'submit', disabled: !shared.mayWrite }, 'Apply'));
  }

  return liveTable([
    ['Rule', ({ name, preferred }) => [h('b', {}, name), preferred && h('div', { class: 'note' }, 'preferred')], 'words'],
    ['SYNs', about],
    ['In force', rule => [perSecond(rule.rate), h('div', { class: 'note' }, rule.rate === null ? '' : `${number(rule.burst)} at once, then ${rule.excess}`)]],
    ['Rate', editor, '', 'kept'],
    ['Priority', ({ priority }) => String(priority), 'number'],
    ['Seen', ({ seen }) => number(seen), 'number'],
    ['Passed', ({ passed }) => number(passed), 'number'],
    ['Refused', ({ dropped, reset }) => number(dropped + reset), 'number'],
    ['Slowed', ({ slowed }) => number(slowed), 'number'],
    ['Set by', whose, 'words'],
    ...shared.mayWrite ? [['', rule => rule().made && h('button', { type: 'button', class: 'quiet', click: () => takeAway(rule()) }, 'Remove'), '', 'kept']] : [],
  ], { label: 'Rules for SYNs', key: ({ name, made }) => `${made} ${name}`, empty: 'There is no rule for SYNs.' });
}

const card = (title, ...content) => h('section', { class: 'card', 'aria-label': title }, h('h2', {}, title), content);

export function kernel(main, shared) {
  let isLoading = false;
  let isClosed = false;
  const how = h('p', {});
  const trouble = h('p', { class: 'alarm', role: 'status', hidden: true });
  const notes = h('ul', { class: 'note' });
  const rules = ruleTable(shared, () => load());
  const averages = h('p', {});
  const reasons = liveTable(REASONS, { label: 'What the agent makes of each rule', key: ({ rule }) => rule, empty: 'It has decided nothing yet.' });
  const order = h('p', { class: 'note' });
  const accepted = liveTable(PRIORITIES, { label: 'Accepted connections by priority', key: ({ priority }) => priority });
  const services = liveTable(SERVICES, { label: 'TCP services', key: ({ name }) => name, empty: 'There is none ([[tcp]]).' });
  const body = h('div', { hidden: true });
  main.append(card('In the kernel', how, trouble, notes), body);
  const updateTiles = tiles(body, TILES);
  const agent = card('The agent', averages, reasons.element);
  const shown = charts(body, CHARTS);
  body.append(card('Rules for SYNs', rules.element), agent, card('Accepted by priority', order, accepted.element), card('TCP services', services.element));
  if (!shared.mayWrite) body.append(h('p', { class: 'note' }, 'Your token may read, and not change anything.'));

  function showAgent({ enabled, overloaded, averages: of, limit_per_s: limit, bound }) {
    const said = !enabled ? 'Off: rates are as configured (kernel.adapt).' : [
      overloaded ? 'More connections are asked for than fit.' : 'All connections that are asked for fit.',
      `Asked for: ${number(of.demand_per_s)}/s. Accepted: ${number(of.accepted_per_s)}/s.`,
      `Requests per connection: ${number(of.requests_per_connection)}. CPU: ${percent(of.cpu)}.`,
      `What fits: ${limit === null ? 'not known' : `${number(limit)}/s (by the ${bound})`}.`,
    ].join(' ');
    write(averages, said);
    reasons.element.hidden = !enabled;
  }

  function show(found) {
    body.hidden = false;
    write(how, summary(found));
    write(trouble, found.error ?? '');
    trouble.hidden = !found.error;
    const next = h('ul', {}, found.notes.map(note => h('li', {}, note)));
    if (next.textContent !== notes.textContent) notes.replaceChildren(...next.childNodes);
    updateTiles(found);
    shown.forEach(chart => chart.push(found));
    rules.update(found.rules);
    showAgent(found.agent);
    reasons.update(found.agent.reasons);
    const { count, ordered, accepted: counts, waiting } = found.priorities;
    write(order, count === 1 ? 'There is one priority: connections are accepted in the order in which they come.'
      : ordered ? 'The kernel queues connections by priority; 0 is accepted first.' : 'The kernel does not order connections: they are accepted as they come.');
    accepted.update(counts.map((accepted, priority) => ({ accepted, priority, waiting: waiting[priority] })));
    services.update(found.tcp);
  }

  async function load() {
    if (isLoading || isClosed) return;
    isLoading = true;
    const found = await get('v1/kernel').catch(error => {
      // That the connection is lost is said at the top of the page.
      if (error.status) write(how, error.message);
      return null;
    });
    isLoading = false;
    if (found && !isClosed) show(found);
  }
  load();
  const timer = setInterval(load, POLL_MS);
  return {
    close() {
      isClosed = true;
      clearInterval(timer);
      shown.forEach(chart => chart.close());
    },
  };
}
