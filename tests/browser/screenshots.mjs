// Takes the pictures in docs/images from the live page of a real gate: npm run screenshots [name]
// The pages of culprits and of the kernel, with traffic of their own: npm run screenshots culprits, ... kernel
// The dashboard's others: TIDEGATE_ADMIN=http://127.0.0.1:9090 npm run screenshots, with a crowd before that gate.

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { launch, open } from './browser.mjs';
import { start } from './gate.mjs';
import { BOTTLENECK, traffic } from './traffic.mjs';

const folder = process.env.OUT ?? fileURLToPath(new URL('../../docs/images/', import.meta.url));
const logo = await readFile(new URL('./logo.svg', import.meta.url), 'utf8');
const brand = { room: 'title = "Fjordline Ferries"\nlogo = "logo.svg"', files: { 'logo.svg': logo } };
const wide = { width: 900, height: 780 };
const form = { method: 'POST', path: '/buy' };
// Name, seconds to wait, settings of the gate, browser, what is asked for.
const shots = [
  ['waiting-light', 240, brand, { viewport: wide }],
  ['waiting-dark', 240, brand, { viewport: wide, colorScheme: 'dark' }],
  ['waiting-mobile', 48, {}, { viewport: { width: 320, height: 640 }, deviceScaleFactor: 2 }],
  ['waiting-mobile-390', 80, brand, { viewport: { width: 390, height: 780 }, deviceScaleFactor: 2 }],
  ['waiting-arabic', 660, {}, { viewport: wide, locale: 'ar-EG' }],
  ['waiting-german', 240, brand, { viewport: { ...wide, height: 820 }, locale: 'de-DE' }],
  ['waiting-form', 100, brand, { viewport: { ...wide, height: 960 } }, form],
  ['waiting-full', 12, { ...brand, room: `${brand.room}\nmax_wait = "10s"` }, { viewport: wide }],
];
const only = process.argv[2];
const browser = await launch();
const admin = process.env.TIDEGATE_ADMIN;
const views = [
  ['dashboard-overview', 'overview', { viewport: { width: 1280, height: 980 } }],
  ['dashboard-overview-dark', 'overview', { viewport: { width: 1280, height: 980 }, colorScheme: 'dark' }],
  ['dashboard-classes', 'classes', { viewport: { width: 1280, height: 820 } }],
  ['dashboard-mobile', 'overview', { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 }],
];
for (const [name, view, context] of admin ? views : []) {
  const page = await open(browser, context);
  await page.goto(`${admin}/#${view}`);
  await page.locator('#state', { hasText: /wait|Serving/ }).waitFor();
  await page.locator(view === 'overview' ? 'canvas' : 'tbody tr').first().waitFor();
  // The history and some states are drawn.
  await page.waitForTimeout(3000);
  await page.screenshot({ path: `${folder}/${name}.png` });
  await page.context().close();
}
/** The page of culprits, a while after both types were throttled. */
async function culprits() {
  const gate = await start({ more: BOTTLENECK });
  const flow = await traffic(gate);
  const page = await open(browser, { viewport: { width: 1280, height: 1400 } });
  const seconds = count => page.waitForTimeout(1000 * count);
  await page.goto(`${gate.admin}/#culprits?figure=db_cpu`);
  await page.locator('tr', { has: page.getByLabel('Tick /search/region') }).getByText('culprit').waitFor();
  await seconds(60);
  for (const type of ['class search', '/search/region']) await page.getByLabel(`Tick ${type}`).check();
  await page.getByLabel('Share to refuse, in percent').fill('60');
  await page.getByRole('button', { name: 'Throttle 2 types' }).click();
  await page.getByLabel(/^Why/).fill('a drill');
  await page.getByRole('dialog').getByRole('button', { name: 'Throttle', exact: true }).click();
  // The message that offers to undo it is gone by then.
  await seconds(45);
  await page.evaluate(() => scrollTo(0, 0));
  for (const [name, theme, width, height] of [['dashboard-culprits', 'light', 1280, 1180], ['dashboard-culprits-dark', 'dark', 1280, 1180], ['dashboard-culprits-mobile', 'light', 390, 1300]]) {
    await page.setViewportSize({ width, height });
    if (await page.locator('html').getAttribute('data-theme') !== theme) await page.locator('#theme').click();
    await page.locator('header').click({ position: { x: 1, y: 1 } });
    await seconds(2);
    await page.screenshot({ path: `${folder}/${name}.png` });
  }
  await page.context().close();
  await flow.end();
  await gate.close();
}
/** Partners, a crowd and a network that is refused, each with addresses of the loopback interface. As root. */
const SYN_RULES = `
[kernel]
adapt = true
[[syn_rule]]
name = "partners"
src = "127.1.0.0/16"
rate = 50
preferred = true
[[syn_rule]]
name = "crowd"
src = "127.2.0.0/16"
rate = 40
burst = 10
priority = 1
min_rate = 5
[[syn_rule]]
name = "nonsense"
src = "127.3.0.0/16"
rate = 1
burst = 1
excess = "reset"
priority = 2`;

/** The page of the kernel, with connections that rules let pass and that they refuse. */
async function kernel() {
  const gate = await start({ more: SYN_RULES });
  await gate.open(45);
  const ask = net => http.get(gate.url, { agent: false, localAddress: `127.${net}.0.1`, timeout: 2000 })
    .on('response', answer => answer.resume()).on('timeout', function timeout() { this.destroy(); }).on('error', () => {});
  const each = [[1, 50], [2, 12], [3, 100]].map(([net, ms]) => setInterval(ask, ms, net));
  const page = await open(browser, { viewport: { width: 1280, height: 1500 } });
  await page.goto(`${gate.admin}/#kernel`);
  await page.locator('tr', { hasText: 'nonsense' }).first().waitFor();
  await page.waitForTimeout(60_000);
  await page.screenshot({ path: `${folder}/dashboard-kernel.png` });
  each.forEach(clearInterval);
  await page.context().close();
  await gate.close();
}
if (only === 'culprits') await culprits();
if (only === 'kernel') await kernel();
for (const [name, seconds, settings, context, asked] of admin ? [] : shots.filter(([name]) => !only || name.includes(only))) {
  const gate = await start({ ...settings, rate: 5 });
  const page = await open(browser, { ...context, reducedMotion: 'reduce' });
  await gate.fill(name === 'waiting-full' ? 9 : seconds);
  if (name === 'waiting-full') await Promise.all(Array.from({ length: 30 }, () => fetch(`${gate.url}/crowd`)));
  if (asked) {
    await page.setContent(`<form method=post action="${gate.url}${asked.path}"><input name=seat value=12A><button>Go</button></form>`);
    await page.getByRole('button').click();
  } else {
    await page.goto(`${gate.url}/`);
  }
  // The script has taken over.
  await page.locator('[data-tg=wait][data-key]').waitFor();
  await page.screenshot({ path: `${folder}/${name}.png` });
  await page.context().close();
  await gate.close();
}
await browser.close();
