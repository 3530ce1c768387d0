// A stand-in for the gate: serves pages rendered by the real renderer (crates/gateway/examples/render_page.rs) and
// status documents from a script, so that a test can let happen what takes a real gate minutes or a power cut.

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../../', import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? `${root}target`;
const renderer = process.env.TIDEGATE_RENDER ?? `${target}/debug/examples/render_page`;

/** The renderer's output for `options` (see its source for their names). */
export async function render(options) {
  if (!existsSync(renderer)) throw new Error(`expected ${renderer}: run cargo build --example render_page first`);
  const args = Object.entries(options).map(([name, value]) => `${name}=${value}`);
  const { stdout } = await promisify(execFile)(renderer, args, { maxBuffer: 1 << 24 });
  return stdout;
}

// The policy depends on the template and on whether there is a form: rendered once for each.
const policies = new Map();
function policyOf({ template = '', form }) {
  const key = `${template} ${form !== undefined}`;
  const options = { print: 'policy', ...(template && { template }), ...(form !== undefined && { form }) };
  if (!policies.has(key)) policies.set(key, render(options));
  return policies.get(key);
}

/** Everything a request carried. */
async function read(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/**
 * Starts a mock. `page` gives the render options of the nth page shown, or null to let the visitor in;
 * `status` gives the nth status document, or null to cut the connection.
 */
export async function start({ page, status = () => ({}) }) {
  const seen = { pages: 0, polls: 0, entered: [], connections: new Set() };
  const server = http.createServer(async (request, response) => {
    const url = new URL(request.url, 'http://mock');
    if (url.pathname === '/.tidegate/status') {
      const answer = status(seen.polls++, url);
      if (answer === null) return request.socket.destroy();
      const whole = { state: 'waiting', wait_ms: 60_000, place: 12, poll_ms: 300, waited_ms: 1_000, ...answer };
      response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' });
      return response.end(JSON.stringify(whole));
    }
    if (url.pathname === '/favicon.ico') return response.writeHead(404).end();
    const body = await read(request);
    const options = page(seen.pages++, request, body);
    if (options === null) {
      seen.entered.push({ method: request.method, url: request.url, type: request.headers['content-type'], body });
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
      const text = body.toString().replaceAll('&', '&amp;').replaceAll('<', '&lt;');
      return response.end(`<!doctype html><title>In</title><h1>You are in</h1><pre>${text}</pre>`);
    }
    const [html, policy] = await Promise.all([render(options), policyOf(options)]);
    response.writeHead(503, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': policy,
      'cache-control': 'no-store',
    });
    response.end(html);
  });
  server.on('connection', socket => {
    seen.connections.add(socket);
    socket.on('close', () => seen.connections.delete(socket));
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const close = () => new Promise(resolve => {
    server.close(resolve);
    for (const socket of seen.connections) socket.destroy();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, seen, close };
}
