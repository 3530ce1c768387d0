// The operator's dashboard at the admin address, in Chromium, before a real gate.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import { after, before } from 'node:test';
import { launch, open, virtualTime } from './browser.mjs';
import { request, start, until } from './gate.mjs';
import { test } from './limited.mjs';
import { BOTTLENECK, traffic } from './traffic.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PAGES = ['overview', 'room', 'classes', 'culprits', 'rules', 'sessions', 'kernel', 'history'];
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
match = { path = "/refused/**" }
[kernel]
policing = "off"
priorities = 1
[[syn_rule]]
name = "crowd"
dport = 80
rate = 300`;

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
    // An answer that a route still waits for is of no use.
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().close();
    await stage.close();
  }
}

/** An answer of /v1/correlation with something of everything, and the throttle that is in force then. */
function imitated(at, intervals = 300) {
  const type = (type, r, p, perS, cost, more) => ({
    type, kind: type.split(':')[0], name: type.split(':')[1] ?? 'other', r, p, n: 300, lag: 1, significant: false, culprit: false,
    share: perS / 100, per_s: perS, last_per_s: perS, cost: cost && { per_request: cost, low: 0.9 * cost, high: 1.1 * cost }, throttle: null,
    recent: Array.from({ length: intervals }, (_, i) => perS + (at + i) % 5), ...more,
  });
  const throttle = { id: 1, type: 'path:/search', action: { refuse: 0.5 }, since_ms: 1000 * (at - 30), until_ms: null, by: 'x', why: '', shadow: false, seen: 9, passed: 5, refused: 4, bytes: 2000 };
  const toml = '[[rule]]\nname = "culprits"\n';
  const found = {
    at_ms: 1000 * at, figure: 'slow', figures: [{ name: 'slow', kind: 'detector', value: 0.9, level: 'red', intervals: 300 }, { name: 'in_flight', kind: 'gate', value: 3, level: null, intervals: 300 }],
    interval_s: 1, intervals: 300, alpha: 0.05, false_discovery: true, max_lag: 2, per_s: 100, correlated_share: 0.2,
    recent: Array.from({ length: intervals }, (_, i) => 0.9 - 0.01 * ((at + i) % 7)),
    types: [
      type('path:/search', 0.57, 0, 12, 0.01, { significant: true, culprit: true, throttle: 1 }), type('class:refused', 0.31, 0.003, 8, 0.02, { significant: true, culprit: true }),
      type('path:/along', 0.22, 0.01, 20, 0, { significant: true }), type(`path:/${at % 50}`, null, null, 30, null), type('other', -0.1, 0.7, 30, 0),
    ],
    suggestion: { keep: 0.4, why: 'it is red', throttles: [{ type: 'class:refused', action: { rate: 3 } }], toml },
    confirmation: { type: 'path:/search', keep: 0.5, phase: 'done', figure: 'slow', before: 0.9, during: 0.5, after: 0.9, verdict: 'confirmed', began_ms: 0, ends_ms: 1 },
    costs: [{ class: 'refused', configured: 1, measured: 5.2, low: 4.8, high: 5.6 }], auto: { enabled: true },
  };
  return { found, throttle };
}

/** An answer of /v1/kernel with something of everything. */
function imitatedKernel(at) {
  const rule = (name, more) => ({
    name, src: '*', sport: 0, dst: '*', dport: 80, rate: 40, burst: 5, priority: 1, excess: 'drop', preferred: false, min_rate: 1,
    configured_rate: 300, set_by: 'file', made: false, by: null, why: '', seen: 900, passed: 700, dropped: 190, reset: 10, slowed: 0, ...more,
  });
  return {
    at_ms: 1000 * at, mechanism: 'xdp-native', attached: [{ interface: 'eth0', mode: 'xdp-native' }], notes: ['policed since noon'], error: 'connections have no order: <b>why</b>', policing: 'auto',
    priorities: { count: 2, ordered: true, accepted: [120, 4000], waiting: [0, 37] },
    totals: { syns: 1000 + at, unmatched: 7, passed: 700, refused: 200, syns_per_s: 50, passed_per_s: 40, refused_per_s: 10 },
    rules: [rule('crowd', { set_by: 'agent' }), rule('friends', { src: '10.0.0.0/8', rate: null, configured_rate: null, preferred: true, set_by: 'api', made: true, by: 'ops@127.0.0.1', why: 'they pay' })],
    agent: {
      enabled: true, overloaded: true, limit_per_s: 45, bound: 'cpu',
      averages: { cpu: 0.97, accepted_per_s: 44, demand_per_s: 80, unmatched_per_s: 0, requests_per_connection: 2.5 },
      reasons: [{ rule: 'crowd', demand_per_s: 70, passed_per_s: 40, served: 0.571, why: 'squeezed to its share' }],
    },
    tcp: [{ name: 'redis', listen: '0.0.0.0:6379', to: '127.0.0.1:6380', open: 3, accepted: 90, refused: 1, failed: 2, bytes_in: 5000, bytes_out: 70_000 }],
  };
}

/** The page of culprits and that of the kernel show the imitation instead of what the gate has found. */
async function imitate(page, stage, headers) {
  const at = Math.floor(Date.now() / 1000);
  const { found, throttle } = imitated(at);
  const state = { ...JSON.parse((await request(`${stage.admin}/v1/state`, { headers })).text), throttles: [throttle] };
  await page.route(/v1\/correlation/, route => route.request().method() === 'GET' ? route.fulfill({ json: found }) : route.fallback());
  await page.route(/v1\/kernel$/, route => route.fulfill({ json: imitatedKernel(at) }));
  await page.route(/v1\/events/, route => route.fulfill({ contentType: 'text/event-stream', body: `event: state\ndata: ${JSON.stringify(state)}\n\n` }));
  await page.reload();
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
    await visit({ more: MORE }, { colorScheme, bypassCSP: true, reducedMotion: 'reduce' }, async (page, stage) => {
      await imitate(page, stage);
      await page.evaluate(axe);
      for (const name of PAGES) {
        await go(page, name);
        await page.locator(`nav a[aria-current][href="#${name}"]`).waitFor();
        await page.locator('main h1').waitFor();
        if (name === 'classes') await page.getByText('queue.max_wait', { exact: true }).waitFor();
        if (name === 'kernel') await page.getByText('squeezed to its share').waitFor();
        if (name === 'culprits') {
          await page.getByLabel('Tick /along').check();
          await page.getByRole('heading', { name: 'Before and after' }).waitFor();
          await page.getByText('Its configuration lines').click();
        }
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
    // The table is drawn anew after each change: only then is the field the one that is typed into.
    const isShown = async () => await input.inputValue() === before;
    await until('the old value on the page', isShown);

    await input.fill('8s');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await until('the next value', async () => await value() === '8s');
    await row.getByRole('button', { name: 'Back to the file' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await until('the value of the file', async () => await value() === before);
    await until('the value of the file on the page', isShown);

    await input.fill('much');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await page.locator('.notice.bad', { hasText: 'expected' }).waitFor();
    assert.equal(await value(), before, 'a wrong value is refused with what was expected');
  });
});

test('the page of the kernel shows rules and reasons; a rate is changed in place, confirmed and undone', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    const rate = async () => JSON.parse((await request(`${stage.admin}/v1/tunables/syn_rule.crowd.rate`)).text).value;
    await go(page, 'kernel');
    // This gate must not police, and says so.
    await page.getByText('SYNs are not policed: kernel.policing is "off".').waitFor();
    const input = page.getByLabel('Rate of crowd');
    const row = page.locator('tr', { has: input });
    assert.equal(await input.inputValue(), '300');

    await input.fill('250');
    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    assert.equal(await rate(), 300, 'what is not confirmed is not changed');
    assert.equal(await input.inputValue(), '250', 'what was typed stays');

    await row.getByRole('button', { name: 'Apply' }).click();
    await page.getByLabel(/^Why/).fill('a drill');
    await page.getByRole('button', { name: 'Change', exact: true }).click();
    await page.getByText('crowd lets 250 SYNs/s pass.').waitFor();
    assert.equal(await rate(), 250);
    await row.getByText('250/s').waitFor();
    const { changes } = JSON.parse((await request(`${stage.admin}/v1/audit`)).text);
    assert.deepEqual([changes[0].key, changes[0].new, changes[0].why], ['syn_rule.crowd.rate', 250, 'a drill']);

    await page.getByRole('button', { name: 'Undo' }).click();
    await until('the old rate', async () => await rate() === 300);
    await row.getByText('300/s').waitFor();

    await input.fill('-1');
    await row.getByRole('button', { name: 'Apply' }).click();
    assert.equal(await page.locator('dialog').count(), 0, 'the browser refuses it');

    await imitate(page, stage);
    await page.getByText('SYNs are policed at eth0 (xdp-native).').waitFor();
    await page.getByText('connections have no order: <b>why</b>').waitFor();
    const cells = name => page.locator('tr', { has: page.locator('b', { hasText: name }) }).first().innerText();
    assert.match(await cells('crowd'), /40\/s[^]*200[^]*agent/);
    assert.match(await cells('friends'), /from 10\.0\.0\.0\/8[^]*no limit[^]*API[^]*they pay/);
    await page.getByText('More connections are asked for than fit.').waitFor();
    await page.getByRole('cell', { name: 'squeezed to its share' }).waitFor();
    await page.getByRole('cell', { name: '127.0.0.1:6380' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Remove' }).count(), 1, 'rules of the file are not removed here');
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
    // Culprits are shown, with nothing to press.
    await imitate(page, stage, { authorization: `Bearer ${READS}` });
    await go(page, 'culprits');
    await page.getByLabel('Tick /search').check();
    await page.getByText(/^Lets|^Refuses/).first().waitFor();
    const buttons = await page.locator('main button:visible, main [type=submit]:visible').allInnerTexts();
    assert.deepEqual(buttons, ['Copy its configuration']);
    const writes = [
      ['POST', 'v1/throttles', { type: 'path:/', action: { refuse: 1 } }], ['DELETE', 'v1/throttles/1'],
    ['PUT', 'v1/kernel/rules/drill', { rate: 1 }], ['PATCH', 'v1/kernel/rules/crowd', { rate: 1 }], ['DELETE', 'v1/kernel/rules/crowd'],
      ['POST', 'v1/correlation/confirmation', { type: 'path:/', keep: 0.5, for: '5s' }], ['DELETE', 'v1/correlation/confirmation'],
      ['PUT', 'v1/tunables/class.refused.cost', { value: 5 }],
    ];
    for (const [method, path, body] of writes) {
      const sent = { method, headers: { authorization: `Bearer ${READS}` }, body: body && JSON.stringify(body) };
      assert.equal((await request(`${stage.admin}/${path}`, sent)).status, 403, `${method} ${path}`);
    }
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

    // A throttle is a reason as well.
    const wanted = { type: 'path:/held', action: { refuse: 1 } };
    assert.equal((await request(`${stage.admin}/v1/throttles`, { method: 'POST', body: JSON.stringify(wanted) })).status, 201);
    await stage.open(1000);
    const held = await until('the throttle refuses', async () => {
      const answer = await request(`${stage.url}/held`);
      const id = /^id=(\w+)/.exec(answer.headers['tidegate-decision'])?.[1];
      return id && JSON.parse((await request(`${stage.admin}/v1/explain/${id}`)).text).by === 'throttle' && id;
    });
    await page.getByLabel('Request').fill(held);
    await page.getByRole('button', { name: 'Explain' }).click();
    await why.getByRole('cell', { name: /^\/held \(throttle \d+\)$/ }).waitFor();
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
    // The chart is replaced when its figure has come, and has no box meanwhile.
    let box;
    await until('the chart is there', async () => { box = await page.locator('.u-over').boundingBox(); return box !== null; });
    const drag = async () => {
      await page.mouse.move(box.x + 0.5 * box.width, box.y + 50);
      await page.mouse.down();
      await page.mouse.move(box.x + 0.9 * box.width, box.y + 50, { steps: 5 });
      await page.mouse.up();
    };
    const [asked] = await Promise.all([page.waitForRequest(sent => /metric=goodput.*to=\d+/.test(sent.url())), drag()]);
    const { searchParams } = new URL(asked.url());
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
    await imitate(page, stage);
    for (const name of PAGES) {
      await go(page, name);
      await page.locator(`nav a[aria-current][href="#${name}"]`).waitFor();
      if (name === 'culprits') await page.getByRole('heading', { name: 'Before and after' }).waitFor();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${name} sticks out by ${wide} px`);
    }
  });
});

test('the page of culprits', async t => {
  await visit({ more: BOTTLENECK }, { permissions: ['clipboard-read', 'clipboard-write'] }, async (page, stage) => {
    const flow = await traffic(stage);
    const read = async path => JSON.parse((await request(`${stage.admin}/${path}`)).text);
    const throttles = async () => (await read('v1/throttles')).throttles;
    const card = name => page.locator(`section[aria-label="${name}"]`);
    const row = page.locator('tr', { has: page.getByLabel('Tick class search') });
    const confirm = async (why = '') => {
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel(/^Why/).fill(why);
      await dialog.getByRole('button', { name: 'Throttle', exact: true }).click();
    };
    try {
      await t.test('is where a red detector leads, and names the type that loads it', async () => {
        await page.locator('section[aria-label="Red"] a').click();
        await row.getByText('culprit', { exact: true }).waitFor();
        assert.equal(await page.getByLabel('Bottleneck').inputValue(), 'db_cpu');
        const innocent = page.locator('tr', { has: page.getByLabel(/^Tick .item/) });
        await until('the others are none', async () => await innocent.count() === 1 && await innocent.getByText('culprit', { exact: true }).count() === 0);
        await page.locator('svg.share[aria-label*="class search: "]').waitFor();
        await page.locator('.scroll[aria-label="Share of the traffic"]').getByText('class search').waitFor();
      });

      await t.test('predicts, applies what is confirmed, compares before and after, and takes it back', async () => {
        await page.getByLabel('Tick class search').check();
        await page.getByLabel('Share to refuse, in percent').fill('90');
        const effect = card('Throttle the ticked types').locator('.effect');
        await effect.getByText(/^Refuses about [\d.]+ requests\/s, [\d.]+ % of all\.$/).waitFor();
        assert.match(await effect.innerText(), /db_cpu: [\d.]+ → about [\d.]+ \([\d.]+ to [\d.]+\)/);
        const apply = card('Throttle the ticked types').getByRole('button', { name: /^Throttle 1 type/ });
        await apply.click();
        await page.getByRole('dialog').getByText('class search').waitFor();
        await page.getByRole('button', { name: 'Cancel' }).click();
        assert.deepEqual(await throttles(), [], 'what is not confirmed is not done');

        await apply.click();
        await confirm('<i>a drill</i>');
        const of = name => card('Before and after').locator('tr', { hasText: name }).locator('td.number');
        await of('class search').first().waitFor();
        const [{ type, action, why, until_ms: ends }] = await throttles();
        assert.deepEqual({ type, action, why }, { type: 'class:search', action: { refuse: 0.9 }, why: '<i>a drill</i>' });
        assert.ok(ends > Date.now());
        assert.match((await of('db_cpu').allInnerTexts())[2], /^[\d.]+$/, 'what was predicted');
        await until('both fell', async () => {
          const fell = async name => {
            const [before, since] = (await of(name).allInnerTexts()).map(Number);
            return since < 0.6 * before;
          };
          return await fell('db_cpu') && await fell('class search');
        });
        assert.ok(await card('Before and after').locator('canvas').isVisible());
        const inForce = card('Throttles in force').locator('tbody tr');
        await inForce.getByText('<i>a drill</i>').waitFor();
        await until('the list counts', async () => Number(await inForce.locator('td.number').nth(2).innerText()) > 0);

        await card('Before and after').getByRole('button', { name: 'Undo' }).click();
        await until('it is taken back', async () => (await throttles()).length === 0);
        await card('Before and after').getByText('Meanwhile').waitFor();
        assert.ok(await page.getByLabel('Tick class search').isChecked(), 'ticks stay');
      });

      await t.test('limits a rate and a bandwidth, replaces a throttle, and ends it', async () => {
        await page.getByLabel('Let pass', { exact: true }).check();
        await page.getByLabel('Requests per second that pass').fill('3');
        await page.keyboard.press('Enter');
        await confirm();
        await until('a rate', async () => (await throttles())[0]?.action.rate === 3);
        await page.getByLabel('Send', { exact: true }).check();
        await page.getByLabel('Kilobytes per second').fill('50');
        await card('Throttle the ticked types').getByText('No prediction is made for bandwidth').waitFor();
        await page.keyboard.press('Enter');
        await confirm();
        await until('a bandwidth instead', async () => (await throttles())[0]?.action.bandwidth === 50_000);
        assert.equal((await throttles()).length, 1);
        await card('Before and after').getByRole('button', { name: 'Undo' }).click();
        await until('the rate again', async () => (await throttles())[0]?.action.rate === 3);
        // The row of the first throttle, with the same rate, may still be shown: the list follows every second.
        const restored = card('Throttles in force').locator('tr', { hasText: 'undone:' });
        assert.match(await restored.innerText(), /at most 3 requests\/s/);
        await restored.getByRole('button', { name: 'End' }).click();
        await card('Throttles in force').getByText('Nothing is throttled.').waitFor();
        assert.deepEqual(await throttles(), []);
        const { changes } = await read('v1/audit');
        assert.ok(changes.filter(({ key, action }) => /throttle/.test(`${key} ${action}`)).length >= 6, JSON.stringify(changes));
      });

      await t.test('holds a type for some seconds, and says what came of it', async () => {
        const hold = card('Hold it and see');
        flow.isSteady = true;
        // What was before is known already, and must be as steady.
        const lately = async () => (await read('v1/correlation?figure=db_cpu&recent=15')).recent;
        await until('a steady load', async () => (await lately()).every(load => load > 0.8), 500);
        await hold.getByLabel('Let pass, %').fill('10');
        await hold.getByLabel('For', { exact: false }).selectOption('5s');
        await hold.getByRole('button', { name: 'Hold it and see' }).click();
        await hold.getByRole('progressbar').waitFor();
        await hold.getByText('Confirmed', { exact: true }).waitFor();
        await hold.getByText('class search, held to 10 %: the figure fell while it was held.').waitFor();
        const { confirmation } = await read('v1/correlation?figure=db_cpu');
        assert.equal(confirmation.verdict, 'confirmed', JSON.stringify(confirmation));
        flow.isSteady = false;

        await hold.getByRole('button', { name: 'Hold it and see' }).click();
        await hold.getByRole('button', { name: 'Stop' }).click();
        await hold.getByRole('progressbar').waitFor({ state: 'hidden' });
        await until('nothing is held', async () => (await throttles()).length === 0);
      });

      await t.test('applies what the gate suggests, and copies its lines', async () => {
        await card('Suggestion').getByRole('button', { name: 'Copy its configuration' }).click();
        await page.getByText('Copied.').waitFor();
        assert.match(await page.evaluate(() => navigator.clipboard.readText()), /search/);
        await card('Suggestion').getByRole('button', { name: /^Apply/ }).click();
        await confirm('as the gate suggests');
        await until('it is in force', async () => (await throttles()).some(({ type, action }) => type === 'class:search' && action.rate > 0));
        await page.locator('.notice').getByRole('button', { name: 'Undo' }).last().click();
        await until('it is taken back', async () => (await throttles()).length === 0);
      });

      await t.test('adopts a measured cost, and takes that back', async () => {
        const cost = async () => (await read('v1/tunables/class.search.cost')).value;
        const before = await cost();
        await card('Costs').getByText(/measured as/).waitFor();
        await card('Costs').getByRole('button', { name: /search/ }).click();
        await until('the measured cost', async () => Number(await cost()) > 1);
        await page.locator('.notice', { hasText: 'search costs' }).getByRole('button', { name: 'Undo' }).click();
        await until('the old cost', async () => await cost() === before);
      });
    } finally {
      await flow.end();
    }
  });
});

test('to end a throttle that is not in force any more is no success', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    // The gate knows nothing of the throttle in the list.
    await imitate(page, stage);
    await go(page, 'culprits');
    await page.locator('section[aria-label="Throttles in force"]').getByRole('button', { name: 'End' }).click();
    await page.locator('.notice.bad', { hasText: 'had already ended or been replaced' }).waitFor();
    assert.equal(await page.getByText('is not throttled any more').count(), 0);
  });
});

const HOSTILE = '<img src=x onerror="document.title=`hacked`">';

/** The same document with every text made hostile. */
const poisoned = value => Array.isArray(value) ? value.map(poisoned)
  : value !== null && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([name, of]) => [name, poisoned(of)]))
    : typeof value === 'string' ? `${HOSTILE}${value}` : value;

test('names, paths and messages of any kind are shown as text on every page', async () => {
  await visit({ more: MORE }, {}, async (page, stage) => {
    const userAgent = { 'user-agent': HOSTILE };
    await request(`${stage.url}/refused/${encodeURIComponent(HOSTILE)}`, { headers: userAgent });
    await request(`${stage.url}/${encodeURIComponent(HOSTILE)}`, { headers: userAgent });
    // What the settings and the API would not let through is put into its answers.
    await page.route(/\/v1\//, async route => {
      if (/v1\/(access|events)/.test(route.request().url())) return route.fallback();
      const answer = await route.fetch();
      if (!/json/.test(answer.headers()['content-type'])) return route.fulfill({ response: answer });
      return route.fulfill({ response: answer, json: poisoned(await answer.json()) });
    });
    const state = poisoned(JSON.parse((await request(`${stage.admin}/v1/state`)).text));
    await page.route(/v1\/events/, route => route.fulfill({ contentType: 'text/event-stream', body: `event: state\ndata: ${JSON.stringify(state)}\n\n` }));
    await page.reload();
    for (const name of PAGES) {
      await go(page, name);
      await page.locator(`nav a[aria-current][href="#${name}"]`).waitFor();
      const list = { classes: 'tbody tr', rules: 'tbody tr', history: 'option' }[name] ?? 'main';
      await page.locator(list).filter({ hasText: name === 'classes' || name === 'rules' ? HOSTILE : /./ }).first().waitFor({ state: 'attached' });
      assert.equal(await page.locator('main img, #notices img').count(), 0, name);
      assert.doesNotMatch(await page.title(), /hacked/);
    }
  });
});

/** What a page of another site may try: all kinds of requests, bodies and targets that need no consent. */
async function attack(admin) {
  const writes = [
    ['PUT', 'v1/tunables/queue.max_wait', { value: '7s' }], ['PATCH', 'v1/tunables', { changes: { 'queue.max_wait': '7s' } }],
    ['DELETE', 'v1/tunables/queue.max_wait'], ['PUT', 'v1/capacity', { rate: 7 }], ['POST', 'v1/drain'], ['POST', 'v1/reload'],
    ['DELETE', 'v1/sessions'], ['PUT', 'v1/signals/drill', { value: 'red' }], ['POST', 'v1/capacity/rediscover'],
    ['POST', 'v1/throttles', { type: 'path:/', action: { refuse: 1 } }], ['DELETE', 'v1/throttles/1'],
    ['PUT', 'v1/kernel/rules/drill', { rate: 1 }], ['PATCH', 'v1/kernel/rules/crowd', { rate: 1 }], ['DELETE', 'v1/kernel/rules/crowd'],
    ['POST', 'v1/correlation/confirmation', { type: 'path:/', keep: 0.1, for: '30s' }], ['DELETE', 'v1/correlation/confirmation'],
  ];
  const answers = [];
  for (const [method, path, body] of writes) {
    for (const type of ['text/plain', 'application/json', 'application/x-www-form-urlencoded']) {
      for (const mode of ['cors', 'no-cors', 'same-origin']) {
        for (const credentials of ['include', 'omit']) {
          const sent = { method, mode, credentials, headers: { 'content-type': type }, ...body && { body: JSON.stringify(body) } };
          await fetch(`${admin}/${path}`, sent).then(answer => answers.push(answer.type), () => {});
        }
      }
    }
    if (method !== 'POST') continue;
    navigator.sendBeacon(`${admin}/${path}`, body ? JSON.stringify(body) : '');
    for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      const frame = document.createElement('iframe');
      frame.name = `f${document.querySelectorAll('iframe').length}`;
      const form = document.createElement('form');
      Object.assign(form, { method: 'POST', action: `${admin}/${path}`, enctype, target: frame.name });
      const field = document.createElement('input');
      // As text/plain this is `{"type":…,"x":"=…"}`: JSON.
      const text = JSON.stringify({ ...body, x: '' });
      Object.assign(field, { name: text.slice(0, -2), value: '"}' });
      form.append(field);
      document.body.append(frame, form);
      form.submit();
      await new Promise(resolve => frame.addEventListener('load', resolve, { once: true }));
    }
  }
  return answers;
}

test('a page of another site changes nothing and reads nothing', async () => {
  const evil = http.createServer((_, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>evil</title><body>')).listen(0, '127.0.0.1');
  await once(evil, 'listening');
  const { port } = evil.address();
  const more = `${MORE}\n[[detector]]\nname = "drill"\nkind = "signal"`;
  try {
    await visit({ more }, {}, async (page, stage) => {
      const read = async path => JSON.parse((await request(`${stage.admin}/${path}`)).text);
      const all = async () => ({
        wait: (await read('v1/tunables/queue.max_wait')).value, changes: (await read('v1/audit')).changes,
        throttles: (await read('v1/throttles')).throttles, draining: (await read('v1/state')).draining,
      });
      await request(`${stage.admin}/v1/throttles`, { method: 'POST', body: '{"type": "path:/kept", "action": {"refuse": 0.5}}' });
      const before = await all();
      // Another port of this host, another name of it, and a page of no origin at all.
      for (const site of [`http://127.0.0.1:${port}/`, `http://localhost:${port}/`]) {
        await page.goto(site);
        assert.deepEqual((await page.evaluate(attack, stage.admin)).filter(type => type !== 'opaque'), [], 'nothing is answered that the page could read');
        assert.deepEqual(await all(), before, site);
      }
      await page.setContent(`<iframe sandbox="allow-scripts allow-forms" srcdoc="<body><script>(${attack})('${stage.admin}').then(() => parent.postMessage('done', '*'))</script>"></iframe>`
        .replace(/srcdoc="(.*)"><\/iframe>/s, (_, content) => `srcdoc="${content.replaceAll('"', '&quot;')}"></iframe>`));
      await page.evaluate(() => new Promise(resolve => addEventListener('message', resolve, { once: true })));
      assert.deepEqual(await all(), before, 'a page without an origin');
      // The same requests of no page at all do change it: they were right but for where they came from.
      assert.equal((await request(`${stage.admin}/v1/tunables/queue.max_wait`, { method: 'PUT', body: '{"value":"7s"}' })).status, 200);
      assert.equal((await request(`${stage.admin}/v1/throttles`, { method: 'POST', body: '{"type": "path:/", "action": {"refuse": 1}}' })).status, 201);
    }, [/CORS/, /ERR_FAILED/, /status of 40/, /same-origin/, /Refused to connect|frame-ancestors|X-Frame-Options|Refused to display/]);
  } finally {
    evil.close();
  }
});

/** What the page holds after garbage collection: nodes, listeners, and points of its charts. */
async function held(page, session) {
  await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const of = name => metrics.find(metric => metric.name === name).value;
  const points = await page.evaluate(async () => {
    const { shown } = await import('/dashboard/chart.js');
    return [...shown].map(chart => Math.max(...chart.data.map(column => column.length)));
  });
  return { nodes: of('Nodes'), listeners: of('JSEventListeners'), elements: await page.locator('*').count(), points };
}

test('no page grows, however many states it has shown', async () => {
  const stage = await start({ more: MORE });
  try {
    const state = JSON.parse((await request(`${stage.admin}/v1/state`)).text);
    for (const name of PAGES) {
      const page = await open(browser);
      const session = await page.context().newCDPSession(page);
      await session.send('Performance.enable');
      let at = Math.ceil(Date.now() / 1000);
      const { throttle } = imitated(at);
      // Each answer of the event stream has ten seconds' states, and is followed by the next.
      await page.route(/v1\/events/, route => route.fulfill({
        contentType: 'text/event-stream',
        body: Array.from({ length: 10 }, () => `event: state\ndata: ${JSON.stringify({ ...state, at_ms: 1000 * ++at, throttles: [throttle] })}\n\n`).join(''),
      }));
      await page.route(/v1\/correlation/, route => route.fulfill({ json: imitated(at, 10).found }));
      const pass = await virtualTime(page);
      await page.goto(`${stage.admin}/#${name}`);
      await page.locator('main h1').waitFor();
      const drive = async times => {
        const end = at + times;
        while (at < end) await pass(1000);
      };
      await drive(100);
      const early = await held(page, session);
      await drive(600);
      const late = await held(page, session);
      const said = `${name}: ${JSON.stringify({ early, late })}`;
      assert.ok(late.elements <= early.elements + 20, said);
      assert.ok(late.nodes <= 1.1 * early.nodes + 50, said);
      assert.ok(late.listeners <= early.listeners + 10, said);
      assert.ok(late.points.every((points, i) => points <= Math.max(301, early.points[i])), said);
      assert.deepEqual(page.faults, []);
      await page.context().close();
    }
  } finally {
    await stage.close();
  }
});
