// What was seen of a figure and of each type's requests, interval by interval.

/** Intervals that are kept. */
const KEPT = 300;
/** Seconds over which what is now is averaged: single seconds vary too much to predict from. */
const NOW_S = 30;

export class Samples {
  constructor() {
    this.figure = null;
    this.all = [];
  }

  /** Takes an answer of `/v1/correlation`. Another figure begins anew. */
  take(found) {
    if (found.figure !== this.figure) Object.assign(this, { figure: found.figure, all: [] });
    for (const sample of intervals(found)) this.add(sample, found.interval_s);
  }

  add(sample, step) {
    const last = this.all.at(-1);
    // The same interval may be dated some milliseconds apart.
    if (last && sample.at <= last.at + step / 2) return;
    this.all.push(sample);
    if (this.all.length > KEPT) this.all.splice(0, this.all.length - KEPT);
  }

  /** The mean of `of(sample)` over samples after `from` until `to`; `null`: there is none. */
  mean(of, from, to = Infinity) {
    const values = this.all.filter(({ at }) => at > from && at <= to).map(of).filter(value => value !== null && value !== undefined);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  }

  /** The mean over the last seconds. */
  now(of) {
    return this.mean(of, (this.all.at(-1)?.at ?? 0) - NOW_S);
  }
}

/** The last intervals, the oldest first. */
function intervals({ recent = [], types, at_ms: until, interval_s: step }) {
  return recent.map((figure, i) => {
    const back = recent.length - 1 - i;
    const requests = types.map(({ type, recent: of = [] }) => [type, of[of.length - 1 - back] ?? null]);
    return { at: until / 1000 - back * step, figure, requests: Object.fromEntries(requests) };
  });
}
