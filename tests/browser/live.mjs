// The same visits against a running gate: TIDEGATE_URL=http://127.0.0.1:8080 npm run live
//
// The gate must be slow enough to make its visitors wait: each test first sends TIDEGATE_CROWD (default 30) visitors
// without cookies ahead, e.g. onto a capacity of 5 per second. The origin's answers must hold TIDEGATE_INSIDE (default
// "You are in"), and for a POST the body it received, as text. TIDEGATE_PATH (default /) is asked for, TIDEGATE_FORM
// (default the same) receives the form.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { launch, open } from './browser.mjs';
import { test } from './limited.mjs';

const { TIDEGATE_URL: url, TIDEGATE_PATH: path = '/', TIDEGATE_FORM: formPath = path } = process.env;
const { TIDEGATE_INSIDE: inside = 'You are in', TIDEGATE_CROWD: crowd = '30' } = process.env;
if (!url) throw new Error('expected TIDEGATE_URL, the address of a running gate');

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

const fill = () => {
  const headers = { accept: 'text/html', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
  return Promise.all(Array.from({ length: Number(crowd) }, () => fetch(url + path, { headers }).then(r => r.text())));
};
const waiting = page => page.locator('[data-kind=waiting]').waitFor();
const enter = page => page.getByText(inside, { exact: true }).first().waitFor({ timeout: 60_000 });

async function visit(options, body) {
  await fill();
  const page = await open(browser, options);
  try {
    await body(page);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
  }
}

test('waits and gets in, with JavaScript', () => visit({}, async page => {
  await page.goto(url + path);
  await waiting(page);
  await enter(page);
}));

test('waits and gets in, without JavaScript', () => visit({ javaScriptEnabled: false }, async page => {
  await page.goto(url + path);
  await waiting(page);
  await enter(page);
}));

test('a second tab shares the place', () => visit({}, async page => {
  await page.goto(url + path);
  await waiting(page);
  const due = async p => Number(await p.locator('main').getAttribute('data-wait'));
  const first = await due(page);
  const second = await page.context().newPage();
  await second.goto(url + path);
  if (await second.locator('[data-kind=waiting]').count()) assert.ok((await due(second)) <= first);
  await enter(page);
}));

test('a form arrives once and whole', () => visit({}, async page => {
  const mark = `m${Date.now()}`;
  await page.setContent(`<form method=post action="${url + formPath}"><textarea name=note>&#10;a "b"\n<c> & é ${mark}</textarea><button>Go</button></form>`);
  await page.getByRole('button').click();
  await waiting(page);
  await page.getByText(mark).first().waitFor({ timeout: 60_000 });
  const text = await page.locator('body').innerText();
  assert.ok(text.includes(`note=a+%22b%22%0D%0A%3Cc%3E+%26+%C3%A9+${mark}`), text);
}));
