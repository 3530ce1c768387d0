// What an action on types of requests will do to a figure, from what one request of each costs.

/** Requests/s that reach the service under an action, of those that come; `null`: it cannot be told. */
function passing(action, offered) {
  if ('refuse' in action) return offered * (1 - action.refuse);
  if ('rate' in action) return Math.min(offered, action.rate);
  return null;
}

/**
 * `now`: the figure. `perS`: requests/s of all types. `types`: `[{ type, action, passing, offered, cost }]`: what
 * reaches the service now, what comes, and `{ per_request, low, high }` or `null`. Returns what will be: the
 * requests/s that are `removed`, their `share` of all, the `figure` from `low` to `high`, and the types
 * `without` a cost, whose effect is not in it. `null`: no prediction can be made.
 */
export function predict({ now, perS, intervalS, types }) {
  const effects = types.map(({ type, action, passing: today, offered, cost }) => {
    const then = passing(action, offered);
    return { type, cost, removed: then === null ? null : today - then };
  });
  if (effects.length === 0 || effects.some(({ removed }) => removed === null)) return null;
  const removed = effects.reduce((sum, effect) => sum + effect.removed, 0);
  const share = perS > 0 ? removed / perS : null;
  const known = effects.filter(({ cost }) => cost);
  const without = effects.filter(({ cost }) => !cost).map(({ type }) => type);
  if (now === null || known.length === 0) return { removed, share, figure: null, low: null, high: null, without };
  const less = of => known.reduce((sum, { cost, removed }) => sum + of(cost, removed) * removed * intervalS, 0);
  // A figure that is not negative now will not become so.
  const at = fall => now >= 0 ? Math.max(0, now - fall) : now - fall;
  return {
    removed, share, without,
    figure: at(less(cost => cost.per_request)),
    low: at(less((cost, removed) => removed > 0 ? cost.high : cost.low)),
    high: at(less((cost, removed) => removed > 0 ? cost.low : cost.high)),
  };
}

/** The level that a figure would have for a detector; `null`: it has no thresholds. */
export function levelOf(figure, { orange, red }) {
  if (figure === null || red === null || red === undefined) return null;
  // Where red is below orange, lower is worse.
  const isWorse = threshold => threshold !== null && threshold !== undefined
    && (orange !== null && orange !== undefined && red < orange ? figure <= threshold : figure >= threshold);
  if (isWorse(red)) return 'red';
  return isWorse(orange) ? 'orange' : 'green';
}
