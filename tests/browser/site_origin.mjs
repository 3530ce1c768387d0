// The service of site.test.mjs, in a process of its own: pages with ten parts, scripts that fetch, a form, a
// WebSocket, a stream of events, and a known capacity. site.mjs forks it; it tells its ports by IPC.
//
// Capacity: `WORKERS` requests at once (TIDEGATE_SITE_WORKERS; default 8), `SERVICE_MS` each on average
// (TIDEGATE_SITE_SERVICE_MS; default 40), first come, first served. A request takes up to `SPREAD` more or less
// (TIDEGATE_SITE_SPREAD; default 0). With 0 all workers of a crowd's pages are ready in the same instant, again
// and again. A request's end is computed when it comes, so that a timer that fires late delays one answer and
// does not make the service slower. Paths begin with who asks: /NAME/page/1.

import { createHash } from 'node:crypto';
import http from 'node:http';

export const WORKERS = Number(process.env.TIDEGATE_SITE_WORKERS ?? 8);
export const SERVICE_MS = Number(process.env.TIDEGATE_SITE_SERVICE_MS ?? 40);
/** Part of `SERVICE_MS`. */
const SPREAD = Number(process.env.TIDEGATE_SITE_SPREAD ?? 0);
export const PARTS = 10;
/** Requests a second. */
export const CAPACITY = 1e3 * WORKERS / SERVICE_MS;

/** The kinds of a page's parts: each has its number in its path. */
const kinds = ['css', 'css', 'js', 'js', 'js', 'svg', 'svg', 'svg', 'svg', 'svg'];

function page(who, n) {
  const tags = kinds.map((kind, k) => {
    const url = `/${who}/part/${n}/${k}.${kind}`;
    if (kind === 'css') return `<link rel=stylesheet href="${url}">`;
    return kind === 'js' ? `<script src="${url}" defer></script>` : `<img src="${url}" alt="">`;
  });
  return `<!doctype html><html lang=en><title>${who} ${n}</title>
${tags.join('\n')}
<h1>Page ${n}</h1><p id=data></p>
<script type=module>data.textContent = await (await fetch('/${who}/data/${n}')).text()</script>
<a id=next href="/${who}/page/${+n + 1}">Next</a>
<form method=post action="/${who}/order">
<input name=note value="n&ouml;te ${n}"><button>Order</button></form>`;
}

const bodies = {
  css: k => ['text/css', `h1 { --part-${k}: ${k} }`],
  js: k => ['text/javascript', `(globalThis.parts ??= []).push(${k});`],
  svg: k => ['image/svg+xml', `<svg xmlns="http://www.w3.org/2000/svg" width="${k}" height="7"/>`],
};

/** Every request: who, what, and when its service ended. */
const seen = [];
const freeAt = Array(WORKERS).fill(0);

/** Resolves when a worker has served the request. */
function served(entry) {
  const now = performance.now();
  const worker = freeAt.indexOf(Math.min(...freeAt));
  const takes = SERVICE_MS * (1 + SPREAD * (2 * Math.random() - 1));
  const end = Math.max(now, freeAt[worker]) + takes;
  freeAt[worker] = end;
  seen.push({ ...entry, end });
  return new Promise(resolve => setTimeout(resolve, end - performance.now()));
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function answer(request, response) {
  const body = await collect(request);
  const { method, url } = request;
  const [, who, what, n, part] = url.split(/[/?]/);
  await served({ who, what, method, url, body, cookie: request.headers.cookie });
  const head = type => response.writeHead(200, { 'content-type': type, 'cache-control': 'no-store' });
  const send = (type, text) => head(type).end(text);
  switch (what) {
    case 'page':
      return send('text/html; charset=utf-8', page(who, n));
    case 'part': {
      const [k, kind] = part.split('.');
      return send(...bodies[kind](k));
    }
    case 'data':
      return send('text/plain', `data ${n}`);
    case 'order':
      return response.writeHead(303, { location: `/${who}/done/1` }).end();
    case 'done':
      return send('text/html', '<!doctype html><html lang=en><title>Done</title><h1>Thank you</h1>');
    case 'events': {
      head('text/event-stream');
      let sent = 0;
      const timer = setInterval(() => response.write(`data: ${sent++}\n\n`), 250);
      return response.on('close', () => clearInterval(timer));
    }
    default:
      return response.writeHead(404).end();
  }
}

/** An echo: short text frames, as of RFC 6455 5.2, sent back without their mask. */
async function upgrade(request, socket) {
  socket.on('error', () => {});
  const [, who, what] = request.url.split(/[/?]/);
  await served({ who, what, method: 'GET', url: request.url });
  const key = `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
  const accept = createHash('sha1').update(key).digest('base64');
  const fields = ['Upgrade: websocket', 'Connection: Upgrade', `Sec-WebSocket-Accept: ${accept}`];
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${fields.join('\r\n')}\r\n\r\n`);
  let buffered = Buffer.alloc(0);
  socket.on('data', data => {
    buffered = Buffer.concat([buffered, data]);
    for (;;) {
      if (buffered.length < 6) return;
      const length = buffered[1] & 127;
      if (length > 125) return socket.destroy();
      if (buffered.length < 6 + length) return;
      const [opcode, mask] = [buffered[0] & 15, buffered.subarray(2, 6)];
      const text = buffered.subarray(6, 6 + length).map((byte, i) => byte ^ mask[i % 4]);
      buffered = buffered.subarray(6 + length);
      socket.write(Buffer.concat([Buffer.from([0x80 | opcode, length]), text]));
      if (opcode === 8) return socket.end();
    }
  });
}

/** For the test alone: what came, and how much work was done until now. Takes no worker. */
function tell(request, response) {
  const now = performance.now();
  const who = new URL(request.url, 'http://x').searchParams.get('who');
  const books = () => ({ now, done: seen.filter(({ end }) => end <= now).length });
  response.end(JSON.stringify(who ? seen.filter(entry => entry.who === who) : books()));
}

async function listen(server) {
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

if (process.send) {
  const service = http.createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  service.on('upgrade', upgrade);
  service.keepAliveTimeout = 60_000;
  process.send({ port: await listen(service), admin: await listen(http.createServer(tell)) });
  process.on('disconnect', () => process.exit());
}
