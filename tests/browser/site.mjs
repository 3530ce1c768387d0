// The stage of site.test.mjs: a service of known capacity, the gate in front of it as `tidegate run --origin`
// starts it, and a crowd. Service, gate and crowd are processes of their own.

import assert from 'node:assert/strict';
import { fork, spawn } from 'node:child_process';
import http from 'node:http';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { binary, freePort, request, until } from './gate.mjs';
import { CAPACITY, PARTS } from './site_origin.mjs';
import { CONNECTIONS, Visitor } from './site_visitor.mjs';

/** What a visitor of the crowd asks for: a page, its parts, what its script fetches. */
const VISITOR_WORK = PARTS + 2;

const play = name => fork(fileURLToPath(new URL(name, import.meta.url)), { stdio: 'inherit' });

export async function startSite() {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-site-'));
  const children = [];
  const agents = [];
  const close = async () => {
    agents.forEach(agent => agent.destroy());
    const isRunning = child => child.pid && child.exitCode === null && child.signalCode === null;
    const running = children.filter(isRunning);
    const ends = running.map(child => once(child, 'exit'));
    running.forEach(child => child.kill('SIGKILL'));
    await Promise.all(ends);
    await rm(folder, { recursive: true });
  };
  try {
    return { ...await build(folder, children, agents), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function build(folder, children, agents) {
  const service = play('site_origin.mjs');
  children.push(service);
  const [{ port: origin, admin: books }] = await once(service, 'message');
  const [port, admin] = [await freePort(), await freePort()];
  const at = port => `127.0.0.1:${port}`;
  const addresses = ['--origin', at(origin), '--listen', at(port), '--admin', at(admin)];
  // The log is no part of what is tried.
  const flags = ['run', ...addresses, '--quiet', '--set', 'log.level=error'];
  const gate = spawn(binary, flags, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] });
  children.push(gate);
  const [url, api] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${admin}`];
  const failed = once(gate, 'error').then(([error]) => { throw error; });
  const ready = until('the gate is ready', () => {
    assert.equal(gate.exitCode, null, 'the gate ended');
    return request(`${api}/readyz`).then(({ status }) => status === 200, () => false);
  });
  await Promise.race([ready, failed]);
  const agent = maxSockets => {
    const made = new http.Agent({ keepAlive: true, maxSockets });
    agents.push(made);
    return made;
  };
  const ask = async query => JSON.parse((await request(`http://127.0.0.1:${books}/${query}`)).text);
  return {
    url,
    /** What reached the service of a visitor's requests. */
    seen: who => ask(`?who=${who}`),
    /** What the service has served until now: `now` in ms, `done` in requests. */
    books: () => ask(''),
    /** What the gate has found out of the service. */
    state: async () => JSON.parse((await request(`${api}/v1/state`)).text),
    found: async () => JSON.parse((await request(`${api}/v1/capacity`)).text),
    /** Connections that are kept, at most so many: a browser's, or those of a proxy for several visitors. */
    agent,
    visitor: options => new Visitor(url, { agent: agent(CONNECTIONS), ...options }),
    /** Contexts of browsers to be closed before the site. */
    contexts: new Set(),
    crowd: (factor, workS) => new Crowd(url, factor, workS),
  };
}

/**
 * Visitors who ask for `factor` times what the service can serve, until [`end`](Crowd#end): as many as are so many
 * seconds' work of the service, and more where [`staysLong`](Crowd#staysLong) asks for them.
 */
class Crowd {
  /** Seconds that its last newcomer was told to wait. */
  wait = 0;

  constructor(url, factor, workS) {
    this.child = play('site_crowd.mjs');
    this.child.on('message', ({ wait = 0 }) => { this.wait = wait; });
    this.visitorsPerS = CAPACITY / VISITOR_WORK;
    this.child.send({ url, perS: factor * this.visitorsPerS, first: workS * this.visitorsPerS });
  }

  /**
   * Whenever all have come and fewer wait than are so many seconds' work of the service, as many come once more, while
   * `goesOn()`: on a slow machine the crowd is served before a browser has come.
   */
  async staysLong(workS, site, goesOn) {
    const enough = workS * this.visitorsPerS;
    while (goesOn()) {
      const { room } = await site.state();
      if (room.waiting < enough && goesOn()) this.child.send({ more: enough });
      await pause(1e3);
    }
  }

  /** Everybody leaves. Returns what became of them. */
  async end() {
    const told = new Promise(resolve => this.child.on('message', ({ told }) => told && resolve(told)));
    const ended = once(this.child, 'exit');
    this.child.send({ end: true });
    const result = await told;
    await ended;
    return result;
  }

  kill() {
    if (this.child.exitCode === null) this.child.kill('SIGKILL');
  }
}

/** The value below which a part of the sorted values lies. */
export function quantile(values, part) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? NaN;
}
