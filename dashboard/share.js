// The paper's picture (Porter & Katz, Fig. 2): which part of all traffic is correlated with the bottleneck, and
// which types of requests that part is made of. The table beside it says the same.

import { drawn, h, table } from './dom.js';
import { part as percent } from './format.js';
import { typeName } from './throttles.js';

/** Parts that have a colour of their own. */
const COLOURS = 6;

const swatch = kind => h('span', { class: `swatch ${kind}`, 'aria-hidden': 'true' });

/** The parts of a bar, left to right, as `[share, colour]` of the whole width. `isSaid`: large ones have their share in them. */
function bar(y, height, parts, isSaid = () => true) {
  let from = 0;
  return parts.filter(([share]) => share > 0).map(([share, kind]) => {
    const x = from;
    from += share;
    return [
      drawn('rect', { class: `part ${kind}`, x: `${100 * x}%`, y, width: `${100 * share}%`, height }),
      share >= 0.09 && isSaid(kind) ? drawn('text', { class: `of ${kind}`, x: `${100 * (x + share / 2)}%`, y: y + height / 2, 'text-anchor': 'middle', 'dominant-baseline': 'central' }, percent(share)) : [],
    ];
  }).flat(2);
}

/** Culprits, the largest first; where there are too many for the colours, the last part is all the others. */
function partsOf(types) {
  const culprits = types.filter(({ culprit }) => culprit).sort((a, b) => b.share - a.share);
  const named = culprits.length > COLOURS ? culprits.slice(0, COLOURS - 1) : culprits;
  const others = culprits.slice(named.length);
  const parts = named.map(({ type, share }) => ({ name: typeName(type), share }));
  if (others.length) parts.push({ name: `${others.length} other culprits`, share: others.reduce((sum, { share }) => sum + share, 0) });
  return parts.map((row, i) => ({ ...row, kind: `k${i}` }));
}

function headline(found, correlated) {
  if (correlated > 0) return [h('b', { class: 'big' }, percent(correlated)), ` of all requests load ${found.figure}.`];
  if (found.types.every(({ r }) => r === null)) return [`Not enough data yet to tell what loads ${found.figure}.`];
  return [`No type of request is found to load ${found.figure}.`];
}

export function picture(found) {
  const parts = partsOf(found.types);
  const correlated = parts.reduce((sum, { share }) => sum + share, 0);
  const along = found.types.filter(({ significant, culprit }) => significant && !culprit).reduce((sum, { share }) => sum + share, 0);
  const rest = Math.max(0, 1 - correlated - along);
  const whole = [...parts.map(({ share, kind }) => [share, kind]), [along, 'along'], [rest, 'rest']];
  const label = `All requests: ${percent(correlated)} load ${found.figure}, ${percent(along)} only come along with them, ${percent(rest)} do not. `
    + parts.map(({ name, share }) => `${name}: ${percent(share)}.`).join(' ');
  const svg = drawn('svg', { class: 'share', role: 'img', 'aria-label': label, width: '100%', height: correlated > 0 ? 128 : 44 },
    bar(0, 44, whole, kind => !kind.startsWith('k')));
  if (correlated > 0) {
    svg.append(
      drawn('svg', { y: 44, height: 34, width: '100%', viewBox: '0 0 100 10', preserveAspectRatio: 'none' },
        drawn('polygon', { class: 'zoom', points: `0,0 ${100 * correlated},0 100,10 0,10` })),
      ...bar(78, 50, parts.map(({ share, kind }) => [share / correlated, kind])));
  }
  const rows = [
    ...parts.map(row => ({ ...row, within: row.share / correlated })),
    { name: 'come along only', share: along, kind: 'along', within: null },
    { name: 'not correlated', share: rest, kind: 'rest', within: null },
  ];
  return [
    h('p', { class: 'headline' }, headline(found, correlated)),
    h('div', { class: 'split' }, h('div', {}, svg), table([
      ['Requests', ({ name, kind }) => [swatch(kind), name], 'words'],
      ['Of all', ({ share }) => percent(share), 'number'],
      ['Of the culprits', ({ within }) => within === null ? '' : percent(within), 'number'],
    ], rows, { label: 'Share of the traffic' })),
  ];
}
