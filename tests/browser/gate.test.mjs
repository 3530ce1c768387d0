// What a visitor lives through in front of the real gate: a service, the `tidegate` binary, a crowd, Chromium.
//
// TIDEGATE_BIN names the binary (default: target/release/tidegate). Every test has a gate of its own; they mostly
// wait, so several run at once. A gate is held, so that its visitors are seen waiting, until the test opens it.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, describe } from 'node:test';
import { launch, launchWithoutCookies, open, watch } from './browser.mjs';
import { request, start, until } from './gate.mjs';
import { test } from './limited.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

const waiting = page => page.locator('[data-kind=waiting]').waitFor();
const inside = page => page.getByRole('heading', { name: 'You are in', exact: true }).waitFor();
const number = async (page, name) => Number((await page.locator(`[data-tg=${name}]`).textContent()).replace(/\D/g, ''));
const ticketOf = async page => (await page.context().cookies()).find(({ name }) => name === 'tg0')?.value;

/** The page asks how things stand now, as when its tab is looked at again: far from its turn it asks every twenty seconds. */
const ask = page => page.evaluate(() => { dispatchEvent(new Event('online')); }).catch(error => {
  // It goes on at this very moment, of its own accord.
  assert.match(String(error), /navigation/);
});

/** Runs `body` with a gate of these settings and a page; afterwards the page must have had no errors. */
async function visit(settings, options, body) {
  const gate = await start(settings);
  const page = await open(browser, options);
  try {
    await body(page, gate);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
    await gate.close();
  }
}

/** The page that was let in is whole: its style sheet, its picture, its script and what that fetched. */
async function whole(page) {
  await page.getByText('data came').waitFor();
  const [color, width] = await page.evaluate(() => [
    getComputedStyle(document.querySelector('h1')).color,
    document.querySelector('img').naturalWidth,
  ]);
  assert.deepEqual([color, width], ['rgb(1, 2, 3)', 7]);
}

/** No request that reached the service shows a ticket or a cookie of the gate's. */
function unseen(origin) {
  for (const { url, headers } of origin.seen) {
    assert.doesNotMatch(`${url} ${headers.referer ?? ''}`, /tg=/);
    assert.doesNotMatch(headers.cookie ?? '', /\btg(id|p|\d)/);
  }
}

describe('in front of the real gate', { concurrency: 2 }, () => {
  test('waits, counts down and gets in, and the page is whole', () => visit({}, {}, async (page, gate) => {
    await gate.fill(60);
    const path = '/search?q=a%20b&r=%C3%A9#seats';
    assert.equal((await page.goto(gate.url + path)).status(), 503);
    await waiting(page);
    const first = await page.title();
    await until('the countdown moves', async () => (await page.title()) !== first);
    // Those who come after keep the room full: the parts of the page need its pass.
    await gate.settle();
    await gate.open();
    await inside(page);
    assert.equal(page.url(), gate.url + path);
    await whole(page);
    assert.deepEqual(gate.origin.pages().map(p => p.url), ['/search?q=a%20b&r=%C3%A9']);
    unseen(gate.origin);
  }));

  test('waits and gets in without JavaScript', () => visit({}, { javaScriptEnabled: false }, async (page, gate) => {
    await gate.fill(20);
    await page.goto(`${gate.url}/search?q=1`);
    await waiting(page);
    await gate.open();
    await inside(page);
    assert.equal(page.url(), `${gate.url}/search?q=1`);
    assert.deepEqual(gate.origin.pages().map(p => p.url), ['/search?q=1']);
    unseen(gate.origin);
  }));

  test('a browser that keeps no cookies carries its ticket, and a used one gives a new place', async () => {
    const gate = await start();
    const context = await launchWithoutCookies();
    try {
      const page = watch(await context.newPage());
      await gate.fill(30);
      await page.goto(`${gate.url}/search?q=1`);
      await waiting(page);
      await gate.open();
      await inside(page);
      assert.deepEqual(await context.cookies(), []);
      const used = page.url();
      assert.match(used, /\/search\?q=1&tg=/);
      assert.deepEqual(gate.origin.pages().map(p => p.url), ['/search?q=1']);

      await gate.hold();
      await gate.fill(30);
      await page.goto('about:blank');
      const again = await page.goto(used);
      assert.equal(again.status(), 409);
      await page.getByText('has been used').waitFor();
      await gate.open();
      await inside(page);
      assert.notEqual(page.url(), used);
      await page.goBack();
      unseen(gate.origin);
      assert.deepEqual(page.faults, []);
    } finally {
      await context.close();
      await gate.close();
    }
  });

  const fields = [
    ['name', 'Jürgen "X" <b>&amp;'], ['note', '\n two\nlines & more \n\n'], ['empty', ''], ['same', '1'], ['same', '2'], ['日本', 'مرحبا 🌊 \''],
    ['submit', '1'], ['action', '+%2B%'], ['long', 'ä1 '.repeat(40 * 128)],
  ];
  const form = (action, fields) => {
    const form = Object.assign(document.createElement('form'), { method: 'post', action });
    for (const [name, value] of fields) {
      const area = Object.assign(document.createElement('textarea'), { name, value });
      form.append(area);
    }
    // A button without a name adds nothing to what is sent.
    form.append(Object.assign(document.createElement('button'), { textContent: 'Go' }));
    document.body.replaceChildren(form);
  };
  const encoded = fields.map(pair => pair.map(text => text.replaceAll('\n', '\r\n')))
    .map(pair => new URLSearchParams([pair]).toString()).join('&');

  for (const javaScriptEnabled of [true, false]) {
    test(`a form arrives once and whole, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, () =>
      visit({}, {}, async (page, gate) => {
        await page.goto(`${gate.url}/`);
        // Its script has written what it fetched, before the form replaces all of it.
        await whole(page);
        // Playwright's script-less pages cannot be filled by a script: there the page is told to run none from here on.
        await page.evaluate(([action, fields, form]) => new Function(`return ${form}`)()(action, fields), [`${gate.url}/echo?x=1`, fields, String(form)]);
        if (!javaScriptEnabled) {
          const session = await page.context().newCDPSession(page);
          await session.send('Emulation.setScriptExecutionDisabled', { value: true });
        }
        await gate.fill(30);
        await page.getByRole('button', { name: 'Go' }).click();
        await waiting(page);
        await gate.open();
        const received = page.getByText('received');
        if (!javaScriptEnabled) {
          await until('the form is taken', async () => {
            const shown = page.waitForEvent('framenavigated');
            await page.getByRole('button', { name: 'Send now' }).click();
            await shown;
            return received.count();
          }, 500);
        }
        await received.waitFor();
        const posts = gate.origin.seen.filter(({ method }) => method === 'POST');
        assert.equal(posts.length, 1);
        const [{ url, headers, body }] = posts;
        assert.deepEqual([url, headers['content-type'], headers.origin], ['/echo?x=1', 'application/x-www-form-urlencoded', gate.url]);
        assert.ok(body.length > 40 * 1024);
        assert.equal(body.toString(), encoded);
        assert.equal(page.url(), `${gate.url}/echo?x=1`);
        unseen(gate.origin);
      }));
  }

  test('a gate that is killed and comes back keeps the place', () => visit({}, {}, async (page, gate) => {
    const answers = [];
    page.on('response', async response => {
      if (response.url().includes('/.tidegate/status')) answers.push(await response.json().catch(() => ({})));
    });
    await gate.fill(600);
    await page.goto(`${gate.url}/search`);
    await waiting(page);
    const ticket = await ticketOf(page);
    await ask(page);
    await until('the page asked', () => answers.length > 0);
    await gate.crash();
    const lost = page.locator('[data-tg=note]', { hasText: 'Connection lost' });
    await until('the loss is told', async () => (await lost.isVisible()) || ask(page), 1000);
    const { place } = answers.at(-1);
    const before = answers.length;
    await gate.run();
    await until('the page is back', async () => (await page.locator('[data-tg=note]').isHidden()) || ask(page), 1000);
    await until('the page asked again', () => answers.length > before);
    assert.equal(answers[before].state, 'waiting');
    // Who was admitted since the last save, a second ago at most, is ahead once more.
    assert.ok(answers[before].place <= place + 1, `${answers[before].place} ahead, ${place} before`);
    assert.equal(await ticketOf(page), ticket);
    await gate.open(100);
    await ask(page);
    await inside(page);
    assert.deepEqual(gate.origin.pages().map(p => p.url), ['/search']);
  }));

  test('a reload and a second tab keep the place', () => visit({}, {}, async (page, gate) => {
    await gate.fill(60);
    await page.goto(`${gate.url}/search`);
    await waiting(page);
    const [ticket, place] = [await ticketOf(page), await number(page, 'place')];
    // A hundred and more come after.
    await gate.fill(1200);
    await page.reload();
    await waiting(page);
    assert.ok((await number(page, 'place')) <= place);
    const second = watch(await page.context().newPage());
    await second.goto(`${gate.url}/search`);
    await waiting(second);
    assert.ok((await number(second, 'place')) <= place);
    assert.equal(await ticketOf(page), ticket);
    // The one place lets one tab in; the other gets a new one, behind the hundred.
    await gate.open(1);
    await Promise.any([inside(page), inside(second)]);
    assert.equal(gate.origin.pages().length, 1);
    await gate.open(100);
    await Promise.all([inside(page), inside(second)]);
    assert.deepEqual(second.faults, []);
  }));

  test('a forged cookie is refused, a reload heals', () => visit({}, {}, async (page, gate) => {
    await gate.fill(60);
    await page.goto(`${gate.url}/search`);
    await waiting(page);
    const ticket = await ticketOf(page);
    const middle = ticket.length >> 1;
    const value = ticket.slice(0, middle) + (ticket[middle] === 'A' ? 'B' : 'A') + ticket.slice(middle + 1);
    await page.goto('about:blank');
    await page.context().addCookies([{ name: 'tg0', value, url: gate.url }]);
    assert.equal((await page.goto(`${gate.url}/search`)).status(), 403);
    await page.locator('[data-kind=forbidden]').waitFor();
    assert.equal(await ticketOf(page), undefined);
    assert.equal((await page.reload()).status(), 503);
    await waiting(page);
    await gate.open();
    await inside(page);
  }));

  test('a full room says so and lets in later', () => visit({ room: 'max_wait = "60s"' }, {}, async (page, gate) => {
    await until('the room is full', async () => {
      const answers = await Promise.all(Array.from({ length: 5 }, () => request(`${gate.url}/crowd`)));
      return answers.some(({ text }) => text.includes('problem:full'));
    });
    const answer = await page.goto(`${gate.url}/search`);
    assert.equal(answer.status(), 503);
    await page.locator('[data-kind=full]').waitFor();
    assert.equal(await ticketOf(page), undefined);
    // As it was sent: the page counts down.
    assert.match(await answer.text(), /<b>\d+<\/b> (second|minute)/);
    await gate.open();
    await until('a reload finds room', async () => (await page.reload()).status() === 200 || page.locator('[data-kind=waiting]').count());
    await inside(page);
  }));

  test('an outage is told, and over when the service is back', () => visit({}, {}, async (page, gate) => {
    await gate.fill(600);
    await page.goto(`${gate.url}/search`);
    await waiting(page);
    const ticket = await ticketOf(page);
    await gate.origin.down();
    const told = page.locator('[data-tg=note]', { hasText: 'not answering' });
    await until('the outage is told', async () => (await told.isVisible()) || ask(page), 1000);
    assert.equal((await page.reload()).status(), 503);
    await page.locator('[data-kind=unavailable]').waitFor();
    const newcomer = await open(browser);
    await newcomer.goto(`${gate.url}/other`);
    await newcomer.locator('[data-kind=unavailable]').waitFor();
    await gate.origin.up();
    assert.equal(await ticketOf(page), ticket);
    await gate.open(100);
    await Promise.all([ask(page), ask(newcomer)]);
    await Promise.all([inside(page), inside(newcomer)]);
    assert.deepEqual(newcomer.faults, []);
    await newcomer.context().close();
  }));

  test('a session waits once', () => visit({ room: 'unit = "session"' }, {}, async (page, gate) => {
    await gate.fill(60);
    await page.goto(`${gate.url}/page/0`);
    await waiting(page);
    await gate.settle();
    await gate.open();
    await inside(page);
    await whole(page);
    await gate.hold();
    await gate.fill(300);
    for (let i = 1; i <= 5; i++) {
      assert.equal((await page.goto(`${gate.url}/page/${i}`)).status(), 200);
      await whole(page);
    }
    unseen(gate.origin);
  }));

  test("the operator's template and logo", async () => {
    const logo = await readFile(new URL('./logo.svg', import.meta.url), 'utf8');
    const template = `<!doctype html><html lang="{{lang}}" dir="{{dir}}"><meta charset="utf-8"><title>{{wait_text}} · Ours</title>
{{refresh}}<style>h1{color:rgb(4,5,6)}</style>{{logo}}<h1>Our own words</h1>
<main {{data}}><p data-tg="wait">{{wait}}</p>{{form}}<p role="status" data-tg="say"></p></main>{{script}}`;
    const room = 'logo = "logo.svg"\ntitle = "Fjordline"\ntemplate = "page.html"';
    await visit({ room, files: { 'logo.svg': logo, 'page.html': template } }, {}, async (page, gate) => {
      await gate.fill(60);
      await page.goto(`${gate.url}/search`);
      await page.getByRole('heading', { name: 'Our own words' }).waitFor();
      const shown = await page.evaluate(() => [
        getComputedStyle(document.querySelector('h1')).color,
        document.querySelector('img').naturalWidth > 0,
        document.querySelector('img').alt,
      ]);
      assert.deepEqual(shown, ['rgb(4, 5, 6)', true, 'Fjordline']);
      await gate.open();
      await inside(page);
    });
  });

  test('axe finds nothing, and Arabic reads from right to left', () =>
    visit({ room: 'title = "Fjordline"' }, { locale: 'ar-EG', bypassCSP: true, reducedMotion: 'reduce' }, async (page, gate) => {
      await gate.fill(60);
      await page.goto(`${gate.url}/search`);
      await waiting(page);
      assert.deepEqual(await page.evaluate(() => [document.documentElement.lang, getComputedStyle(document.body).direction]), ['ar', 'rtl']);
      await page.evaluate(axe);
      const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
      assert.ok(passes.length > 10, 'the checker did not run');
      assert.deepEqual(violations.map(v => `${v.impact} ${v.id}`), []);
    }));
});
