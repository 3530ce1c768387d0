// A real site before and during a crowd, with the gate as `tidegate run --origin` starts it: nothing else is
// configured.
//
// Whoever was there before the crowd, and whoever was let in, has a working site: every page with all of its
// parts, what its scripts fetch, forms, WebSockets, streams of events, however the browser is known (cookies,
// old browsers, no cookies at all). The crowd asks for twice and for ten times what the service can serve.
// What it costs them is printed, since it depends on the machine. TIDEGATE_SITE_ASSERT=1 asserts it, on a machine with
// nothing else to do and for a service of many workers: requests of sessions wait at the gate for at most one unloaded
// response time (99th percentile) while the service is at 97 % of its capacity.

import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { launch, launchWithoutCookies, watch } from './browser.mjs';
import { until } from './gate.mjs';
import { test } from './limited.mjs';
import { quantile, startSite } from './site.mjs';
import { CAPACITY, PARTS, SERVICE_MS } from './site_origin.mjs';

/** Requests one after another from which the response time without a crowd is taken; fewer of a slow service. */
const UNLOADED = Math.max(8, Math.min(40, Math.round(8e3 / SERVICE_MS)));
/** Least seconds of a crowd: some hundred answers one after another, of two probes. */
const CROWD_S = Math.max(12, SERVICE_MS / 20);
/** Seconds' work of the service that the crowd is: few enough visitors for a small machine and a test's patience. */
const CROWD_WORK_S = Math.min(80, 36 + 2 * CROWD_S);
/** Seconds until the gate has learned what the service can take. */
const SETTLE_S = 5;
/** Whether the figures are asserted: the least share of the capacity, the most unloaded response times at the gate. */
const ASSERTS = Boolean(process.env.TIDEGATE_SITE_ASSERT);
const LEAST_SHARE = 0.97;
const MOST_TIMES = 1;
/** Seconds of a line of what is printed. */
const WINDOW_S = 5;
/** Seconds that the crowd waits when the others come, and least seconds' work that waits until all of them have come. */
const LONG_S = 6;

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** A tab, with every answer that the gate gave it and every request that failed. */
class Tab {
  /** In a context of the browser, which the site closes in the end. */
  static async open(context, site, who) {
    site.contexts.add(context);
    const tab = new Tab(watch(await context.newPage()), site, who);
    // Said by the page itself: on a slow machine it is gone before this process has looked.
    await tab.page.exposeBinding('tidegateWaits', () => { tab.hasWaited = true; });
    await tab.page.addInitScript(() => {
      addEventListener('DOMContentLoaded', () => {
        if (document.querySelector('[data-kind=waiting]')?.checkVisibility()) globalThis.tidegateWaits();
      });
    });
    return tab;
  }

  constructor(page, site, who) {
    Object.assign(this, { page, site, who, answers: [], failed: [], hasWaited: false });
    const isOurs = request => request.url().startsWith(`${site.url}/${who}/`);
    // Not what the browser answers by itself.
    const isInternal = response => response.status() === 307 && response.headers()['non-authoritative-reason'];
    page.on('response', response => {
      if (isOurs(response.request()) && !isInternal(response)) this.answers.push(response);
    });
    page.on('requestfailed', request => {
      if (isOurs(request)) this.failed.push(`${request.url()}: ${request.failure().errorText}`);
    });
  }

  url(path) {
    return `${this.site.url}/${this.who}/${path}`;
  }

  /** Opens a page, which must come at once and whole. */
  async visit(n) {
    const answer = await this.page.goto(this.url(`page/${n}`));
    assert.equal(answer.status(), 200, `${this.who}: page ${n} is served at once`);
    await this.whole(n);
  }

  /** Page n is here with all of its parts and what its script fetched. */
  async whole(n) {
    await this.page.getByRole('heading', { name: `Page ${n}`, exact: true }).waitFor();
    await this.page.waitForLoadState('load');
    await this.page.locator('#data', { hasText: `data ${n}` }).waitFor();
    const parts = await this.page.evaluate(() => [
      ...[0, 1].map(k => getComputedStyle(document.querySelector('h1')).getPropertyValue(`--part-${k}`)),
      ...globalThis.parts ?? [],
      ...[...document.images].map(image => image.naturalWidth),
    ].map(Number));
    assert.deepEqual(parts, [...Array(PARTS).keys()], `${this.who}: parts of page ${n}`);
  }

  /** Asks for a page, and is shown the waiting page. */
  async waitAt(path) {
    assert.equal((await this.page.goto(this.url(path))).status(), 503, `${this.who} waits`);
    await this.waits();
  }

  /** The waiting page is shown, or was. */
  waits() {
    return until(`${this.who} is shown the waiting page`, () => this.hasWaited);
  }

  async follow(n) {
    await this.page.getByRole('link', { name: 'Next' }).click();
    await this.whole(n);
  }

  async order() {
    await this.page.getByRole('button', { name: 'Order' }).click();
    await this.page.getByRole('heading', { name: 'Thank you' }).waitFor();
  }

  /** Opens a WebSocket, or sends over the one that is open, and waits for the echo. */
  async echo(text, { isNew = true } = {}) {
    const heard = await this.page.evaluate(([url, text, isNew]) => new Promise(resolve => {
      if (isNew) globalThis.socket = new WebSocket(url);
      const { socket } = globalThis;
      // What keepAlive() has sent may come back first.
      socket.onmessage = ({ data }) => data !== 'alive' && resolve(data);
      socket.onerror = socket.onclose = () => resolve('the socket was closed');
      if (isNew) socket.onopen = () => socket.send(text);
      else if (socket.readyState === WebSocket.OPEN) socket.send(text);
      else socket.onclose();
    }), [this.url('socket').replace('http', 'ws'), text, isNew]);
    assert.equal(heard, text, `${this.who}: WebSocket`);
  }

  /** Sends a word on the page's WebSocket every five seconds, since one that is silent for a minute is closed. */
  async keepAlive() {
    await this.page.evaluate(() => {
      const isOpen = () => globalThis.socket.readyState === WebSocket.OPEN;
      setInterval(() => isOpen() && globalThis.socket.send('alive'), 5e3);
    });
  }

  /** A page that is left open: a call every second, a stream of events, words on its WebSocket. */
  async stay() {
    await this.keepAlive();
    await this.page.evaluate(who => {
      Object.assign(globalThis, { polls: [], events: 0, breaks: 0 });
      const note = outcome => globalThis.polls.push(outcome);
      const get = () => fetch(`/${who}/data/0`);
      const call = () => get().then(({ status }) => note(status), error => note(`${error}`));
      setInterval(call, 1e3);
      const stream = new EventSource(`/${who}/events`);
      stream.onmessage = () => { globalThis.events++; };
      stream.onerror = () => { globalThis.breaks++; };
    }, this.who);
    await until('the stream begins', () => this.page.evaluate(() => globalThis.events > 0));
  }

  /** Everything was served from the moment the visitor was let in. Before, only the waiting page was. */
  served() {
    const entered = this.answers.findIndex(answer => answer.ok());
    const [before, since] = [this.answers.slice(0, entered), this.answers.slice(entered)];
    const other = (answers, ...expected) => answers.filter(answer => !expected.includes(answer.status()));
    const refused = [...other(before, 503, 303), ...other(since, 200, 303, 101)];
    assert.deepEqual(refused.map(answer => `${answer.status()} ${answer.url()}`), []);
    assert.deepEqual(this.failed, []);
    assert.deepEqual(this.page.faults, []);
  }
}

/** All parts of a page and what its script fetched were served. */
function isWhole(parts, who) {
  const refused = parts.filter(({ status }) => status !== 200).map(({ path, status }) => `${status} ${path}`);
  assert.deepEqual([refused, parts.length], [[], PARTS + 1], `${who}: parts of a page`);
}

/** A plain visitor opens a page, and is served it whole. */
async function visitWhole(visitor, who, n, from) {
  const path = `/${who}/page/${n}`;
  const page = await visitor.ask(path, { from });
  assert.equal(page.status, 200, `${who}: page ${n} is served at once`);
  const parts = await visitor.parts(path, page.text);
  isWhole(parts, who);
  return [page, ...parts];
}

/** A plain visitor's order, and the page that it is led to. */
async function orderPlainly(visitor, who, from) {
  const sent = await visitor.ask(`/${who}/order`, { method: 'POST', body: 'note=plain', from });
  assert.equal(sent.status, 303, `${who}: the form is taken`);
  assert.equal((await visitor.ask(sent.headers.location, { from })).status, 200);
}

/** Visitors of before the crowd. Each returns what it does during the crowd: nothing of it waits. */
const early = {
  async 'a browser from before'(site) {
    const context = await browser.newContext();
    const tab = await Tab.open(context, site, 'early');
    await tab.visit(0);
    await tab.echo('before');
    await tab.keepAlive();
    return async () => {
      await tab.echo('still here', { isNew: false });
      for (let n = 1; n <= 2; n++) await tab.follow(n);
      await tab.page.goBack();
      await tab.whole(1);
      await tab.page.goForward();
      await tab.whole(2);
      await tab.echo('reconnected');
      await tab.order();
      await tab.visit(3);
      tab.served();
      await orderedOnce(site, 'early', 'note=n%C3%B6te+2');
    };
  },

  async 'a page that stays open'(site) {
    const context = await browser.newContext();
    const tab = await Tab.open(context, site, 'open');
    await tab.visit(0);
    await tab.echo('before');
    await tab.stay();
    return async lasts => {
      await lasts;
      const { polls, breaks, events } = await tab.page.evaluate(() => ({ polls, breaks, events }));
      assert.ok(polls.length > 0 && polls.every(status => status === 200), `calls: ${polls}`);
      assert.equal(breaks, 0, 'the stream of events broke');
      await until('events come', () => tab.page.evaluate(n => globalThis.events > n, events));
      await tab.echo('still here', { isNew: false });
      await tab.echo('reconnected');
      tab.served();
    };
  },

  async 'an old browser from before'(site) {
    const visitor = site.visitor({ address: '127.1.1.1' });
    await visitWhole(visitor, 'old', 0);
    return async lasts => {
      // Its address is typed, and a bookmark is used: no page says where the request comes from.
      for (let n = 1; n <= 2; n++) await visitWhole(visitor, 'old', n);
      await orderPlainly(visitor, 'old', '/old/page/2');
      await lasts;
      await visitWhole(visitor, 'old', 3);
    };
  },

  async 'a client without cookies from before'(site) {
    const visitor = site.visitor({ address: '127.1.2.1', keepsCookies: false });
    await visitWhole(visitor, 'bare', 0);
    return async lasts => {
      for (let n = 1; n <= 2; n++) await visitWhole(visitor, 'bare', n, `/bare/page/${n - 1}`);
      await orderPlainly(visitor, 'bare', '/bare/page/2');
      await lasts;
      await visitWhole(visitor, 'bare', 3, '/bare/page/2');
    };
  },

  async 'visitors of a proxy that shares its connections'(site) {
    const agent = site.agent(2);
    const behind = () => site.visitor({ address: '127.1.3.1', agent });
    const visitors = { proxied1: behind(), proxied2: behind() };
    for (const [who, visitor] of Object.entries(visitors)) await visitWhole(visitor, who, 0);
    return async () => {
      const newcomer = behind();
      const [first] = await Promise.all([
        newcomer.ask('/proxied3/page/0'),
        ...Object.entries(visitors).map(([who, visitor]) => visitWhole(visitor, who, 1)),
      ]);
      assert.equal(first.status, 503, 'a connection of admitted visitors admits nobody');
      const entry = await newcomer.enter('/proxied3/page/0');
      assert.equal(entry.at(-1).status, 200);
      visitors.proxied3 = newcomer;
      for (const [who, visitor] of Object.entries(visitors)) await visitWhole(visitor, who, 2);
    };
  },
};

/**
 * Visitors who come while others wait: each waits once. Returns what each then does; it calls what it is given when it
 * waits. Its tabs are open before: a browser may start so slowly that ten times the capacity has come meanwhile, and
 * waits for minutes.
 */
const late = {
  async 'a browser that waits, with two tabs'(site) {
    const context = await browser.newContext();
    const [tab, second] = [await Tab.open(context, site, 'late'), await Tab.open(context, site, 'late')];
    return async waits => {
      await tab.waitAt('page/0');
      waits();
      // It waits as well, unless the machine is so slow that the first is in by now.
      await second.page.goto(second.url('page/10'));
      await Promise.all([tab.whole(0), second.whole(10)]);
      await tab.echo('first');
      await Promise.all([tab.follow(1), second.follow(11)]);
      await Promise.all([tab.order(), second.page.goBack()]);
      await second.whole(10);
      await second.echo('too');
      tab.served();
      second.served();
      await orderedOnce(site, 'late', 'note=n%C3%B6te+1');
    };
  },

  async 'a browser without cookies that waits'(site) {
    const context = await launchWithoutCookies();
    const tab = await Tab.open(context, site, 'blocked');
    return async waits => {
      await tab.waitAt('page/0');
      waits();
      await tab.whole(0);
      // Its address has the ticket in it, and no page says where the request comes from.
      await tab.page.reload();
      await tab.whole(0);
      await tab.follow(1);
      await tab.echo('socket');
      await tab.order();
      await tab.page.goBack();
      await tab.whole(1);
      tab.served();
      assert.deepEqual(await context.cookies(), []);
      await orderedOnce(site, 'blocked', 'note=n%C3%B6te+1');
    };
  },

  async 'a form of a visitor who must wait'(site) {
    const context = await browser.newContext();
    const tab = await Tab.open(context, site, 'form');
    return async waits => {
      // A page of another site: whoever has this one open is in.
      const fields = '<input name=note value="n&ouml;te"><button>Order</button>';
      await tab.page.setContent(`<form method=post action="${tab.url('order')}">${fields}</form>`);
      await tab.page.getByRole('button').click();
      await tab.waits();
      waits();
      await tab.page.getByRole('heading', { name: 'Thank you' }).waitFor();
      await tab.visit(1);
      tab.served();
      await orderedOnce(site, 'form', 'note=n%C3%B6te');
    };
  },

  async 'an old browser that waits'(site) {
    const visitor = site.visitor({ address: '127.1.4.1' });
    return async waits => {
      await enterPlainly(visitor, 'oldlate', waits);
      for (let n = 1; n <= 2; n++) await visitWhole(visitor, 'oldlate', n);
      await orderPlainly(visitor, 'oldlate', '/oldlate/page/2');
    };
  },

  async 'a client without cookies that waits'(site) {
    const visitor = site.visitor({ address: '127.1.5.1', keepsCookies: false });
    return async waits => {
      await enterPlainly(visitor, 'barelate', waits);
      for (let n = 1; n <= 2; n++) await visitWhole(visitor, 'barelate', n, `/barelate/page/${n - 1}`);
      await orderPlainly(visitor, 'barelate', '/barelate/page/2');
    };
  },
};

async function orderedOnce(site, who, body) {
  const orders = (await site.seen(who)).filter(({ method }) => method === 'POST');
  assert.deepEqual(orders.map(order => order.body), [body]);
}

/** A plain visitor waits for its first page, and is served it whole. `waits` is called when it is told to wait. */
async function enterPlainly(visitor, who, waits) {
  const path = `/${who}/page/0`;
  const entry = await visitor.enter(path, { waits });
  assert.ok(entry.length > 1, `${who} waits`);
  const page = entry.at(-1);
  assert.equal(page.status, 200, `${who} is let in`);
  const parts = await visitor.parts(path, page.text);
  isWhole(parts, who);
}

/** Sessions under way that ask for one thing after another: what the crowd costs those who are in. */
class Probes {
  constructor(site) {
    this.visitors = [1, 2].map(i => site.visitor({ address: `127.1.6.${i}` }));
  }

  call(visitor) {
    return visitor.ask('/probe/data/0', { dest: 'empty', from: '/probe/page/0' });
  }

  /** `n` calls of each, without a crowd. */
  async before(n) {
    for (const visitor of this.visitors) await visitWhole(visitor, 'probe', 0);
    const calls = this.visitors.map(async visitor => {
      const all = [];
      for (let i = 0; i < n; i++) all.push(await this.call(visitor));
      return all;
    });
    return (await Promise.all(calls)).flat();
  }

  /** Calls until `lasts` is over. */
  async during(lasts) {
    let isOver = false;
    lasts.finally(() => { isOver = true; });
    const calls = this.visitors.map(async visitor => {
      const all = [];
      while (!isOver) {
        all.push(await this.call(visitor));
        await pause(50);
      }
      return all;
    });
    return (await Promise.all(calls)).flat();
  }
}

const share = (from, to) => (to.done - from.done) / (CAPACITY * (to.now - from.now) / 1e3);
const percent = part => `${(100 * part).toFixed(1)} %`;
const spread = values => {
  const [median, p99] = [0.5, 0.99].map(part => quantile(values, part).toFixed(1));
  return `median ${median} ms, p99 ${p99} ms of ${values.length}`;
};

/** The books when somebody waited last: after that nothing can keep the service busy. Looks once a second. */
async function untilNobodyWaits(site, lasts) {
  let isOver = false;
  lasts.finally(() => { isOver = true; }).catch(() => {});
  let books = await site.books();
  while (!isOver && (await site.state()).room.waiting > 0) {
    books = await site.books();
    await Promise.race([lasts, pause(1e3)]);
  }
  return books;
}

async function play(factor, t) {
  const site = await startSite();
  const coming = new Set();
  let crowd;
  try {
    const probes = new Probes(site);
    const actors = [];
    for (const [name, begin] of Object.entries(early)) actors.push([name, await begin(site)]);
    const comers = [];
    for (const [name, open] of Object.entries(late)) comers.push([name, await open(site)]);
    const unloaded = await probes.before(UNLOADED);

    const crowdBegan = Date.now();
    crowd = site.crowd(factor, CROWD_WORK_S);
    for (const [name] of comers) coming.add(name);
    const stayed = crowd.staysLong(LONG_S, site, () => coming.size > 0);
    stayed.catch(() => {});
    // Before the gate knows what the service takes, it tells waits that it shortens a second later.
    const isFound = async () => (await site.found()).phase === 'settled';
    await until('newcomers wait for long', async () => crowd.wait >= LONG_S && await isFound());
    const began = await site.books();
    const newcomers = comers.map(([name, visit]) => {
      const hasCome = () => coming.delete(name);
      return t.test(name, () => visit(hasCome).finally(hasCome));
    });
    let settledAt = Infinity;
    const settled = pause(1e3 * SETTLE_S).then(() => {
      settledAt = Date.now();
      return site.books();
    });
    const lasts = Promise.all([...newcomers, pause(1e3 * CROWD_S)]);
    const goOn = actors.map(([name, during]) => t.test(name, () => during(lasts)));
    const lastBusy = untilNobodyWaits(site, lasts);
    const calls = await probes.during(lasts);
    const endedAt = Date.now();
    const [ended, found] = [await lastBusy, await site.found()];
    await Promise.all([...goOn, stayed]);
    const told = await crowd.end();

    assert.deepEqual([...unloaded, ...calls].filter(({ status }) => status !== 200), []);
    assert.deepEqual(told.refused, [], 'the parts of the pages of the crowd that was let in');
    assert.ok(told.entered > 0 && told.waited > 0);
    const { came, waited, left, entered, answers } = told;
    t.diagnostic(`crowd: ${came} came, ${waited} waited, ${left} left, ${entered} were let in`);
    const [all, later] = [share(began, ended), share(await settled, ended)];
    t.diagnostic(`origin: ${percent(all)} of its capacity while somebody waits, ${percent(later)} from ${SETTLE_S} s on`);
    const { rate, max_in_flight: limit, phase } = found;
    t.diagnostic(`the gate: ${rate.toFixed(0)} requests a second of ${CAPACITY}, limit ${limit}, ${phase}`);
    t.diagnostic(`unloaded: ${spread(unloaded.map(({ ms }) => ms))}`);
    t.diagnostic(`calls under way: gate ${spread(calls.map(({ gateMs }) => gateMs))}`);
    t.diagnostic(`calls under way: answer ${spread(calls.map(({ ms }) => ms))}`);
    const inWindow = (from, to) => {
      return answers.filter(([at]) => from <= at && at < to).map(([, gateMs]) => gateMs);
    };
    t.diagnostic(`parts of the crowd's pages: gate ${spread(inWindow(0, Infinity))}`);
    const ofSessions = [...calls.map(({ gateMs }) => gateMs), ...inWindow(settledAt, endedAt)];
    const times = quantile(ofSessions, 0.99) / quantile(unloaded.map(({ ms }) => ms), 0.5);
    t.diagnostic(`requests of sessions: p99 at the gate ${times.toFixed(2)} times the unloaded response time`);
    for (let from = 0; from < 120; from += WINDOW_S) {
      const gateMs = inWindow(crowdBegan + 1e3 * from, crowdBegan + 1e3 * (from + WINDOW_S));
      if (gateMs.length) t.diagnostic(`  ${from} to ${from + WINDOW_S} s: ${spread(gateMs)}`);
    }
    if (ASSERTS) {
      assert.ok(later >= LEAST_SHARE, `the service is at ${percent(later)} of its capacity`);
      assert.ok(times <= MOST_TIMES, `requests of sessions wait for ${times} unloaded response times`);
    }
  } finally {
    coming.clear();
    await Promise.all([...site.contexts].map(context => context.close()));
    crowd?.kill();
    await site.close();
  }
}

describe('a site and its visitors', () => {
  for (const factor of [2, 10]) {
    test(`a crowd of ${factor} times the capacity`, { concurrency: true }, t => play(factor, t));
  }
});
