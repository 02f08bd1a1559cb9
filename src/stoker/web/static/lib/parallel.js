/** Parallel coordinates: a line for each run over all its parameters and metrics, and brushes on the axes. */

import {each, h} from '/lib/dom.js';
import {canvas} from '/lib/canvas.js';
import {write} from '/lib/chart.js';
import {isBrushed, valueOf} from '/logic/outcomes.js';
import {makeRamp, STEPS, stepOf} from '/logic/ramp.js';

/** @typedef {import('/lib/canvas.js').Pen} Pen */
/** @typedef {import('/logic/axes.js').Axis} Axis */
/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {import('/lib/signal.js').Signal<import('/logic/outcomes.js').Brushes>} BrushSignal */

const HEIGHT = 300;
const EDGE = {top: 12, bottom: 14};
const AXIS_PX = 120;
const SMALLEST_BRUSH = 0.02;
const KEY_STEP = 0.05;
const SNAP = 0.03;

/**
 * @param {object} options
 * @param {() => readonly Outcome[]} options.runs
 * @param {() => ReadonlyMap<string, Axis>} options.axes from 0 (bottom) to 1
 * @param {(run: Outcome) => number | null} options.rank how good a run is, from 0 to 1: its colour
 * @param {() => Outcome | null} options.best
 * @param {BrushSignal} options.brushes
 * @param {import('/lib/signal.js').Signal<number | null>} options.near the job that stands out
 * @param {(name: string) => void} options.toggleLog
 * @returns {HTMLElement}
 */
export function parallel({runs, axes, rank, best, brushes, near, toggleLog}) {
  /** @type {{name: string, from: number} | null} */
  let dragged = null;

  /** @param {Pen} pen */
  function draw(pen) {
    const shown = [...axes().values()];
    const places = shown.map((_axis, index) => ((index + 0.5) / shown.length) * pen.width);
    const inside = runs().filter((run) => isBrushed(run, brushes.value, axes()));
    const isInside = new Set(inside);
    const outside = runs().filter((run) => !isInside.has(run));
    stroke(pen, outside, shown, places, pen.colour('--line'), 1, 0.6);
    const ramp = makeRamp(pen.colour('--low'), pen.colour('--high'));
    const groups = Array.from({length: STEPS}, () => /** @type {Outcome[]} */ ([]));
    const unjudged = /** @type {Outcome[]} */ ([]);
    for (const run of inside) {
      const place = rank(run);
      (place === null ? unjudged : groups[stepOf(place)])?.push(run);
    }
    stroke(pen, unjudged, shown, places, pen.colour('--soft'), 1.2, 0.6);
    const alpha = inside.length > 200 ? 0.45 : 0.8;
    for (const [step, group] of groups.entries()) stroke(pen, group, shown, places, ramp[step] ?? '', 1.4, alpha);
    const first = best();
    if (first && isInside.has(first)) stroke(pen, [first], shown, places, pen.colour('--ink'), 3, 1);
    for (const [index, axis] of shown.entries()) drawAxis(pen, axis, places[index] ?? 0, brushes.value[axis.name]);
  }

  /** The run that stands out, on a canvas of its own. @param {Pen} pen */
  function drawNear(pen) {
    const shown = [...axes().values()];
    const run = near.value === null ? null : runs().find((each) => each.job === near.value);
    if (run) stroke(pen, [run], shown, shown.map((_axis, index) => ((index + 0.5) / shown.length) * pen.width), pen.colour('--accent'), 4, 0.9);
  }

  /** @param {PointerEvent} event */
  function nameAt(event) {
    const names = [...axes().keys()];
    const width = /** @type {HTMLElement} */ (event.currentTarget).clientWidth;
    return names[Math.floor((event.offsetX / width) * names.length)] ?? null;
  }

  /** @param {PointerEvent} event */
  function heightAt(event) {
    const part = (event.offsetY - EDGE.top) / (HEIGHT - EDGE.top - EDGE.bottom);
    const height = 1 - part;
    // The ends are hard to hit with a pointer, so a brush near them includes them.
    return height > 1 - SNAP ? 1 : height < SNAP ? 0 : height;
  }

  /**
   * @param {string} name
   * @param {[number, number] | null} span
   */
  function brush(name, span) {
    const next = {...brushes.peek()};
    if (span && span[1] - span[0] >= SMALLEST_BRUSH) next[name] = span;
    else delete next[name];
    brushes.value = next;
  }

  /**
   * @param {KeyboardEvent} event
   * @param {string} name
   */
  function steer(event, name) {
    const step = event.key === 'ArrowUp' ? KEY_STEP : event.key === 'ArrowDown' ? -KEY_STEP : 0;
    const [low, high] = brushes.peek()[name] ?? [0, 1];
    if (event.key === 'Escape') brush(name, null);
    else if (step === 0) return;
    else if (event.shiftKey) brush(name, [low, Math.min(1, Math.max(low + KEY_STEP, high + step))]);
    else brush(name, [Math.max(0, Math.min(high - KEY_STEP, low + step)), high]);
    event.preventDefault();
  }

  const board = canvas({
    draw,
    height: HEIGHT,
    label: () => `Parallel coordinates of ${runs().length} runs over ${[...axes().keys()].join(', ')}`,
    props: {
      class: 'chart brushed',
      onpointerdown: (/** @type {PointerEvent} */ event) => {
        const name = nameAt(event);
        if (name === null) return;
        dragged = {name, from: heightAt(event)};
        board.setPointerCapture(event.pointerId);
        brush(name, null);
      },
      onpointermove: (/** @type {PointerEvent} */ event) => {
        if (!dragged) return;
        const at = heightAt(event);
        brush(dragged.name, [Math.min(dragged.from, at), Math.max(dragged.from, at)]);
      },
      onpointerup: () => (dragged = null),
    },
  });

  return h(
    'div',
    {class: 'parallel', tabindex: 0, role: 'group', 'aria-label': 'Parallel coordinates'},
    h(
      'div',
      {class: 'parallel-inner', style: () => ({minWidth: `${axes().size * AXIS_PX}px`})},
      each(h('div', {class: 'parallel-heads'}), () => [...axes().values()], (axis) => axis.name, (axis) => h('div', null, head(axis, brushes, steer, toggleLog))),
      h('div', {class: 'chart-box'}, board, canvas({draw: drawNear, height: HEIGHT, label: () => '', props: {class: 'chart overlay idle', role: 'presentation', 'aria-hidden': 'true'}})),
    ),
  );
}

/**
 * @param {import('/lib/signal.js').Signal<Axis>} axis
 * @param {BrushSignal} brushes
 * @param {(event: KeyboardEvent, name: string) => void} steer
 * @param {(name: string) => void} toggleLog
 */
function head(axis, brushes, steer, toggleLog) {
  const how = 'drag on the axis, or press ↑ ↓ here (Shift: the upper end), to keep a range; Escape clears it';
  const {name} = axis.peek();
  return h(
    'button',
    {
      class: () => (brushes.value[name] ? 'plain axis on' : 'plain axis'),
      title: () => (axis.value.canLog ? `${how}. Click: ${axis.value.isLog ? 'even' : 'logarithmic'} axis` : how),
      onclick: () => axis.peek().canLog && toggleLog(name),
      onkeydown: (/** @type {KeyboardEvent} */ event) => steer(event, name),
    },
    name,
    h('span', {class: 'soft'}, () => (axis.value.isLog ? ' log' : '')),
  );
}

/** @param {number} part @param {number} height */
function toY(part, height) {
  return height - EDGE.bottom - part * (height - EDGE.top - EDGE.bottom);
}

/**
 * @param {Pen} pen
 * @param {readonly Outcome[]} runs
 * @param {readonly Axis[]} axes
 * @param {readonly number[]} places
 * @param {string} colour
 * @param {number} width
 * @param {number} alpha
 */
function stroke({context, height}, runs, axes, places, colour, width, alpha) {
  if (runs.length === 0) return;
  context.beginPath();
  for (const run of runs) {
    let isDown = false;
    for (const [index, axis] of axes.entries()) {
      const part = axis.place(valueOf(run, axis.name));
      if (part === null) {
        isDown = false;
        continue;
      }
      const [x, y] = [places[index] ?? 0, toY(part, height)];
      if (isDown) context.lineTo(x, y);
      else context.moveTo(x, y);
      isDown = true;
    }
  }
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.globalAlpha = alpha;
  context.stroke();
  context.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {Axis} axis
 * @param {number} x
 * @param {[number, number] | undefined} span
 */
function drawAxis(pen, axis, x, span) {
  const {context, height} = pen;
  const place = Math.round(x) + 0.5;
  context.strokeStyle = pen.colour('--soft');
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(place, toY(1, height));
  context.lineTo(place, toY(0, height));
  context.stroke();
  if (span) {
    const [top, bottom] = [toY(span[1], height), toY(span[0], height)];
    context.fillStyle = pen.colour('--accent');
    context.globalAlpha = 0.22;
    context.fillRect(place - 8, top, 16, bottom - top);
    context.globalAlpha = 1;
    context.strokeStyle = pen.colour('--accent');
    context.strokeRect(place - 8, top, 16, bottom - top);
  }
  for (const tick of axis.ticks) {
    const y = toY(tick.place, height);
    const label = tick.label.length > 12 ? `${tick.label.slice(0, 11)}…` : tick.label;
    const wide = context.measureText(label).width;
    context.fillStyle = pen.colour('--card');
    context.globalAlpha = 0.8;
    context.fillRect(place + 5, y - 7, wide + 4, 14);
    context.globalAlpha = 1;
    context.fillStyle = pen.colour('--soft');
    context.fillRect(place - 3, y - 0.5, 6, 1);
    write(pen, label, place + 7, y, '--ink', 'left');
  }
}
