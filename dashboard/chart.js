// Charts over time, drawn by uPlot.

/* global uPlot */
import { number } from './format.js';

const HEIGHT = 220;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const DAY_S = 86_400;

/** Ticks of the axis of time: the time of day, and over more than two days the date. */
function times(_, ticks) {
  const span = ticks.at(-1) - ticks[0];
  const date = { month: 'short', day: 'numeric' };
  const time = { hour: '2-digit', minute: '2-digit', hour12: false, ...span < 300 && { second: '2-digit' } };
  return ticks.map(at => new Date(1000 * at).toLocaleString([], span > 2 * DAY_S ? date : time));
}

/** Charts on the page. They are drawn anew when the theme changes. */
export const shown = new Set();

export class Chart {
  /**
   * `series`: `[{ name, colour, of(state), dash, right, unit }]`; `right`: it has the axis on the right.
   * `onZoom(from, to)`: the operator has dragged over a stretch, in Unix seconds.
   */
  constructor(parent, series, { onZoom = null, unit = '' } = {}) {
    Object.assign(this, { parent, series, onZoom, unit, marks: [], data: [[], ...series.map(() => [])] });
    this.resized = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: HEIGHT }));
    this.resized.observe(parent);
    shown.add(this);
    this.draw();
  }

  width() {
    return Math.max(200, Math.floor(this.parent.clientWidth));
  }

  draw() {
    this.plot?.destroy();
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') } };
    const range = (_, min, max) => [Math.min(0, min ?? 0), (max ?? 0) > 0 ? 1.1 * max : 1];
    const upright = { ...axis, size: 60, values: (_, ticks) => ticks.map(tick => number(tick)) };
    const isRight = this.series.some(({ right }) => right);
    this.plot = new uPlot({
      width: this.width(),
      height: HEIGHT,
      cursor: { drag: { x: true, y: false, setScale: false } },
      scales: { y: { range }, ...isRight && { right: { range } } },
      axes: [{ ...axis, space: 80, values: times }, upright, ...isRight ? [{ ...upright, scale: 'right', side: 1, grid: { show: false } }] : []],
      series: [
        { value: (_, at) => at === null ? '–' : new Date(1000 * at).toLocaleTimeString() },
        ...this.series.map(({ name, colour: of, dash, right, unit = this.unit }) => ({
          label: name, stroke: colour(of), width: 2, dash, spanGaps: false, scale: right ? 'right' : 'y',
          value: (_, value) => value === null ? '–' : `${number(value)}${unit && ` ${unit}`}`,
        })),
      ],
      hooks: { setSelect: [plot => this.selected(plot)], draw: [plot => this.drawMarks(plot)] },
    }, this.data, this.parent);
  }

  /** Marks: `[{ at, name }]`, upright lines at moments in Unix seconds. */
  mark(marks) {
    if (JSON.stringify(marks) === JSON.stringify(this.marks)) return;
    this.marks = marks;
    this.plot.redraw();
  }

  drawMarks({ ctx, bbox, scales, valToPos }) {
    const ratio = devicePixelRatio;
    ctx.save();
    Object.assign(ctx, { strokeStyle: colour('--text'), fillStyle: colour('--text'), lineWidth: 2 * ratio, textAlign: 'start', textBaseline: 'top' });
    ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    for (const { at, name } of this.marks.filter(({ at }) => at >= scales.x.min && at <= scales.x.max)) {
      const x = Math.round(valToPos(at, 'x', true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const isLate = x + 4 * ratio + ctx.measureText(name).width > bbox.left + bbox.width;
      ctx.textAlign = isLate ? 'end' : 'start';
      ctx.fillText(name, x + (isLate ? -4 : 4) * ratio, bbox.top + 2 * ratio);
    }
    ctx.restore();
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 5 || !this.onZoom) return;
    this.onZoom(plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x'));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  /** Shows other data: `[times, values, …]`. */
  show(data) {
    this.data = data;
    this.plot.setData(data);
  }

  /** The picture as a PNG. */
  png() {
    const canvas = this.parent.querySelector('canvas');
    const out = document.createElement('canvas');
    Object.assign(out, { width: canvas.width, height: canvas.height });
    const context = out.getContext('2d');
    context.fillStyle = colour('--card');
    context.fillRect(0, 0, out.width, out.height);
    context.drawImage(canvas, 0, 0);
    return new Promise(resolve => out.toBlob(resolve, 'image/png'));
  }

  close() {
    this.resized.disconnect();
    this.plot.destroy();
    shown.delete(this);
  }
}

export const redrawAll = () => shown.forEach(chart => chart.draw());

/** Points that are kept of the last seconds, at most. */
const KEPT_S = 300;

/** A chart of the last minutes that goes on with every state. */
export class LiveChart extends Chart {
  /** `past`: what was before the first state, from the history: `[times, values, …]`. */
  begin(past) {
    const first = this.data[0][0] ?? Infinity;
    const end = past[0].findIndex(at => at >= first);
    this.show(this.data.map((column, i) => [...past[i].slice(0, end < 0 ? undefined : end), ...column]));
  }

  push(state) {
    const at = Math.floor(state.at_ms / 1000);
    const times = this.data[0];
    if (times.length && at <= times.at(-1)) return;
    const next = [at, ...this.series.map(({ of }) => of(state) ?? null)];
    const first = at - KEPT_S;
    const from = times.findIndex(time => time >= first);
    const kept = from < 0 ? times.length : from;
    this.show(this.data.map((column, i) => [...column.slice(kept), next[i]]));
  }
}
