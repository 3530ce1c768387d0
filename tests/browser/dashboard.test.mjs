// The operator's dashboard at the admin address, in Chromium, before a real gate.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { request, start, until } from './gate.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PAGES = ['overview', 'room', 'classes', 'rules', 'sessions', 'history'];
const WRITES = 'a-token-that-may-write';
const READS = 'a-token-that-may-read';
const TOKENS = { listen: `admin_token = "${WRITES}"\nadmin_read_token = "${READS}"`, token: WRITES };
const MORE = `
[explain]
header = "id"
[[detector]]
name = "slow"
kind = "response-time"
figure = "p95"
red = 0.8
[[rule]]
name = "nobody"
when = '!has(levels.slow) || levels.slow == "green"'
action = "answer"
status = 503
class = ["refused"]
[[class]]
name = "refused"
match = { path = "/refused/**" }`;

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** A gate, and a page at its admin address. Nothing may be reported on the console but what is expected. */
async function visit(stageOptions, contextOptions, body, expected = []) {
  const stage = await start(stageOptions);
  const page = await open(browser, contextOptions);
  try {
    await page.goto(stage.admin);
    await body(page, stage);
    const isExpected = fault => expected.some(pattern => pattern.test(fault));
    assert.deepEqual(page.faults.filter(fault => !isExpected(fault)), []);
  } finally {
    await page.context().close();
    await stage.close();
  }
}

const tile = (page, name) => page.locator('.tile', { has: page.getByText(name, { exact: true }) }).locator('.value');
const go = (page, name) => page.evaluate(name => { location.hash = name; }, name);
const chip = page => page.locator('#state');
const logIn = async (page, token) => {
  await page.getByLabel(/admin_token/).fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
};

test('the overview follows the gate every second, and the history before it is drawn', async () => {
  await visit({}, {}, async (page, stage) => {
    await chip(page).getByText('Serving').waitFor();
    const pixels = () => page.evaluate(() => [...document.querySelectorAll('canvas')].map(canvas => canvas.width));
    assert.equal((await pixels()).length, 4);
    await stage.fill(5);
    await chip(page).getByText(/visitors wait/i).waitFor();
    await until('the tile shows who waits', async () => Number((await tile(page, 'Waiting').innerText()).replace(/\D/g, '')) > 0);
    // The charts of a page that is opened later begin with what was before.
    await go(page, 'room');
    await page.getByRole('heading', { name: 'Wait of a newcomer' }).waitFor();
    await go(page, 'overview');
    await page.getByRole('heading', { name: 'Traffic' }).waitFor();
  });
});

test('axe finds nothing on any page, light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    await visit({ more: MORE }, { colorScheme, bypassCSP: true, reducedMotion: 'reduce' }, async page => {
      await page.evaluate(axe);
      for (const name of PAGES) {
        await go(page, name);
        await page.locator(`nav a[aria-current][href="#${name}"]`).waitFor();
        await page.locator('main h1').waitFor();
        if (name === 'classes') await page.getByText('queue.max_wait', { exact: true }).waitFor();
        const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
        const { violations } = await page.evaluate(tags => globalThis.axe.run({ runOnly: tags }), tags);
        const found = violations.map(v => `${v.impact} ${v.id}: ${v.nodes.map(n => n.html).join(' ')}`);
        assert.deepEqual(found, [], `${name}, ${colorScheme}`);
      }
    });
  }
});

test('a setting is changed in place, confirmed, undone, and in the audit', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    const value = async () => JSON.parse((await request(`${stage.admin}/v1/tunables/queue.max_wait`)).text).value;
    await go(page, 'classes');
    const before = await value();
    await page.getByLabel('Find').fill('queue.max_wait');
    const input = page.getByLabel(/^queue\.max_wait:/);
    const row = page.locator('tr', { has: input });

    await input.fill('7s');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    assert.equal(await value(), before, 'what is not confirmed is not changed');

    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByLabel(/^Why/).fill('<b>a drill</b>');
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await page.getByText('queue.max_wait is 7s.').waitFor();
    assert.equal(await value(), '7s');
    await page.getByRole('cell', { name: '<b>a drill</b>', exact: true }).waitFor();

    await page.getByRole('button', { name: 'Undo' }).click();
    await until('the old value', async () => await value() === before);

    await input.fill('8s');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await until('the next value', async () => await value() === '8s');
    await row.getByRole('button', { name: 'Back to the file' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await until('the value of the file', async () => await value() === before);

    await input.fill('much');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await page.locator('.notice.bad', { hasText: 'expected' }).waitFor();
    assert.equal(await value(), before, 'a wrong value is refused with what was expected');
  });
});

test('off loopback, or with a token, the operator logs in; who may only read changes nothing', async () => {
  await visit({ ...TOKENS, more: MORE }, {}, async (page, stage) => {
    await logIn(page, 'not the token');
    await page.getByLabel(/admin_token/).waitFor();
    await logIn(page, READS);
    await chip(page).getByText('Serving').waitFor();
    await go(page, 'classes');
    await page.getByText('Your token may read, and not change anything.').waitFor();
    assert.ok(await page.getByLabel(/^queue\.max_wait:/).isDisabled());
    // Nor past the page.
    const status = await page.evaluate(async token => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      return (await fetch('v1/tunables/queue.max_wait', { method: 'PUT', headers, body: '{"value":"7s"}' })).status;
    }, READS);
    assert.equal(status, 403);
    assert.equal((await request(`${stage.admin}/v1/state`)).status, 401, 'no token, no figures');
    assert.equal((await request(`${stage.admin}/`)).status, 200, 'the page itself holds none');
  });
});

test('a gate that dies is noticed, and its return', async () => {
  await visit({}, {}, async (page, stage) => {
    await chip(page).getByText('Serving').waitFor();
    await stage.crash();
    await chip(page).getByText('Connection lost').waitFor();
    await stage.run();
    await chip(page).getByText('Serving').waitFor();
  }, [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/]);
});

test('why a request was refused, with a hostile path, is shown as text', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    const path = '/refused/%3Cimg%20src=x%20onerror=document.title=1%3E';
    const id = await until('the rule refuses', async () => {
      const answer = await request(stage.url + path);
      return /^id=(\w+)/.exec(answer.headers['tidegate-decision'])?.[1];
    });
    await go(page, 'rules');
    await page.getByText('nobody', { exact: true }).first().waitFor();
    await page.getByLabel('Request').fill(id);
    await page.getByRole('button', { name: 'Explain' }).click();
    const why = page.getByRole('region', { name: 'Why it was refused' });
    await why.waitFor();
    assert.match(await why.innerText(), /\/refused\//);
    assert.equal(await page.locator('main img').count(), 0);
    await page.getByLabel('Request').fill('<i>nothing</i>');
    await page.getByRole('button', { name: 'Explain' }).click();
    await page.locator('.note', { hasText: /./ }).last().waitFor();
    assert.equal(await page.locator('main i').count(), 0);
  });
});

test('the history is zoomed by dragging, and exported as CSV and PNG', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    await until('some seconds of history', async () => {
      const { text } = await request(`${stage.admin}/v1/history?metric=goodput&from=-1m&step=1`);
      return JSON.parse(text).rows.filter(([, average]) => average !== null).length >= 2;
    });
    await go(page, 'history');
    await page.getByLabel('Figure').selectOption('goodput');
    await page.getByText('One point is').waitFor();
    await page.getByLabel('Figure').selectOption('detector_level');
    await page.getByText('0: green').waitFor();
    await page.locator('label', { hasText: /^Of/ }).locator('select').selectOption('detector:slow');
    await page.getByLabel('Figure').selectOption('goodput');
    await page.getByText('below 500').waitFor();
    const over = page.locator('.u-over');
    const box = await over.boundingBox();
    const asked = page.waitForRequest(sent => /metric=goodput.*to=\d+/.test(sent.url()));
    await page.mouse.move(box.x + 0.5 * box.width, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 0.9 * box.width, box.y + 50, { steps: 5 });
    await page.mouse.up();
    const { searchParams } = new URL((await asked).url());
    const span = searchParams.get('to') - searchParams.get('from');
    assert.ok(span > 0 && span < 15 * 60, `${span} s`);
    await page.getByRole('button', { name: 'Zoom out' }).click();
    await until('the whole stretch', () => page.getByRole('button', { name: 'Zoom out' }).isDisabled());

    for (const [button, file, begins] of [['CSV', 'goodput.csv', 'at,'], ['PNG', 'goodput.png', '\x89PNG']]) {
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button }).click()]);
      assert.equal(download.suggestedFilename(), file);
      const content = await readFile(await download.path(), 'latin1');
      assert.ok(content.startsWith(begins), content.slice(0, 40));
    }
  });
});

test('the page takes no script, style or frame from elsewhere, and fits a phone', async () => {
  await visit({}, { viewport: { width: 360, height: 740 } }, async (page, stage) => {
    const { headers } = await request(`${stage.admin}/`);
    assert.match(headers['content-security-policy'], /default-src 'none'; script-src 'self'; style-src 'self'/);
    assert.match(headers['content-security-policy'], /frame-ancestors 'none'/);
    for (const name of PAGES) {
      await go(page, name);
      await page.locator(`nav a[aria-current][href="#${name}"]`).waitFor();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name} sticks out by ${wide} px`);
    }
  });
});
