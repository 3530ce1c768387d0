// Throttles: what they are called, how they are applied, undone and ended, and those in force.

import { get, post, remove } from './api.js';
import { h, liveTable, notice } from './dom.js';
import { bytes, number, percent, seconds } from './format.js';

/** A type of requests as people read it. */
export function typeName(type) {
  if (type === 'other') return 'all other requests';
  return type.startsWith('class:') ? `class ${type.slice(6)}` : type.replace(/^path:/, '');
}

export function describe(action) {
  if ('refuse' in action) return `refuse ${percent(action.refuse)}`;
  if ('rate' in action) return `at most ${number(action.rate)} requests/s`;
  if ('bandwidth' in action) return `at most ${bytes(action.bandwidth)}/s`;
  return JSON.stringify(action);
}

/**
 * Applies `[{ type, action }]`, for `duration` (`null`: until it is ended). Returns those applied, each with the
 * throttle it replaced: `[{ throttle, replaced }]`. When one is refused, those before it are taken back.
 */
export async function apply(wanted, { duration, why }) {
  const { throttles: inForce } = await get('v1/throttles');
  const done = [];
  try {
    for (const { type, action } of wanted) {
      const replaced = inForce.find(throttle => throttle.type === type) ?? null;
      done.push({ throttle: await post('v1/throttles', { type, action, for: duration, why }), replaced });
    }
  } catch (error) {
    await undo(done).catch(() => {});
    throw error;
  }
  return done;
}

const gone = error => {
  if (error.status !== 404) throw error;
};

/** Takes back what was applied: a throttle that was replaced is in force again, for the rest of its time. */
export async function undo(applied) {
  for (const { throttle, replaced } of applied) {
    const left = replaced?.until_ms === null ? null : Math.floor(((replaced?.until_ms ?? 0) - Date.now()) / 1000);
    if (replaced && (left === null || left > 0)) {
      const { type, action, why } = replaced;
      await post('v1/throttles', { type, action, for: left === null ? null : `${left}s`, why: `undone: ${why}`.slice(0, 200) });
    } else await remove(`v1/throttles/${throttle.id}`, { why: 'undone' }).catch(gone);
  }
}

const endOne = id => remove(`v1/throttles/${id}`, { why: 'ended on the dashboard' });

/** Ends those of the throttles that are still in force. */
export const end = async ids => {
  for (const id of ids) await endOne(id).catch(gone);
};

const left = ({ until_ms: until }, now) => until === null ? 'ended by hand' : `${seconds(Math.max(0, Math.ceil((until - now) / 1000)))} left`;

/** The throttles in force, with what they did. */
export function throttlesInForce(shared) {
  let now = Date.now();
  const finish = async ({ id, type }) => {
    const name = typeName(type);
    try {
      await endOne(id);
      notice(`${name} is not throttled any more.`);
    } catch (error) {
      // The row may be a second old. A throttle that replaced this one stays in force.
      const isGone = error.status === 404;
      const text = isGone ? `This throttle of ${name} had already ended or been replaced. The list shows what is in force.` : error.message;
      notice(text, { isBad: true });
    }
  };
  const list = liveTable([
    ['Requests', ({ type }) => h('b', {}, typeName(type)), 'words'],
    ['Throttle', ({ action, shadow }) => [describe(action), shadow && h('div', { class: 'note' }, 'shadow: counted only')]],
    ['Came', ({ seen }) => number(seen), 'number'],
    ['Passed', ({ passed }) => number(passed), 'number'],
    ['Refused', ({ refused }) => number(refused), 'number'],
    ['Sent', ({ action, bytes: sent }) => 'bandwidth' in action ? bytes(sent) : '–', 'number'],
    ['For', throttle => left(throttle, now)],
    ['By', ({ by }) => by, 'words'],
    ['Why', ({ why }) => why ?? '', 'words'],
    ...shared.mayWrite ? [['', get => h('button', { type: 'button', class: 'quiet', click: () => finish(get()) }, 'End'), '', 'kept']] : [],
  ], { label: 'Throttles', key: ({ id }) => id, empty: 'Nothing is throttled.' });
  const element = h('section', { class: 'card', 'aria-label': 'Throttles in force' }, h('h2', {}, 'Throttles in force'), list.element);
  return {
    element,
    update(state) {
      now = state.at_ms;
      list.update(state.throttles ?? []);
    },
  };
}
