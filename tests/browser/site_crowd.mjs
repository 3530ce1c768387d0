// The crowd of site.test.mjs, in a process of its own: visitors over plain sockets who come at a given rate,
// each from an address of its own. Some leave when they are told to wait; the others wait, are let in, load
// their page whole, and leave. Run by site.mjs.

import http from 'node:http';
import { CONNECTIONS, Visitor, reload } from './site_visitor.mjs';

/** Part of those told to wait who leave at once. */
const LEAVE = 0.2;

const told = { came: 0, waited: 0, left: 0, entered: 0, refused: [], answers: [] };
let hasEnded = false;

/** Every /24 of 127.16.0.0 to 127.255.255.0 in turn: no address comes twice. */
const address = n => `127.${16 + n % 240}.${Math.floor(n / 240) % 256}.${1 + Math.floor(n / 61_440) % 254}`;

async function visit(url, n) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const program = `Crowd/${n % 7}`;
  const visitor = new Visitor(url, { agent, address: address(n), isModern: n % 2 === 0, program });
  const path = `/crowd/page/${n}`;
  told.came++;
  try {
    for (let isFirst = true; !hasEnded; isFirst = false) {
      const answer = await visitor.ask(path);
      if (answer.status === 200) {
        told.entered++;
        const parts = await visitor.parts(path, answer.text);
        for (const { path, status, gateMs } of parts) {
          told.answers.push([Date.now(), gateMs]);
          if (status !== 200) told.refused.push(`${path}: ${status}`);
        }
        return;
      }
      if (isFirst) {
        told.waited++;
        process.send({ wait: Number(answer.headers['retry-after']) });
        if (Math.random() < LEAVE) {
          told.left++;
          return;
        }
      }
      await new Promise(resolve => setTimeout(resolve, 1e3 * reload(answer)));
    }
  } catch (error) {
    if (!hasEnded) told.refused.push(`${path}: ${error}`);
  } finally {
    agent.destroy();
  }
}

/** How many come: those of the beginning, and more when [`Crowd`](site.mjs) asks for them. */
let most = 0;
let n = 0;

process.on('message', ({ url, perS, first, more, end }) => {
  if (more) {
    most = Math.max(most, n + more);
    return;
  }
  if (end) {
    hasEnded = true;
    process.send({ told }, () => process.exit());
    return;
  }
  // As many as should have come by now, however late the timer is.
  const began = performance.now();
  most = first;
  let due = 0;
  setInterval(() => {
    const now = performance.now() - began;
    while (!hasEnded && due <= now && n < most) {
      visit(url, n++);
      due -= 1e3 * Math.log(1 - Math.random()) / perS;
    }
  }, 5);
});
process.on('disconnect', () => process.exit());
