// Keeps the waiting page alive: asks the gate how it stands, counts down in between, and goes on when it is time.
// Whole-line comments only, nothing that spans lines: this file is squeezed before it is sent (template.rs).
(() => {
  'use strict';
  const root = document.querySelector('[data-kind][data-target]');
  if (!root || root.dataset.kind === 'forbidden') return;
  const data = root.dataset;
  const text = JSON.parse(document.getElementById('tidegate-text').textContent);
  const form = document.getElementById('tidegate-form');
  const at = name => document.querySelector('[data-tg=' + name + ']');
  const set = (name, value) => {
    const element = at(name);
    if (element && element.textContent !== value) element.textContent = value;
  };
  const now = () => performance.now();
  const title = document.title.replace(/^.*? · /, '');
  const digits = document.documentElement.lang + '-u-nu-latn';
  const format = unit => new Intl.NumberFormat(digits, unit && { style: 'unit', unit, unitDisplay: 'long' });
  const [number, second, minute, hour] = ['', 'second', 'minute', 'hour'].map(format);

  let target = data.target;
  let status = data.status;
  let due = now() + +data.wait;
  let shown = +data.wait;
  let share = 0;
  const came = now() - +data.waited;
  let failures = 0;
  let asking = false;
  let gone = false;
  let timer;
  let noted = '';
  let notedAt = 0;

  // The limits between seconds, minutes and hours are those of locale.rs.
  const parts = ms => {
    const s = Math.ceil(ms / 1e3);
    const m = Math.round(s / 60);
    return s <= 90 ? second.formatToParts(s) : m <= 90 ? minute.formatToParts(m) : hour.formatToParts(Math.min(48, Math.round(s / 3600)));
  };
  const words = ms => ms > 0 ? parts(ms).map(p => p.value).join('') : text.soon;

  const showWait = ms => {
    const key = words(ms);
    if (title !== document.title) document.title = key + ' · ' + title;
    const element = at('wait');
    if (!element || element.dataset.key === key) return;
    element.dataset.key = key;
    const all = ms > 0 ? parts(ms) : [{ value: text.soon }];
    const bold = value => {
      const b = document.createElement('b');
      b.textContent = value;
      if (!/\d/.test(value)) b.className = 'w';
      return b;
    };
    // A no-break space between number and unit would indent the unit, which has its own line.
    const nodes = all.map(p => p.type === 'integer' || all.length < 2 ? bold(p.value) : p.value.replace(/\s/g, ' '));
    const [before, after] = ms > 90e3 ? text.about.split('{t}') : ['', ''];
    element.replaceChildren(before, ...nodes, after);
  };

  const say = message => set('say', message);
  const note = message => {
    const element = at('note');
    noted = message;
    notedAt = now();
    set('note', message);
    if (element) element.hidden = !message;
  };

  // Announced is what changes somebody's plans, not every second: these marks, and each once.
  const marks = [1800, 1200, 900, 600, 300, 180, 120, 60, 30, 10].map(s => s * 1e3);
  const markOf = ms => marks.findLast(mark => mark >= ms) || Infinity;
  let mark = markOf(shown);
  let longerAt = -Infinity;

  const tick = () => {
    const left = Math.max(0, due - now());
    // Never upwards: a later turn holds the figure until time has caught up, or is owned up to (see heard).
    shown = Math.min(shown, left);
    showWait(shown);
    const waited = now() - came;
    set('waited', parts(waited).map(p => p.value).join(''));
    share = Math.max(share, waited / (waited + shown + 1));
    const bar = at('bar');
    const level = at('level');
    if (bar) bar.style.strokeDashoffset = 100 - 100 * share;
    if (level) level.style.transform = 'translateY(' + (190 - 180 * share) + 'px)';
    if (markOf(shown) < mark) {
      mark = markOf(shown);
      say(mark > 10e3 ? text.left.replace('{t}', words(mark)) : text.next);
    }
    if (data.kind === 'full' && !left && !timer) timer = setTimeout(go, Math.random() * 3e3);
  };

  const go = () => {
    if (gone) return;
    gone = true;
    clearTimeout(timer);
    if (form) {
      form.setAttribute('action', target);
      // A field may be called "submit" and hide the method of that name.
      HTMLFormElement.prototype.submit.call(form);
      return;
    }
    // A URL that differs from ours in nothing but the fragment would not be fetched.
    const same = new URL(target, location.href).href === location.href.split('#')[0];
    if (same && location.hash) location.reload();
    else location.replace(target + location.hash);
    // Still here: the answer was a download, or the network went.
    setTimeout(() => { gone = false; ask(); }, 15e3);
  };

  // Takes in what the gate said; returns when to ask again.
  const heard = answer => {
    const lost = failures > 1;
    failures = 0;
    if (answer.ticket !== undefined) {
      // An empty one: the cookies have arrived, the URLs need none. It stands last in them.
      const swap = url => url.replace(/([?&]tg=)[^&]*/, answer.ticket && '$1' + answer.ticket);
      [target, status] = [swap(target), swap(status)];
    }
    if (answer.state === 'ready') {
      say(text.turn);
      note('');
      document.title = text.turn;
      return go();
    }
    if (answer.state !== 'waiting' && answer.state !== 'unavailable') {
      // The place is no more (too late, used in another tab): the page itself knows what then.
      timer = setTimeout(go, Math.random() * 2e3);
      return;
    }
    const wait = answer.wait_ms;
    due = now() + wait;
    if (answer.state === 'unavailable') {
      if (noted !== text.down) say(text.down);
      note(text.down);
    } else if (wait > shown + Math.max(5e3, shown / 10)) {
      shown = wait;
      mark = markOf(wait);
      note(text.longer);
      if (now() - longerAt > 6e4) {
        say(text.longer);
        longerAt = now();
      }
    } else if (noted !== text.longer || now() - notedAt > 15e3) {
      note('');
    }
    if (answer.state === 'waiting' && data.kind === 'unavailable') {
      data.kind = 'waiting';
      set('headline', text.headline);
      set('message', text.message);
    }
    if (lost) say(text.back);
    set('place', number.format(answer.place));
    tick();
    return answer.poll_ms * (0.95 + Math.random() / 10);
  };

  const missed = () => {
    failures += 1;
    // One lost answer is a hiccup; two in a row, or none at all to be had, are worth a word.
    if (failures === 2 || (failures === 1 && navigator.onLine === false)) {
      failures = 2;
      note(text.lost);
      say(text.lost);
    }
    // The ticket suffices at the other host: without this one, its turn is when it was last said to be.
    if (data.check && failures > 2 && navigator.onLine && now() >= due) go(target = data.check);
    return Math.min(3e4, 500 * 2 ** failures) * (0.5 + Math.random());
  };

  const ask = async () => {
    clearTimeout(timer);
    if (gone || asking || data.kind === 'full') return;
    asking = true;
    let next;
    try {
      // Cookies go along by default: the status is on the page's own host.
      const signal = AbortSignal.timeout?.(1e4);
      const answer = await fetch(status, { cache: 'no-store', headers: { accept: 'application/json' }, signal });
      const body = await answer.json();
      if (!body.state) throw body;
      next = heard(body);
    } catch {
      next = missed();
    }
    asking = false;
    if (next) timer = setTimeout(ask, next);
  };

  const act = at('act');
  if (act) act.hidden = true;
  if (data.kind !== 'full') timer = setTimeout(ask, +data.poll);
  setInterval(tick, 1e3);
  tick();
  addEventListener('online', ask);
  document.addEventListener('visibilitychange', () => document.hidden || ask());
  addEventListener('pageshow', event => {
    if (!event.persisted) return;
    if (form && gone) {
      // Back from where the form went: it is not sent again unless the visitor says so.
      note(text.sent);
      if (act) act.hidden = false;
      return;
    }
    gone = false;
    ask();
  });
})();
