// `test` of node:test, for tests that must end: one that hangs is a failure with a name, and those after it still run.
// Node's own --test-timeout limits whole files, and does not say which test of them hung.

import { after, test as unlimited } from 'node:test';
import { PATIENCE_MS } from './browser.mjs';

/** Longer than any test waits for two things one after the other. */
const LIMIT_MS = 3 * PATIENCE_MS;

/** How long a file may take to end after its last test. What a test that hung has left open keeps it from ending by itself. */
const END_MS = 30_000;

export function test(name, options, body) {
  if (!body) [options, body] = [{}, options];
  return unlimited(name, { timeout: LIMIT_MS, ...options }, body);
}

after(() => setTimeout(() => process.exit(), END_MS).unref());
