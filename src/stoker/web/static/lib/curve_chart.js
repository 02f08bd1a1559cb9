/**
 * Curves of many runs: the run nearest to the pointer stands out, a drag zooms. What follows the pointer is on a canvas of
 * its own, so that thousands of curves are not drawn again.
 */

import {h} from '/lib/dom.js';
import {canvas} from '/lib/canvas.js';
import {drawAxes, write} from '/lib/chart.js';
import {signal} from '/lib/signal.js';
import {decimal} from '/logic/format.js';
import {valueAt} from '/logic/curves.js';
import {makeRamp, stepOf} from '/logic/ramp.js';
import {extentOf, linearScale, logScale} from '/logic/scales.js';

/** @typedef {import('/lib/canvas.js').Pen} Pen */
/** @typedef {import('/logic/scales.js').Scale} Scale */
/**
 * @typedef {object} Line
 * @property {number | null} job
 * @property {string} label
 * @property {readonly number[]} xs rising
 * @property {readonly number[]} ys NaN is a gap
 * @property {string} [colour] a custom property; without it, the colour is that of `rank`
 * @property {number | null} [rank] from 0 to 1
 * @property {readonly number[]} [low] the lower end of a band around it
 * @property {readonly number[]} [high]
 * @property {boolean} [dots] also a dot at each point, and no line
 * @property {boolean} [strong]
 */
/** @typedef {{x: Scale, y: Scale, lines: readonly Line[]}} View */

const EDGE = {left: 52, right: 10, top: 8, bottom: 22};
const REACH_PX = 60;
const SMALLEST_PX = 6;

/**
 * @param {object} options
 * @param {() => readonly Line[]} options.lines followed; later ones are drawn above
 * @param {() => string} options.label
 * @param {() => boolean} options.isLog
 * @param {import('/lib/signal.js').Signal<[number, number] | null>} options.zoom the part of the x axis that is shown
 * @param {import('/lib/signal.js').Signal<number | null>} options.near the job that stands out
 * @param {(job: number) => void} options.open
 * @param {(x: number) => string} [options.formatX]
 * @param {number} [options.height]
 * @returns {HTMLElement}
 */
export function curveChart({lines, label, isLog, zoom, near, open, formatX = decimal, height = 300}) {
  const pointer = signal(/** @type {[number, number] | null} */ (null));
  const held = signal(/** @type {[number, number] | null} */ (null));
  const tip = signal('');
  const view = signal(/** @type {View | null} */ (null));

  /** @param {Pen} pen */
  function drawAll(pen) {
    const shown = lines().filter((line) => line.xs.length > 0);
    const scales = makeScales(shown, isLog(), zoom.value, pen);
    view.value = scales && {...scales, lines: shown};
    if (!scales) {
      write(pen, 'no data yet', pen.width / 2, pen.height / 2, '--soft', 'center');
      return;
    }
    drawAxes(pen, scales, EDGE, decimal, formatX);
    clipped(pen, () => {
      const ramp = makeRamp(pen.colour('--low'), pen.colour('--high'));
      for (const line of shown) drawLine(pen, line, scales, ramp, shown.length);
    });
  }

  /** @param {Pen} pen */
  function drawNear(pen) {
    const present = view.value;
    tip.value = '';
    if (!present) return;
    const found = present.lines.find((line) => line.job !== null && line.job === near.value) ?? null;
    const at = pointer.value;
    clipped(pen, () => {
      if (found && !found.dots) stroke(pen, found, present, '--ink', 2.5, 1);
      if (found && at) tip.value = drawPoint(pen, found, present, at[0], formatX);
      else if (at) tip.value = groupsAt(present, at[0], formatX);
      const drag = held.value;
      if (drag) rectangle(pen, drag);
    });
  }

  /** @param {number} factor */
  function zoomBy(factor) {
    const present = view.peek();
    if (!present) return;
    const [from, to] = zoom.peek() ?? [present.x.value(EDGE.left), present.x.value(top.clientWidth - EDGE.right)];
    const middle = (from + to) / 2;
    zoom.value = [middle - ((to - from) / 2) * factor, middle + ((to - from) / 2) * factor];
  }

  const base = canvas({draw: drawAll, height, label, props: {'aria-hidden': 'true'}});
  const top = canvas({
    draw: drawNear,
    height,
    label: () => `${label()}. Drag, plus and minus zoom, Escape shows all.`,
    props: {
      class: 'chart overlay',
      tabindex: 0,
      onpointerdown: (/** @type {PointerEvent} */ event) => {
        held.value = [event.offsetX, event.offsetX];
        top.setPointerCapture(event.pointerId);
      },
      onpointermove: (/** @type {PointerEvent} */ event) => {
        pointer.value = [event.offsetX, event.offsetY];
        if (held.peek()) held.value = [held.peek()?.[0] ?? 0, event.offsetX];
        else near.value = nearestJob(view.peek(), event.offsetX, event.offsetY);
      },
      onpointerup: () => {
        const [from, to] = held.peek() ?? [0, 0];
        held.value = null;
        const present = view.peek();
        if (present && Math.abs(to - from) >= SMALLEST_PX) zoom.value = [present.x.value(Math.min(from, to)), present.x.value(Math.max(from, to))];
        else if (near.peek() !== null) open(/** @type {number} */ (near.peek()));
      },
      onpointerleave: () => {
        pointer.value = null;
        near.value = null;
      },
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === '+' || event.key === '=') zoomBy(0.8);
        else if (event.key === '-') zoomBy(1.25);
        else if (event.key === 'Escape') zoom.value = null;
        else return;
        event.preventDefault();
      },
    },
  });
  return h('figure', {class: 'chart-box'}, base, top, h('figcaption', {class: 'chart-tip', 'aria-hidden': 'true', hidden: () => tip.value === ''}, () => tip.value));
}

/**
 * @param {Pen} pen
 * @param {() => void} draw
 */
function clipped({context, width, height}, draw) {
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right + 1, height - EDGE.bottom + 1);
  context.clip();
  draw();
  context.restore();
}

/**
 * @param {readonly Line[]} lines
 * @param {boolean} isLog
 * @param {[number, number] | null} zoom
 * @param {Pen} pen
 */
function makeScales(lines, isLog, zoom, pen) {
  const across = zoom ?? extentOf(lines.flatMap(({xs}) => [xs[0], xs[xs.length - 1]]));
  if (!across) return null;
  let [low, high] = [Infinity, -Infinity];
  for (const {xs, ys, low: lower, high: upper} of lines) {
    for (const [index, x] of xs.entries()) {
      if (x < across[0] || x > across[1]) continue;
      for (const value of [ys[index] ?? NaN, lower?.[index] ?? NaN, upper?.[index] ?? NaN]) {
        if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  if (low > high) return null;
  const make = isLog ? logScale : linearScale;
  return {
    x: linearScale(across, [EDGE.left, pen.width - EDGE.right], Math.max(2, pen.width / 110)),
    y: make([low, high], [pen.height - EDGE.bottom, EDGE.top], Math.max(2, pen.height / 45)),
  };
}

/**
 * @param {Pen} pen
 * @param {Line} line
 * @param {{x: Scale, y: Scale}} scales
 * @param {readonly string[]} ramp
 * @param {number} among
 */
function drawLine(pen, line, scales, ramp, among) {
  const own = line.rank === null || line.rank === undefined ? pen.colour('--soft') : (ramp[stepOf(line.rank)] ?? '');
  const colour = line.colour ? pen.colour(line.colour) : own;
  if (line.low && line.high) drawBand(pen, line, scales, colour);
  if (line.dots) drawDots(pen, line, scales, colour);
  else stroke(pen, line, scales, colour, line.strong ? 2.2 : 1.2, line.strong ? 1 : among > 60 ? 0.35 : 0.7);
}

/**
 * @param {Pen} pen
 * @param {Line} line
 * @param {{x: Scale, y: Scale}} scales
 * @param {string} colour a custom property, or a colour
 * @param {number} width
 * @param {number} alpha
 */
function stroke(pen, {xs, ys}, {x, y}, colour, width, alpha) {
  const {context} = pen;
  context.beginPath();
  let isDown = false;
  for (const [index, across] of xs.entries()) {
    const place = y.place(ys[index] ?? NaN);
    if (!Number.isFinite(place)) {
      isDown = false;
      continue;
    }
    if (isDown) context.lineTo(x.place(across), place);
    else context.moveTo(x.place(across), place);
    isDown = true;
  }
  context.strokeStyle = colour.startsWith('--') ? pen.colour(colour) : colour;
  context.lineWidth = width;
  context.lineJoin = 'round';
  context.globalAlpha = alpha;
  context.stroke();
  context.globalAlpha = 1;
}

/** @param {Pen} pen @param {Line} line @param {{x: Scale, y: Scale}} scales @param {string} colour */
function drawBand({context}, {xs, low = [], high = []}, {x, y}, colour) {
  context.beginPath();
  for (const [index, across] of xs.entries()) context.lineTo(x.place(across), y.place(high[index] ?? NaN));
  for (let index = xs.length - 1; index >= 0; index -= 1) context.lineTo(x.place(xs[index] ?? NaN), y.place(low[index] ?? NaN));
  context.closePath();
  context.globalAlpha = 0.18;
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
}

/** @param {Pen} pen @param {Line} line @param {{x: Scale, y: Scale}} scales @param {string} colour */
function drawDots({context}, {xs, ys}, {x, y}, colour) {
  context.fillStyle = colour;
  for (const [index, across] of xs.entries()) {
    context.beginPath();
    context.arc(x.place(across), y.place(ys[index] ?? NaN), 3, 0, 7);
    context.fill();
  }
}

/** @param {Pen} pen @param {Line} line @param {View} view @param {number} px @param {(x: number) => string} formatX */
function drawPoint(pen, line, {x, y}, px, formatX) {
  const at = Math.max(line.xs[0] ?? 0, Math.min(line.xs[line.xs.length - 1] ?? 0, x.value(px)));
  const value = valueAt(line.xs, line.ys, at);
  if (!Number.isFinite(value)) return line.label;
  pen.context.fillStyle = pen.colour('--ink');
  pen.context.beginPath();
  pen.context.arc(x.place(at), y.place(value), 4, 0, 7);
  pen.context.fill();
  return line.dots ? `${line.label} · ${decimal(value)}` : `${line.label} · ${formatX(at)} · ${decimal(value)}`;
}

/** @param {View} view @param {number} px @param {(x: number) => string} formatX */
function groupsAt({x, lines}, px, formatX) {
  const at = x.value(px);
  const parts = lines.filter((line) => line.job === null).slice(0, 6).map((line) => `${line.label} ${decimal(valueAt(line.xs, line.ys, at))}`);
  return parts.length > 0 ? `${formatX(at)} · ${parts.join(' · ')}` : '';
}

/** @param {Pen} pen @param {[number, number]} span */
function rectangle({context, height, colour}, [from, to]) {
  context.fillStyle = colour('--accent');
  context.globalAlpha = 0.15;
  context.fillRect(Math.min(from, to), EDGE.top, Math.abs(to - from), height - EDGE.top - EDGE.bottom);
  context.globalAlpha = 1;
}

/** @param {View | null} view @param {number} px @param {number} py */
function nearestJob(view, px, py) {
  if (!view) return null;
  const at = view.x.value(px);
  let [found, distance] = [/** @type {number | null} */ (null), REACH_PX];
  for (const {job, xs, ys, dots} of view.lines) {
    if (job === null) continue;
    const far = dots ? Math.hypot(view.x.place(xs[0] ?? NaN) - px, view.y.place(ys[0] ?? NaN) - py) : Math.abs(view.y.place(valueAt(xs, ys, at)) - py);
    if (far < distance) [found, distance] = [job, far];
  }
  return found;
}
