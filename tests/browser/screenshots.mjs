// Takes the pictures in docs/images: npm run screenshots

import { fileURLToPath } from 'node:url';
import { launch, open } from './browser.mjs';
import { start } from './mock.mjs';

const folder = process.env.OUT ?? fileURLToPath(new URL('../../docs/images/', import.meta.url));
const logo = fileURLToPath(new URL('./logo.svg', import.meta.url));
const wide = { width: 900, height: 780 };
const brand = { title: 'Fjordline Ferries', logo };
const shots = [
  ['waiting-light', { ...brand, waited: 140 }, { viewport: wide }],
  ['waiting-dark', { ...brand, waited: 140 }, { viewport: wide, colorScheme: 'dark' }],
  ['waiting-mobile', { wait: 48, waited: 300, place: 96 }, { viewport: { width: 320, height: 640 }, deviceScaleFactor: 2 }],
  ['waiting-arabic', { lang: 'ar', wait: 660, waited: 140 }, { viewport: wide }],
  ['waiting-form', { ...brand, form: 'seat=12A', kind: 'late', waited: 70 }, { viewport: { ...wide, height: 960 }, javaScriptEnabled: false }],
  ['waiting-full', { ...brand, kind: 'full', wait: 300 }, { viewport: wide }],
];
const only = process.argv[2];
const browser = await launch();
for (const [name, options, context] of shots.filter(([name]) => !only || name.includes(only))) {
  const mock = await start({ page: () => options, status: () => ({ wait_ms: (options.wait ?? 240) * 1e3, place: options.place ?? 1240 }) });
  const page = await open(browser, { ...context, reducedMotion: 'reduce' });
  await page.goto(mock.url);
  await page.screenshot({ path: `${folder}/${name}.png` });
  await page.context().close();
  await mock.close();
}
await browser.close();
