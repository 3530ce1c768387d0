// The browser of these tests: Debian's Chromium, told not to talk to anybody but us.

import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';

/** What a slow machine may take for anything that must happen. */
export const PATIENCE_MS = 120_000;

const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const options = { executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: flags };

export const launch = () => chromium.launch(options);

/** A context of a browser whose user has forbidden all cookies in its settings. */
export async function launchWithoutCookies() {
  const profile = await mkdtemp(join(tmpdir(), 'tidegate-profile-'));
  await mkdir(join(profile, 'Default'));
  const block = { profile: { default_content_setting_values: { cookies: 2 } } };
  await writeFile(join(profile, 'Default', 'Preferences'), JSON.stringify(block));
  const context = await chromium.launchPersistentContext(profile, options);
  context.on('close', () => rm(profile, { recursive: true, force: true, maxRetries: 10 }));
  return context;
}

/** A page in a fresh profile; every console error and page error is collected in `page.faults`. */
export async function open(browser, options = {}) {
  const context = await browser.newContext(options);
  return watch(await context.newPage());
}

/** Collects the errors of a page in `page.faults`. */
export function watch(page) {
  page.setDefaultTimeout(PATIENCE_MS);
  page.faults = [];
  page.on('pageerror', error => page.faults.push(String(error)));
  page.on('console', message => {
    // The waiting page itself is a 503, which Chromium reports as a failed resource.
    const expected = /Failed to load resource/.test(message.text());
    if (message.type() === 'error' && !expected) page.faults.push(message.text());
  });
  return page;
}

/**
 * Stops the clock of a page that has not been opened yet. Returns what lets `ms` of its time pass: when that resolves, all it has asked
 * meanwhile is answered and the answers are taken in, so that nothing depends on how fast the machine is.
 */
export async function virtualTime(page, time = Date.now()) {
  const asked = new Set();
  page.on('request', request => asked.add(request));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, request => asked.delete(request));
  await page.clock.install({ time });
  // It may not be stopped in its past, and runs until then.
  await page.clock.pauseAt(time + 3_600_000);
  const settled = () => page.evaluate(() => new Promise(resolve => { const c = new MessageChannel(); c.port1.onmessage = () => { c.port1.close(); resolve(); }; c.port2.postMessage(0); }));
  const ended = request => request.response().catch(() => {}).then(response => response?.finished());
  return async ms => {
    await page.clock.runFor(ms);
    await settled();
    const end = performance.now() + PATIENCE_MS;
    while (asked.size) {
      const left = end - performance.now();
      assert.ok(left > 0, `not answered: ${[...asked].map(request => request.url()).join(' ')}`);
      await Promise.race([...[...asked].map(ended), pause(left, null, { ref: false })]);
      await settled();
    }
  };
}
