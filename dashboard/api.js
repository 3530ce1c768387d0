// The admin API: every request carries the token that was typed, and nothing else identifies the operator, so
// that a page of another site cannot change anything.

const KEPT = 'tidegate-token';

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = sessionStorage.getItem(KEPT) ?? '';

/** Keeps a token for this tab. */
export function login(typed) {
  token = typed.trim();
  sessionStorage.setItem(KEPT, token);
}

async function send(path, { method = 'GET', body, signal, accept = 'application/json', etag } = {}) {
  const headers = { accept };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (etag) headers['if-match'] = etag;
  const answer = await fetch(path, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store',
  });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, problem.detail ?? `the gate answered ${answer.status}`);
  }
  return answer;
}

export const get = async (path, options) => (await send(path, options)).json();
export const getText = async path => (await send(path, { accept: 'text/csv' })).text();
export const put = async (path, body) => (await send(path, { method: 'PUT', body })).json();
export const patch = async (path, body) => (await send(path, { method: 'PATCH', body })).json();
export const post = async (path, body) => (await send(path, { method: 'POST', body })).json();
export const remove = async (path, body) => {
  const answer = await send(path, { method: 'DELETE', body });
  return answer.status === 204 ? null : answer.json();
};

/**
 * The state of every second, for as long as the page lives: reads the event stream, and begins again when it
 * ends or breaks. (`EventSource` cannot send a token.)
 */
export async function events({ onState, onLost, onRefused }) {
  let pause = 500;
  for (;;) {
    try {
      const answer = await send('v1/events', { accept: 'text/event-stream' });
      const reader = answer.body.getReader();
      const decoder = new TextDecoder();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += decoder.decode(value, { stream: true });
        const parts = rest.split('\n\n');
        rest = parts.pop();
        for (const part of parts) {
          const data = part.split('\n').filter(line => line.startsWith('data:')).map(line => line.slice(5)).join('\n');
          if (/^event: state$/m.test(part) && data) {
            pause = 500;
            onState(JSON.parse(data));
          }
        }
      }
    } catch (error) {
      if (error.status === 401 || error.status === 403) await onRefused(error);
      else onLost(error);
    }
    await new Promise(resolve => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 5000);
  }
}
