// The browser of these tests: Debian's Chromium, told not to talk to anybody but us.

import { chromium } from 'playwright-core';

const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const launch = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: flags });

/** A page in a fresh profile; every console error and page error is collected in `page.faults`. */
export async function open(browser, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', error => page.faults.push(String(error)));
  page.on('console', message => {
    // The waiting page itself is a 503, which Chromium reports as a failed resource.
    const expected = /Failed to load resource/.test(message.text());
    if (message.type() === 'error' && !expected) page.faults.push(message.text());
  });
  return page;
}
