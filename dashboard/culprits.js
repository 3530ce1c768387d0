// Which requests load the bottleneck, and what to do about them (Porter & Katz, sections III-C and III-D).

import { get } from './api.js';
import { action, suggestion } from './action.js';
import { costs } from './costs.js';
import { h, write } from './dom.js';
import { effect } from './effect.js';
import { number, percent } from './format.js';
import { hold } from './hold.js';
import { level } from './level.js';
import { tiles } from './overview.js';
import { Samples } from './samples.js';
import { picture } from './share.js';
import { talkers } from './talkers.js';
import { throttlesInForce } from './throttles.js';

const POLL_MS = 1000;
/** Intervals that are asked for when the page is opened, and afterwards: some answers may fail to come. */
const [BEGIN, LATELY] = [300, 10];

const current = found => found.figures.find(({ name }) => name === found.figure);

const TILES = [
  ['Bottleneck', '', found => number(current(found)?.value), found => found.figure],
  ['Correlated', 'of all requests', found => percent(found.correlated_share), found => `${found.types.filter(({ culprit }) => culprit).length} culprits`],
  ['To the service', 'requests/s', found => number(found.per_s), found => `${found.types.length} types`],
  ['Seen', 'intervals', found => number(found.intervals), found => `of ${number(found.interval_s)} s each`],
];

/** The choice of a figure. Its entries stay, so that the list can be open while figures change. */
function chooser(onChoice) {
  const select = h('select', { change: () => onChoice(select.value) });
  const chip = h('span', {});
  return {
    element: h('div', { class: 'row' }, h('label', {}, 'Bottleneck', select), chip),
    update(found) {
      const names = found.figures.map(({ name }) => name);
      if (names.join('\n') !== [...select.options].map(({ value }) => value).join('\n')) {
        select.replaceChildren(...names.map(name => h('option', { value: name })));
      }
      found.figures.forEach(({ name, level: of }, i) => write(select.options[i], of ? `${name} (${of})` : name));
      if (document.activeElement !== select) select.value = found.figure;
      const of = current(found)?.level;
      const next = h('span', {}, of && level(of));
      if (!chip.isEqualNode(next)) chip.replaceChildren(...next.childNodes);
    },
  };
}

export function culprits(main, shared, asked) {
  /** What the parts of the page share. */
  const page = {
    mayWrite: shared.mayWrite, ticked: new Set(), samples: new Samples(), found: null, throttles: [], detectors: [],
    refresh: () => load(), now: () => page.found?.at_ms ?? Date.now(), onApplied: (...of) => effects.applied(...of),
  };
  let figure = asked.get('figure');
  let isLoading = false;
  let isClosed = false;

  const trouble = h('p', { class: 'note' });
  const choose = chooser(name => {
    figure = name;
    history.replaceState(null, '', `#culprits?figure=${encodeURIComponent(name)}`);
    load();
  });
  const shown = h('section', { class: 'card', 'aria-label': 'Share of the traffic' });
  const list = talkers(page.ticked, () => refreshChoice());
  const [acting, suggesting, holding, effects, pricing, inForce] = [action(page), suggestion(page), hold(page), effect(page), costs(page), throttlesInForce(shared)];
  const body = h('div', { hidden: true });
  main.append(trouble, body);
  body.append(choose.element);
  const updateTiles = tiles(body, TILES);
  body.append(shown, effects.element,
    h('div', { class: 'desk' },
      h('div', {}, list.element),
      h('div', {}, suggesting.element, acting.element, holding.element),
      h('div', {}, inForce.element, pricing.element)));
  if (!page.mayWrite) body.append(h('p', { class: 'note' }, 'Your token may read, and not change anything.'));

  const refreshChoice = () => [acting, holding].forEach(part => part.update());

  function show(found) {
    body.hidden = false;
    page.found = found;
    page.samples.take(found);
    choose.update(found);
    updateTiles(found);
    const next = h('div', {}, picture(found));
    if (!shown.firstChild?.isEqualNode(next)) shown.replaceChildren(next);
    list.update(found);
    [acting, suggesting, holding, effects, pricing].forEach(part => part.update());
  }

  async function load() {
    if (isLoading || isClosed) return;
    isLoading = true;
    const wanted = figure;
    const query = new URLSearchParams({ ...wanted && { figure: wanted }, recent: page.samples.figure === wanted ? LATELY : BEGIN });
    const found = await get(`v1/correlation?${query}`).catch(error => {
      // That the connection is lost is said at the top of the page.
      if (error.status) write(trouble, error.message);
      return null;
    });
    isLoading = false;
    if (isClosed) return;
    if (figure !== wanted) {
      load();
      return;
    }
    if (!found) return;
    // What the gate chose stays shown until the operator chooses another.
    figure = found.figure;
    write(trouble, '');
    show(found);
  }
  load();
  const timer = setInterval(load, POLL_MS);
  return {
    update(state) {
      page.throttles = state.throttles ?? [];
      page.detectors = state.detectors;
      [list, effects].forEach(part => part.state(state));
      inForce.update(state);
    },
    close() {
      isClosed = true;
      clearInterval(timer);
      effects.close();
    },
  };
}
