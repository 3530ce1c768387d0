// What a visitor lives through, against the mock: waiting, getting in, losing the connection, sending a form.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { launch, open, virtualTime } from './browser.mjs';
import { test } from './limited.mjs';
import { start } from './mock.mjs';

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** Runs `body` with a mock and a page; both are closed, and the page must have had no errors. */
async function visit(script, options, body) {
  const mock = await start(script);
  const page = await open(browser, options);
  try {
    await body(page, mock);
    assert.deepEqual(page.faults, []);
  } finally {
    await page.context().close();
    await mock.close();
  }
}

const inside = page => page.getByRole('heading', { name: 'You are in', exact: true }).waitFor();
/** First visit waits, the second is let in. */
const once = options => n => (n === 0 ? options : null);

test('waits, counts down and gets in, with JavaScript', async () => {
  let turn = false;
  const script = {
    page: once({ wait: 30, poll: 0.2, target: '/search?q=1' }),
    status: n => (turn ? { state: 'ready', wait_ms: 0 } : { wait_ms: 29_000 - n, place: Math.max(9, 12 - n) }),
  };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/search?q=1`);
    await page.locator('[data-tg=place]', { hasText: '9' }).waitFor();
    assert.match(await page.title(), /^\d+ seconds · You are in line$/);
    assert.equal(await page.locator('[data-tg=act]').isVisible(), false);
    turn = true;
    await inside(page);
    assert.deepEqual(mock.seen.entered.map(e => e.url), ['/search?q=1']);
    assert.equal(await page.evaluate(() => history.length), 2, 'the waiting page must not stay in the history');
  });
});

test('keeps the fragment of the URL on its way in', async () => {
  await visit({ page: once({ target: '/a', poll: 0.1 }), status: () => ({ state: 'ready' }) }, {}, async (page, mock) => {
    await page.goto(`${mock.url}/a#seats`);
    await inside(page);
    assert.equal(page.url(), `${mock.url}/a#seats`);
  });
});

test('gets in without JavaScript', async () => {
  const script = { page: n => (n < 2 ? { wait: 2 - n, refresh: 1, place: 2 - n, target: '/x' } : null) };
  await visit(script, { javaScriptEnabled: false }, async (page, mock) => {
    await page.goto(`${mock.url}/x`);
    await inside(page);
    assert.equal(mock.seen.pages, 3);
    assert.equal(mock.seen.polls, 0);
  });
});

test('offers a link without JavaScript', async () => {
  await visit({ page: once({ target: '/x' }) }, { javaScriptEnabled: false }, async (page, mock) => {
    await page.goto(`${mock.url}/x`);
    await page.getByRole('link', { name: 'Check now' }).click();
    await inside(page);
  });
});

test('says that the connection is lost, recovers, and gets in', async () => {
  let back = false;
  const script = {
    page: once({ wait: 600, poll: 0.1 }),
    status: () => (back ? { wait_ms: 500_000 } : null),
  };
  await visit(script, {}, async (page, mock) => {
    const pass = await virtualTime(page);
    await page.goto(mock.url);
    for (let i = 0; !(await page.getByText('Connection lost').first().isVisible()); i++) {
      assert.ok(i < 50, 'the loss was never told');
      await pass(1000);
    }
    back = true;
    for (let i = 0; (await page.getByRole('status').textContent()) !== 'Connected again.'; i++) {
      assert.ok(i < 50, 'the recovery was never told');
      await pass(2000);
    }
    assert.equal(await page.locator('[data-tg=note]').isVisible(), false);
  });
});

test('goes to the other host at its turn when this one does not answer, with a form too', async () => {
  for (const form of [undefined, body]) {
    const there = await start({ page: () => null });
    const check = `${there.url}/buy?x=1&tg=ticket`;
    const script = { page: once({ wait: 20, poll: 0.1, check, ...(form && { form }) }), status: () => null };
    try {
      await visit(script, {}, async (page, mock) => {
        const pass = await virtualTime(page);
        await page.goto(mock.url);
        for (let s = 0; s < 15; s++) await pass(1000);
        assert.equal(there.seen.entered.length, 0, 'not before its turn');
        // It leaves the page in the midst of a second.
        for (let s = 0; s < 60 && !there.seen.entered.length; s++) await pass(1000).catch(() => null);
        await inside(page);
        const [{ method, url, body: sent }] = there.seen.entered;
        assert.deepEqual([method, url, sent.toString()], [form ? 'POST' : 'GET', '/buy?x=1&tg=ticket', form ?? '']);
      });
    } finally {
      await there.close();
    }
  }
});

test('a lost connection is asked less and less often', async () => {
  await visit({ page: once({ wait: 3600, poll: 1 }), status: () => null }, {}, async (page, mock) => {
    const pass = await virtualTime(page);
    await page.goto(mock.url);
    for (let s = 0; s < 300; s++) await pass(1000);
    // Without backing off 300; with it about five doublings and then one every 15 to 45 s.
    assert.ok(mock.seen.polls >= 8 && mock.seen.polls <= 40, `${mock.seen.polls} polls in five minutes`);
  });
});

test('asks at once when the visitor comes back to the tab', async () => {
  await visit({ page: once({ wait: 600, poll: 600 }) }, {}, async (page, mock) => {
    await page.goto(mock.url);
    const asked = page.waitForResponse(/status/);
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await asked;
    const again = page.waitForResponse(/status/);
    await page.evaluate(() => dispatchEvent(new Event('online')));
    await again;
    assert.equal(mock.seen.entered.length, 0);
  });
});

test('a place that is gone leads to a new page', async () => {
  for (const state of ['expired', 'redeemed', 'full']) {
    const script = { page: n => ({ poll: 0.1, kind: n ? 'late' : 'waiting' }), status: n => (n ? {} : { state }) };
    await visit(script, {}, async (page, mock) => {
      await page.goto(mock.url);
      await page.getByText('Your turn had passed').waitFor();
      assert.equal(mock.seen.pages, 2, state);
    });
  }
});

test('a client without cookies carries its ticket and takes over a new one', async () => {
  const urls = [];
  const script = {
    page: once({ poll: 0.1, target: '/a?b=c', status: '/.tidegate/status?c=3', ticket: 'old-1' }),
    status: (n, url) => {
      urls.push(url.search);
      return n ? { state: 'ready' } : { ticket: 'new_2' };
    },
  };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/a?b=c`);
    await inside(page);
    assert.deepEqual(urls, ['?c=3&tg=old-1', '?c=3&tg=new_2']);
    assert.equal(mock.seen.entered[0].url, '/a?b=c&tg=new_2');
  });
});

test('a ticket that the cookies make needless leaves the URL, the fragment stays', async () => {
  const script = {
    page: once({ poll: 0.1, target: '/a?b=c', status: '/.tidegate/status?c=3', ticket: 'old-1' }),
    status: n => (n ? { state: 'ready' } : { ticket: '' }),
  };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/a?b=c#seats`);
    await inside(page);
    assert.equal(page.url(), `${mock.url}/a?b=c#seats`);
    assert.equal(mock.seen.entered[0].url, '/a?b=c');
  });
});

test('the wait never grows without a word', async () => {
  const waits = [60_000, 58_000, 60_500, 240_000];
  const script = { page: once({ wait: 60, poll: 1 }), status: n => ({ wait_ms: waits[Math.min(n, 3)], poll_ms: 1000 }) };
  await visit(script, {}, async (page, mock) => {
    const pass = await virtualTime(page);
    await page.goto(mock.url);
    let last = Infinity;
    const note = page.locator('[data-tg=note]');
    for (let i = 0; mock.seen.polls < 4 || !(await note.isVisible()); i++) {
      assert.ok(i < 60, 'the longer wait was never told');
      await pass(500);
      const [value, unit] = (await page.title()).split(' ');
      const seconds = Number(value) * (unit.startsWith('minute') ? 60 : 1);
      if (!(await note.isVisible())) {
        assert.ok(seconds <= last, `went up from ${last} to ${seconds}`);
        last = seconds;
      }
    }
    assert.match(await note.textContent(), /longer than expected/);
    assert.match(await page.title(), /^4 minutes/);
  });
});

const body = 'name=J%C3%BCrgen+%22X%22+%3Cb%3E&note=two%0D%0Alines+%26+more&empty=&submit=1&action=2&same=1&same=2&%E6%97%A5=%27';

test('a kept form arrives once and whole, with JavaScript', async () => {
  const script = { page: once({ form: body, target: '/buy?x=1', poll: 0.1 }), status: n => ({ state: n ? 'ready' : 'waiting' }) };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/buy?x=1`);
    await inside(page);
    assert.equal(mock.seen.entered.length, 1);
    const [{ method, url, type, body: sent }] = mock.seen.entered;
    assert.deepEqual([method, url, type], ['POST', '/buy?x=1', 'application/x-www-form-urlencoded']);
    assert.equal(sent.toString(), body);
  });
});

test('a kept form is not sent twice when several answers say "ready"', async () => {
  const script = { page: once({ form: 'a=1', target: '/buy', poll: 0.1 }), status: () => ({ state: 'ready' }) };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/buy`);
    await page.evaluate(() => { for (let i = 0; i < 5; i++) dispatchEvent(new Event('online')); }).catch(() => {});
    await inside(page);
    assert.equal(mock.seen.entered.length, 1);
  });
});

test('a kept form waits for its button without JavaScript', async () => {
  const script = { page: n => (n < 2 ? { form: body, target: '/buy', refresh: 1 } : null) };
  await visit(script, { javaScriptEnabled: false }, async (page, mock) => {
    await page.goto(`${mock.url}/buy`);
    const shown = page.waitForEvent('framenavigated');
    await page.getByRole('button', { name: 'Send now' }).click();
    await shown;
    assert.equal(mock.seen.pages, 2, 'no reload of its own: it would lose the form');
    await page.getByRole('button', { name: 'Send now' }).click();
    await inside(page);
    assert.equal(mock.seen.entered.length, 1);
    assert.equal(mock.seen.entered[0].body.toString(), body);
  });
});

test('a full room is tried again by itself', async () => {
  const script = { page: n => (n ? null : { kind: 'full', wait: 30, target: '/x' }) };
  await visit(script, {}, async (page, mock) => {
    const pass = await virtualTime(page);
    await page.goto(`${mock.url}/x`);
    await pass(29_000);
    assert.equal(mock.seen.pages, 1);
    // It goes on to another page.
    await page.clock.runFor(6_000);
    await inside(page);
    assert.equal(mock.seen.polls, 0);
  });
});

test('a forged ticket is left behind', async () => {
  const script = { page: once({ kind: 'forbidden', target: '/x', ticket: 'forged' }) };
  await visit(script, {}, async (page, mock) => {
    await page.goto(`${mock.url}/x?tg=forged`);
    await page.getByRole('link', { name: 'Take a new place' }).click();
    await inside(page);
    assert.equal(mock.seen.entered[0].url, '/x');
  });
});

test('hostile targets and titles run nothing', async () => {
  const target = '/"><script>document.title="owned"</script>?a=\'><img src=x onerror=alert(1)>';
  const script = { page: () => ({ target, title: '</title><script>document.title="owned"</script>' }) };
  await visit(script, {}, async (page, mock) => {
    await page.goto(mock.url);
    await page.locator('[data-tg=wait][data-key]').waitFor();
    assert.match(await page.title(), /You are in line · <\/title><script>/);
    assert.equal(await page.locator('img').count(), 0);
  });
});
