// The real thing, for gate.test.mjs: a small service, the `tidegate` binary in front of it, and a crowd.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { PATIENCE_MS } from './browser.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url));
export const binary = process.env.TIDEGATE_BIN ?? `${process.env.CARGO_TARGET_DIR ?? `${root}target`}/release/tidegate`;
/**
 * Places per second while a gate is held and when it is opened. A held gate gives a place every ten seconds: whoever shall be seen
 * waiting waits until the test opens the gate, however long the browser takes to show it.
 */
const HELD = 0.1;
const OPENED = 5;

/** Waits until `condition` holds, looking again `every` so many milliseconds; returns what it returned. */
export async function until(what, condition, every = 20) {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(performance.now() < end, `never happened: ${what}`);
    await pause(every);
  }
}

/** One request on a connection of its own, without a browser's manners: no cookies, no Sec-Fetch fields. */
export function request(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const sent = http.request(url, { method, headers, agent: false }, async answer => {
      const body = await collect(answer);
      resolve({ status: answer.statusCode, headers: answer.headers, text: body.toString() });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const page = text => `<!doctype html><html lang=en><title>In</title>
<link rel=stylesheet href=/style.css><script src=/app.js defer></script>
<h1>You are in</h1><img src=/picture.svg alt=picture><p id=fetched></p><pre>${text}</pre>
<a href=/page/1>on</a>`;

const parts = {
  '/style.css': ['text/css', 'h1 { color: rgb(1, 2, 3) }'],
  '/picture.svg': ['image/svg+xml', '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"/>'],
  '/app.js': ['text/javascript', `fetch('/data').then(r => r.text()).then(t => { fetched.textContent = t; });`],
  '/data': ['text/plain', 'data came'],
  '/healthz': ['text/plain', 'well'],
};

/** Starts the service. `seen` holds every request that reached it but for health checks; `down` and `up` play an outage. */
export async function startOrigin() {
  const seen = [];
  const sockets = new Set();
  const server = http.createServer(async (request, response) => {
    const body = await collect(request);
    const { method, url, headers } = request;
    if (url !== '/healthz') seen.push({ method, url, headers, body });
    const [type, text] = parts[url] ?? ['text/html; charset=utf-8', page(method === 'POST' ? 'received' : '')];
    response.writeHead(url === '/favicon.ico' ? 404 : 200, { 'content-type': type, 'cache-control': 'no-store' }).end(text);
  });
  server.on('connection', socket => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  const up = async port => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  };
  await up(0);
  const { port } = server.address();
  const down = async () => {
    server.close();
    for (const socket of sockets) socket.destroy();
    await once(server, 'close');
  };
  const pages = () => seen.filter(({ headers }) => headers['sec-fetch-mode'] === 'navigate');
  return { seen, pages, port, down, up: () => up(port), close: () => server.listening && down() };
}

/** A port that was free a moment ago. The gate gets fixed ones, because it must come back on them after a crash. */
export async function freePort() {
  const server = http.createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/**
 * A whole stage: service, held gate and a directory for both. `room`, `listen` and `more` are lines of the
 * configuration file; `token` is asked for at the admin address.
 */
export async function start({ room = '', listen = '', more = '', token = '', files = {} } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-browser-'));
  const origin = await startOrigin();
  const [port, admin] = [await freePort(), await freePort()];
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const config = `
[listen]
http = "127.0.0.1:${port}"
admin = "127.0.0.1:${admin}"
workers = 1
${listen}
[origin]
replicas = ["127.0.0.1:${origin.port}"]
health = { path = "/healthz", every = "100ms", fall = 1, rise = 1 }
[capacity]
rate = ${HELD}
[room]
state_dir = "state"
prefix_share = 1 # the whole crowd comes from here
${room.includes('unit =') ? '' : 'unit = "request"'}
${room}
[log]
level = "warn"
${more}`;
  await writeFile(join(folder, 'gate.toml'), config);

  let child;
  const run = async () => {
    child = spawn(binary, ['run', '--quiet', '--config', 'gate.toml'], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    const said = [];
    child.stdout.on('data', text => said.push(text));
    child.stderr.on('data', text => said.push(text));
    const failed = once(child, 'error').then(([error]) => { throw error; });
    const ready = until('the gate is ready', async () => {
      assert.equal(child.exitCode, null, `the gate ended: ${Buffer.concat(said)}`);
      return request(`http://127.0.0.1:${admin}/readyz`).then(r => r.status === 200, () => false);
    });
    await Promise.race([ready, failed]);
  };
  const kill = async signal => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  };
  await run();
  const url = `http://127.0.0.1:${port}`;
  const crowd = new Crowd(url);
  const tune = async rate => {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const sent = { method: 'PUT', headers, body: JSON.stringify({ value: rate }) };
    const { status, text } = await request(`http://127.0.0.1:${admin}/v1/tunables/capacity.rate`, sent);
    assert.equal(status, 200, text);
  };
  return {
    url,
    admin: `http://127.0.0.1:${admin}`,
    origin,
    run,
    crash: () => kill('SIGKILL'),
    fill: seconds => crowd.fill(seconds),
    settle: () => crowd.settle(),
    hold: () => {
      crowd.isHurried = false;
      return tune(HELD);
    },
    open: async (rate = OPENED) => {
      await tune(rate);
      crowd.hurry();
    },
    close: async () => {
      crowd.leave();
      await kill('SIGKILL');
      await origin.close();
      await rm(folder, { recursive: true });
    },
  };
}

/** Visitors without a browser, who come back when it is their turn, as long as the stage stands. */
class Crowd {
  constructor(url) {
    this.url = url;
    this.coming = new Map();
    this.isHurried = false;
    this.hasLeft = false;
  }

  /** Returns the wait in seconds. */
  async visit(path) {
    // A crash of the gate is part of a test; these visitors then leave.
    const { status, text } = await request(this.url + path).catch(() => ({ status: 0 }));
    if (status !== 503 && status !== 409) return 0;
    const { wait_s: wait = 1, ticket } = JSON.parse(text);
    if (ticket && !this.hasLeft) this.comeBack(`/crowd?tg=${ticket}`, this.isHurried ? Math.min(wait, 0.5) : wait);
    return wait;
  }

  comeBack(path, wait) {
    const timer = setTimeout(() => {
      this.coming.delete(timer);
      this.visit(path);
    }, 1e3 * wait + 100);
    this.coming.set(timer, path);
  }

  /** The gate is open: everybody looks whether it is their turn, and soon again. */
  hurry() {
    this.isHurried = true;
    const coming = [...this.coming];
    this.coming.clear();
    for (const [timer, path] of coming) {
      clearTimeout(timer);
      this.comeBack(path, 0.5 * Math.random());
    }
  }

  /** Sends visitors until the next one would wait for `seconds`. */
  async fill(seconds) {
    await until(`a wait of ${seconds} s`, async () => (await this.visit('/crowd')) >= seconds, 0);
  }

  /** Keeps the room full until parts of pages are let through to the admitted only: ten seconds after the first began to wait. */
  async settle() {
    const style = { headers: { 'sec-fetch-dest': 'style' } };
    await until('parts of pages need a pass', async () => {
      await this.fill(100);
      return (await request(`${this.url}/style.css`, style)).status !== 200;
      // More often, and the parts let through until then would be more than the gate lets in.
    }, 1000);
  }

  leave() {
    this.hasLeft = true;
    for (const timer of this.coming.keys()) clearTimeout(timer);
    this.coming.clear();
  }
}
