// A level as a coloured word.

import { h } from './dom.js';

const KIND = { green: 'good', orange: 'warn', red: 'bad', unknown: 'soft' };

export const level = name => h('span', { class: `chip ${KIND[name] ?? 'soft'}` }, name);
