// Everybody can use the page: axe-core, narrow screens, reduced motion, screen readers, languages.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before } from 'node:test';
import { launch, open, virtualTime } from './browser.mjs';
import { test } from './limited.mjs';
import { start } from './mock.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const languages = ['en', 'de', 'fr', 'es', 'hi', 'zh', 'ar'];
let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

async function visit(options, context, body, status) {
  const mock = await start({ page: () => options, status: status ?? (() => ({ wait_ms: (options.wait ?? 240) * 1e3, place: 1240 })) });
  const page = await open(browser, context);
  try {
    await body(page, mock);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
    await mock.close();
  }
}

test('axe finds nothing against WCAG 2.2 AA, in any kind, light, dark and right to left', async () => {
  const kinds = ['waiting', 'full', 'replaced', 'unavailable', 'forbidden'];
  const cases = ['light', 'dark'].flatMap(colorScheme => [
    ...kinds.map(kind => ({ colorScheme, options: { kind, title: 'Fjordline' } })),
    { colorScheme, options: { lang: 'ar' } },
    { colorScheme, options: { form: 'a=1', kind: 'late', lang: 'de' } },
  ]);
  for (const { colorScheme, options } of cases) {
    // The page's policy forbids the injected checker; what it checks is the same without.
    await visit(options, { colorScheme, bypassCSP: true, reducedMotion: 'reduce' }, async (page, mock) => {
      await page.goto(mock.url);
      await page.evaluate(axe);
      const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
      const { violations, passes } = await page.evaluate(tags => globalThis.axe.run({ runOnly: tags }), tags);
      assert.ok(passes.length > 10, 'the checker did not run');
      const found = violations.map(v => `${v.impact} ${v.id}: ${v.nodes.map(n => n.html).join(' ')}`);
      assert.deepEqual(found, [], JSON.stringify({ colorScheme, options }));
    });
  }
});

test('axe would find what is wrong', async () => {
  await visit({}, { bypassCSP: true }, async (page, mock) => {
    await page.goto(mock.url);
    await page.evaluate(axe);
    await page.evaluate(() => { document.querySelector('h1').style.color = '#eee'; });
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    assert.ok(violations.some(v => v.id === 'color-contrast' && v.impact === 'serious'));
  });
});

test('nothing sticks out on a screen 320 px wide, and with text twice as large', async () => {
  for (const lang of languages) {
    for (const options of [{ kind: 'waiting' }, { kind: 'late', form: 'a=1' }, { kind: 'full' }, { kind: 'forbidden' }]) {
      await visit({ lang, ...options, place: 1234567, title: 'Donaudampfschifffahrtsgesellschaft' }, { viewport: { width: 320, height: 568 } }, async (page, mock) => {
        await page.goto(mock.url);
        for (const size of ['100%', '200%']) {
          await page.evaluate(size => { document.documentElement.style.fontSize = size; }, size);
          const width = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(width <= 320, `${lang} ${JSON.stringify(options)} at ${size}: ${width} px`);
        }
      });
    }
  }
});

test('nothing moves for those who asked for stillness', async () => {
  const moving = page => page.evaluate(() => document.getAnimations().length);
  await visit({}, { reducedMotion: 'reduce' }, async (page, mock) => {
    await page.goto(mock.url);
    assert.equal(await moving(page), 0);
  });
  await visit({}, { reducedMotion: 'no-preference' }, async (page, mock) => {
    await page.goto(mock.url);
    assert.ok((await moving(page)) > 0, 'and for the others it does');
  });
});

test('a screen reader hears a few words in five minutes', async () => {
  const began = Date.now();
  let elapsed = 0;
  const status = () => ({ wait_ms: Math.max(0, 300_000 - elapsed), place: 300 - Math.floor(elapsed / 1000), poll_ms: 5000 });
  await visit({ wait: 300, waited: 0, poll: 5 }, {}, async (page, mock) => {
    const pass = await virtualTime(page, began);
    await page.goto(mock.url);
    await page.evaluate(() => {
      globalThis.heard = [];
      const region = document.querySelector('[role=status]');
      new MutationObserver(() => globalThis.heard.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true });
    });
    for (; elapsed < 299_000; elapsed += 1000) await pass(1000);
    const heard = await page.evaluate(() => globalThis.heard.filter(Boolean));
    assert.deepEqual(heard, [
      'Expected wait: 3 minutes.',
      'Expected wait: 2 minutes.',
      'Expected wait: 60 seconds.',
      'Expected wait: 30 seconds.',
      'You are next.',
    ]);
    const live = await page.locator('[aria-live], [role=status], [role=alert], [role=timer]').count();
    assert.equal(live, 1, 'nothing else on the page is live');
  }, status);
});

test('the script says durations and numbers as the server does, in every language', async () => {
  const plain = text => text.replace(/\s/g, ' ');
  const read = async (page, url) => {
    await page.goto(url);
    const texts = ['title', '.wait', '[data-tg=waited]'].map(s => page.locator(s).first().textContent());
    return (await Promise.all(texts)).map(plain);
  };
  const mock = await start({
    page: (n, request) => ({ ...Object.fromEntries(new URL(request.url, 'http://mock').searchParams), poll: 600 }),
  });
  const server = await open(browser, { javaScriptEnabled: false });
  const script = await open(browser);
  // Stopped, so that a slow machine does not count down between drawing and reading.
  await script.clock.install();
  await script.clock.pauseAt(Date.now() + 1000);
  for (const lang of languages) {
    for (const seconds of [1, 2, 7, 42, 90, 240, 660, 5400, 7200]) {
      const url = `${mock.url}/?lang=${lang}&wait=${seconds}&waited=${seconds}`;
      assert.deepEqual(await read(script, url), await read(server, url), `${lang} ${seconds} s`);
    }
  }
  await Promise.all([server.context().close(), script.context().close()]);
  await mock.close();
});

test('the language and its direction are declared', async () => {
  const table = { 'de-AT,en;q=0.5': ['de', 'ltr'], 'ar-EG': ['ar', 'rtl'], 'zh-CN': ['zh-Hans', 'ltr'], 'nl': ['en', 'ltr'] };
  for (const [lang, expected] of Object.entries(table)) {
    await visit({ lang }, {}, async (page, mock) => {
      await page.goto(mock.url);
      assert.deepEqual(await page.evaluate(() => [document.documentElement.lang, document.documentElement.dir]), expected);
    });
  }
});

test('the way on is reached by keyboard and shows its focus', async () => {
  await visit({ kind: 'forbidden' }, {}, async (page, mock) => {
    await page.goto(mock.url);
    await page.keyboard.press('Tab');
    const focus = await page.evaluate(() => [document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]);
    assert.deepEqual(focus, ['A', 'solid']);
  });
});

test('no request leaves the page but for its status', async () => {
  await visit({ title: 'x', poll: 0.1 }, {}, async (page, mock) => {
    const urls = [];
    page.on('request', request => urls.push(new URL(request.url()).pathname));
    await page.goto(mock.url);
    await page.waitForResponse(/status/);
    assert.deepEqual([...new Set(urls)].sort(), ['/', '/.tidegate/status']);
  });
});
