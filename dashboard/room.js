// The waiting room: who waits, how long, and whether they come when it is their turn.

import { h } from './dom.js';
import { number, percent, seconds } from './format.js';
import { charts, tiles } from './overview.js';
import { settings } from './settings.js';

const TILES = [
  ['Waiting', 'visitors', s => number(s.room.waiting), s => `work of ${number(s.room.promised)} cost units`],
  ['A newcomer waits', '', s => seconds(s.room.newcomer_wait_s), s => s.room.waiting ? '' : 'nobody waits'],
  ['Schedule', '', s => seconds(Math.abs(s.room.schedule_offset_s)), s => s.room.schedule_offset_s < 0 ? 'behind the clock' : 'ahead of the clock'],
  ['Show up', '', s => percent(s.room.show_up_ratio), () => 'of those whose turn came'],
  ['Overbooking', 'x', s => number(s.room.overbooking), () => 'promises over capacity'],
];

const CHARTS = [
  ['Visitors who wait', 'visitors', [{ name: 'waiting', colour: '--s1', metric: 'waiting', of: s => s.room.waiting }]],
  ['Wait of a newcomer', 's', [{ name: 'wait', colour: '--s2', metric: 'newcomer_wait', of: s => s.room.newcomer_wait_s }]],
];

export function room(main, shared) {
  const update = tiles(main, TILES);
  const shown = charts(main, CHARTS);
  const box = h('section', { class: 'card', 'aria-label': 'Settings of the room' }, h('h2', {}, 'Settings'));
  main.append(box);
  settings(box, shared, name => name.startsWith('room.') || name.startsWith('capacity.'));
  return {
    update(state) {
      update(state);
      shown.forEach(chart => chart.push(state));
    },
    close: () => shown.forEach(chart => chart.close()),
  };
}
