// A visitor over plain sockets, for site.test.mjs: for the gate a browser, of one kind or another.

import http from 'node:http';

const PAGE = 'text/html,application/xhtml+xml,*/*;q=0.8';
/** Connections of a browser to one host. */
export const CONNECTIONS = 6;

/** Seconds after which a waiting page without JavaScript loads itself again; programs are told no other time. */
export const reload = ({ text, headers }) =>
  Number(/http-equiv="refresh" content="(\d+)/.exec(text)?.[1] ?? headers['retry-after'] ?? NaN);

const number = (text, name) => Number(new RegExp(`${name};dur=([\\d.]+)`).exec(text ?? '')?.[1] ?? NaN);

export class Visitor {
  /**
   * `isModern`: sends Fetch Metadata, as today's browsers do. `keepsCookies`: without, its requests say by
   * their Referer alone where they come from. `agent`: its connections; a proxy has one agent for several
   * visitors.
   */
  constructor(url, { address, isModern = false, keepsCookies = true, program = 'Plain/1.0', agent } = {}) {
    const { hostname, port } = new URL(url);
    this.base = { hostname, port, localAddress: address, agent };
    Object.assign(this, { url, isModern, keepsCookies, program, jar: new Map() });
  }

  /** One request. `dest` as of Fetch Metadata; `from`: the path of the page that makes it. */
  async ask(path, { dest = 'document', from, method = 'GET', body } = {}) {
    const headers = { 'user-agent': this.program, accept: dest === 'document' ? PAGE : '*/*' };
    if (this.isModern) {
      headers['sec-fetch-dest'] = dest;
      headers['sec-fetch-mode'] = dest === 'document' ? 'navigate' : dest === 'empty' ? 'cors' : 'no-cors';
      headers['sec-fetch-site'] = from ? 'same-origin' : 'none';
    }
    if (from) headers.referer = this.url + from;
    if (this.jar.size) headers.cookie = [...this.jar].map(([name, value]) => `${name}=${value}`).join('; ');
    if (body !== undefined) headers['content-type'] = 'application/x-www-form-urlencoded';
    const began = performance.now();
    const answer = await new Promise((resolve, reject) => {
      http.request({ ...this.base, path, method, headers }, resolve).on('error', reject).end(body);
    });
    const chunks = [];
    for await (const chunk of answer) chunks.push(chunk);
    const ms = performance.now() - began;
    if (this.keepsCookies) for (const line of answer.headers['set-cookie'] ?? []) this.keep(line);
    const text = Buffer.concat(chunks).toString();
    const gateMs = number(answer.headers['server-timing'], 'gate');
    return { path, dest, status: answer.statusCode, headers: answer.headers, text, ms, gateMs };
  }

  keep(line) {
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
    if (/; Max-Age=0\b/i.test(line)) this.jar.delete(name);
    else this.jar.set(name, value);
  }

  /** The parts of a page that was let in, and what its script fetches: all answers. */
  parts(path, html) {
    const wanted = [...html.matchAll(/<(link|script|img) [^>]*?(?:href|src)="([^"]+)"/g)]
      .map(([, tag, url]) => [url, { link: 'style', script: 'script', img: 'image' }[tag]]);
    wanted.push([path.replace('/page/', '/data/'), 'empty']);
    return Promise.all(wanted.map(([url, dest]) => this.ask(url, { dest, from: path })));
  }

  /**
   * Asks for a page until it is let in, as its waiting page does. Returns the answers, the page's last. Calls `waits`
   * whenever it is told to wait.
   */
  async enter(path, { waits = () => {}, ...options } = {}) {
    const answers = [];
    let target = path;
    for (;;) {
      const answer = await this.ask(target, options);
      answers.push(answer);
      if (answer.headers.location) {
        target = answer.headers.location;
        continue;
      }
      const again = reload(answer);
      if (answer.status === 200 || !again) return answers;
      waits();
      // A client without cookies carries its ticket in the URL, as its page's own reload does.
      target = /data-target="([^"]+)"/.exec(answer.text)?.[1].replaceAll('&amp;', '&') ?? path;
      await new Promise(resolve => setTimeout(resolve, 1e3 * again));
    }
  }
}
