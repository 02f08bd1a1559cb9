/** Line chart over time or steps; shows the value under the pointer. */

import {h} from '/lib/dom.js';
import {canvas} from '/lib/canvas.js';
import {signal} from '/lib/signal.js';
import {decimal} from '/logic/format.js';
import {extentOf, linearScale, logScale} from '/logic/scales.js';

/** @typedef {import('/lib/canvas.js').Pen} Pen */

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {string} colour a custom property, as `--accent`
 * @property {readonly number[]} xs rising
 * @property {readonly number[]} ys
 * @property {boolean} [area] filled down to the bottom
 * @property {boolean} [faint] behind the others
 */

/**
 * @typedef {object} Options
 * @property {() => readonly Series[]} series followed
 * @property {string} label
 * @property {number} [height]
 * @property {() => [number, number] | null} [range] of the values; by default theirs
 * @property {() => boolean} [log] whether the axis is logarithmic
 * @property {(value: number) => string} [format] of values
 * @property {(x: number) => string} [formatX]
 * @property {boolean} [bare] without axes, for a small one
 */

const EDGE = {left: 46, right: 8, top: 8, bottom: 20};
const BARE = {left: 0, right: 0, top: 2, bottom: 1};

/**
 * @param {Options} options
 * @returns {HTMLElement}
 */
export function lineChart(options) {
  const {series, height = 180, format = decimal, formatX = decimal} = options;
  const edge = options.bare ? BARE : EDGE;
  const pointer = signal(/** @type {number | null} */ (null));
  const tip = signal('');

  /** @param {Pen} pen */
  function draw(pen) {
    const shown = series().filter((each) => each.xs.length > 0);
    const scales = makeScales(shown, options, pen, edge);
    if (!scales) {
      tip.value = '';
      write(pen, 'no data yet', pen.width / 2, pen.height / 2, '--soft', 'center');
      return;
    }
    if (!options.bare) drawAxes(pen, scales, edge, format, formatX);
    for (const each of shown) drawSeries(pen, each, scales, pen.height - edge.bottom);
    const at = pointer.value;
    tip.value = at === null ? '' : drawPointer(pen, shown, scales, at, edge, format, formatX);
  }

  const element = canvas({
    draw,
    height,
    label: () => summary(options.label, series(), format),
    props: {
      onpointermove: (/** @type {PointerEvent} */ event) => (pointer.value = event.offsetX),
      onpointerleave: () => (pointer.value = null),
    },
  });
  return h('figure', {class: 'chart-box'}, element, h('figcaption', {class: 'chart-tip', 'aria-hidden': 'true', hidden: () => tip.value === ''}, () => tip.value));
}

/** @typedef {{x: import('/logic/scales.js').Scale, y: import('/logic/scales.js').Scale}} Scales */

/**
 * @param {readonly Series[]} shown
 * @param {Options} options
 * @param {Pen} pen
 * @param {typeof EDGE} edge
 * @returns {Scales | null}
 */
function makeScales(shown, options, pen, edge) {
  const across = extentOf(shown.flatMap((each) => [each.xs[0], each.xs[each.xs.length - 1]]));
  const isLog = options.log?.() ?? false;
  const values = shown.flatMap((each) => each.ys);
  const up = options.range?.() ?? extentOf(isLog ? values.filter((value) => value > 0) : values);
  if (!across || !up) return null;
  const make = isLog ? logScale : linearScale;
  return {
    x: linearScale(across, [edge.left, pen.width - edge.right], Math.max(2, pen.width / 110)),
    y: make(up, [pen.height - edge.bottom, edge.top], Math.max(2, pen.height / 45)),
  };
}

/**
 * @param {Pen} pen
 * @param {Scales} scales
 * @param {typeof EDGE} edge
 * @param {(value: number) => string} format
 * @param {(x: number) => string} formatX
 */
export function drawAxes(pen, {x, y}, edge, format, formatX) {
  const {context} = pen;
  context.strokeStyle = pen.colour('--line');
  context.lineWidth = 1;
  for (const tick of y.ticks) {
    const place = Math.round(y.place(tick)) + 0.5;
    context.beginPath();
    context.moveTo(edge.left, place);
    context.lineTo(pen.width - edge.right, place);
    context.stroke();
    write(pen, format(tick), edge.left - 6, place, '--soft', 'right');
  }
  for (const tick of x.ticks) writeInside(pen, formatX(tick), x.place(tick), pen.height - 8);
}

/**
 * @param {Pen} pen
 * @param {Series} series
 * @param {Scales} scales
 * @param {number} bottom
 */
function drawSeries({context, colour}, series, {x, y}, bottom) {
  context.beginPath();
  let isFirst = true;
  let [start, end] = [0, 0];
  for (const [index, across] of series.xs.entries()) {
    const place = y.place(series.ys[index] ?? NaN);
    if (!Number.isFinite(place)) continue;
    end = x.place(across);
    if (isFirst) {
      start = end;
      context.moveTo(end, place);
    } else context.lineTo(end, place);
    isFirst = false;
  }
  context.strokeStyle = colour(series.colour);
  context.lineWidth = series.faint ? 1 : 1.75;
  context.lineJoin = 'round';
  context.globalAlpha = series.faint ? 0.35 : 1;
  context.stroke();
  if (series.area && !isFirst) {
    context.lineTo(end, bottom);
    context.lineTo(start, bottom);
    context.closePath();
    context.globalAlpha = 0.16;
    context.fillStyle = colour(series.colour);
    context.fill();
  }
  context.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {readonly Series[]} shown
 * @param {Scales} scales
 * @param {number} at
 * @param {typeof EDGE} edge
 * @param {(value: number) => string} format
 * @param {(x: number) => string} formatX
 * @returns {string} what is there
 */
function drawPointer(pen, shown, {x, y}, at, edge, format, formatX) {
  const wanted = x.value(at);
  const {context} = pen;
  const parts = [];
  let where = at;
  for (const each of shown.filter((one) => !one.faint).slice(0, 6)) {
    const index = nearest(each.xs, wanted);
    const [across = 0, value = NaN] = [each.xs[index], each.ys[index]];
    where = x.place(across);
    if (parts.length === 0) parts.push(formatX(across));
    parts.push(`${each.label} ${format(value)}`);
    context.fillStyle = pen.colour(each.colour);
    context.beginPath();
    context.arc(where, y.place(value), 3.5, 0, 7);
    context.fill();
  }
  context.strokeStyle = pen.colour('--soft');
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(where, edge.top);
  context.lineTo(where, pen.height - edge.bottom);
  context.stroke();
  context.setLineDash([]);
  return parts.join(' · ');
}

/**
 * Index of the closest number in a sorted list.
 * @param {readonly number[]} xs
 * @param {number} wanted
 */
function nearest(xs, wanted) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? 0) < wanted) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - wanted) <= Math.abs((xs[high] ?? 0) - wanted) ? low : high;
}

/**
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {string} colour
 * @param {CanvasTextAlign} align
 */
export function write(pen, text, x, y, colour, align) {
  pen.context.fillStyle = pen.colour(colour);
  pen.context.textAlign = align;
  pen.context.textBaseline = 'middle';
  pen.context.fillText(text, x, y);
}

/**
 * Write a word centred at a place, or as near to it as the chart allows.
 * @param {Pen} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
export function writeInside(pen, text, x, y) {
  const half = pen.context.measureText(text).width / 2;
  write(pen, text, Math.max(half, Math.min(pen.width - half - 1, x)), y, '--soft', 'center');
}

/**
 * @param {string} label
 * @param {readonly Series[]} series
 * @param {(value: number) => string} format
 */
function summary(label, series, format) {
  const named = series.filter((each) => each.ys.length > 0 && !each.faint).slice(0, 4);
  const now = named.map((each) => `${each.label} ${format(each.ys[each.ys.length - 1] ?? NaN)}`);
  return now.length > 0 ? `${label}: now ${now.join(', ')}` : `${label}: no data yet`;
}
