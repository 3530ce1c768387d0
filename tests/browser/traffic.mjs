// Traffic with a cause: two types of searches load the database, and all others do not.

import { setTimeout as pause } from 'node:timers/promises';
import { request } from './gate.mjs';

/** Lines of the configuration: the load of the database, as told by the traffic, and a class for one of the types. */
export const BOTTLENECK = `
[[detector]]
name = "db_cpu"
kind = "signal"
orange = 0.5
red = 0.8
[[class]]
name = "search"
match = { path = "/search/category" }`;

/** Load that one request a second puts on the database. */
const LOAD = { '/search/category': 0.04, '/search/region': 0.03 };
/** Tenths of a second over which the load is counted. */
const COUNTED = 10;

/** Requests in each tenth of a second: those that come in waves, between the two numbers, and those that do not. */
const WAVES = { '/search/category': [0, 2], '/search/region': [0, 1.2] };
const OTHERS = { '/item/4711': 2, '/bids/81': 0.8, '/browse/regions': 0.6, '/': 0.7, '/about': 0.2 };

const whole = mean => Math.floor(mean) + (Math.random() < mean % 1 ? 1 : 0);

/**
 * Lets it come until `end()` of what is returned. The database's load follows the requests that reach the service, so that it falls when
 * they are throttled. While `isSteady`, every wave stays high.
 */
export async function traffic(stage) {
  await stage.open(1000);
  const flow = { isSteady: false };
  let isOver = false;
  let counted = 0;
  const lately = Array(COUNTED).fill(0);
  const say = async () => {
    const { seen } = stage.origin;
    lately.push(seen.slice(counted).reduce((sum, { url }) => sum + (LOAD[url] ?? 0), 0));
    counted = seen.length;
    lately.shift();
    const value = Math.min(1, 0.05 + lately.reduce((sum, load) => sum + load));
    await request(`${stage.admin}/v1/signals/db_cpu`, { method: 'PUT', body: JSON.stringify({ value }) });
  };
  const waves = Object.entries(WAVES).map(([path, heights]) => ({ path, heights, left: 0, isHigh: false }));
  const come = async () => {
    // By the clock: where beats came late on a busy machine, all types would rise and fall together.
    for (let due = performance.now(); !isOver; due += 100) {
      await pause(Math.max(0, due - performance.now()));
      const paths = Object.entries(OTHERS).flatMap(([path, mean]) => Array(whole(2 * mean * Math.random())).fill(path));
      for (const wave of waves) {
        if (wave.left-- <= 0) Object.assign(wave, { isHigh: !wave.isHigh, left: 15 + Math.floor(25 * Math.random()) });
        paths.push(...Array(whole(wave.heights[flow.isSteady || wave.isHigh ? 1 : 0] * (0.8 + 0.4 * Math.random()))).fill(wave.path));
      }
      for (const path of paths) request(stage.url + path).catch(() => {});
      await say().catch(() => {});
    }
  };
  const coming = come();
  flow.end = async () => {
    isOver = true;
    await coming;
  };
  return flow;
}
