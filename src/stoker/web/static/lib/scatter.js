/** Scatter plot: a dot for each run; drawing a rectangle keeps the runs inside. */

import {h} from '/lib/dom.js';
import {canvas} from '/lib/canvas.js';
import {write, writeInside} from '/lib/chart.js';
import {go} from '/lib/router.js';
import {signal} from '/lib/signal.js';
import {cell} from '/logic/format.js';
import {isBrushed, valueOf} from '/logic/outcomes.js';
import {makeRamp, stepOf} from '/logic/ramp.js';

/** @typedef {import('/lib/canvas.js').Pen} Pen */
/** @typedef {import('/logic/axes.js').Axis} Axis */
/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */

const HEIGHT = 280;
const EDGE = {left: 64, right: 18, top: 16, bottom: 42};
const LABELS_PX = 14; // from the edge, so that no dot lies on a word
const REACH_PX = 12;
const SMALLEST_PX = 6;

/**
 * @param {object} options
 * @param {() => readonly Outcome[]} options.runs
 * @param {() => ReadonlyMap<string, Axis>} options.axes from 0 to 1
 * @param {() => string} options.x a name
 * @param {() => string} options.y a name
 * @param {(run: Outcome) => number | null} options.rank how good a run is, from 0 to 1: its colour
 * @param {() => Outcome | null} options.best
 * @param {import('/lib/signal.js').Signal<import('/logic/outcomes.js').Brushes>} options.brushes
 * @param {import('/lib/signal.js').Signal<number | null>} options.near the job that stands out
 * @returns {HTMLElement}
 */
export function scatter({runs, axes, x, y, rank, best, brushes, near}) {
  const drawn = signal(/** @type {[number, number, number, number] | null} */ (null));
  let width = 1;

  /** @param {number} part */
  const toX = (part) => EDGE.left + part * (width - EDGE.left - EDGE.right);
  /** @param {number} part */
  const toY = (part) => HEIGHT - EDGE.bottom - part * (HEIGHT - EDGE.top - EDGE.bottom);

  /**
   * @param {Outcome} run
   * @returns {[number, number] | null}
   */
  function placeOf(run) {
    const across = axes().get(x())?.place(valueOf(run, x())) ?? null;
    const up = axes().get(y())?.place(valueOf(run, y())) ?? null;
    return across === null || up === null ? null : [toX(across), toY(up)];
  }

  /** @param {Pen} pen */
  function draw(pen) {
    width = pen.width;
    drawFrame(pen, axes().get(x()), axes().get(y()), toX, toY);
    const ramp = makeRamp(pen.colour('--low'), pen.colour('--high'));
    for (const run of runs()) {
      const place = placeOf(run);
      if (!place) continue;
      const isInside = isBrushed(run, brushes.value, axes());
      const judged = rank(run);
      const own = judged === null ? pen.colour('--soft') : (ramp[stepOf(judged)] ?? '');
      dot(pen, place, isInside ? own : pen.colour('--line'), run.job === near.value ? 7 : 4);
    }
    const first = best();
    const place = first && placeOf(first);
    if (place) ring(pen, place);
    if (drawn.value) rectangle(pen, drawn.value);
  }

  /** @param {PointerEvent} event */
  function nearest(event) {
    /** @type {Outcome | null} */
    let found = null;
    let distance = REACH_PX;
    for (const run of runs()) {
      const place = placeOf(run);
      const far = place ? Math.hypot(place[0] - event.offsetX, place[1] - event.offsetY) : Infinity;
      if (far < distance) [found, distance] = [run, far];
    }
    return found;
  }

  /** @param {[number, number, number, number]} box */
  function brush([left, top, right, bottom]) {
    const across = (/** @type {number} */ px) => (px - EDGE.left) / (width - EDGE.left - EDGE.right);
    const up = (/** @type {number} */ px) => (HEIGHT - EDGE.bottom - px) / (HEIGHT - EDGE.top - EDGE.bottom);
    const [one, two] = [across(Math.min(left, right)), across(Math.max(left, right))];
    const [low, high] = [up(Math.max(top, bottom)), up(Math.min(top, bottom))];
    brushes.value = {...brushes.peek(), [x()]: [one, two], [y()]: [low, high]};
  }

  const element = canvas({
    draw,
    height: HEIGHT,
    label: () => `${y()} over ${x()} of ${runs().length} runs`,
    props: {
      class: 'chart brushed',
      onpointerdown: (/** @type {PointerEvent} */ event) => {
        drawn.value = [event.offsetX, event.offsetY, event.offsetX, event.offsetY];
        element.setPointerCapture(event.pointerId);
      },
      onpointermove: (/** @type {PointerEvent} */ event) => {
        const box = drawn.peek();
        if (box) drawn.value = [box[0], box[1], event.offsetX, event.offsetY];
        else near.value = nearest(event)?.job ?? null;
      },
      onpointerup: (/** @type {PointerEvent} */ event) => {
        const box = drawn.peek();
        drawn.value = null;
        if (box && Math.hypot(box[2] - box[0], box[3] - box[1]) >= SMALLEST_PX) brush(box);
        else {
          const run = nearest(event);
          if (run) go(`/jobs/${run.job}`);
          else {
            const {[x()]: _x, [y()]: _y, ...rest} = brushes.peek();
            brushes.value = rest;
          }
        }
      },
      onpointerleave: () => (near.value = null),
    },
  });
  return h('figure', {class: 'chart-box'}, element, h('figcaption', {class: 'chart-tip', hidden: () => near.value === null}, () => describe(runs().find((run) => run.job === near.value) ?? null, x(), y())));
}

/**
 * @param {Outcome | null} run
 * @param {string} x
 * @param {string} y
 */
function describe(run, x, y) {
  if (!run) return '';
  return `job ${run.job} · ${x} ${cell(valueOf(run, x))} · ${y} ${cell(valueOf(run, y))}`;
}

/**
 * @param {Pen} pen
 * @param {Axis | undefined} across
 * @param {Axis | undefined} up
 * @param {(part: number) => number} toX
 * @param {(part: number) => number} toY
 */
function drawFrame(pen, across, up, toX, toY) {
  const {context} = pen;
  context.strokeStyle = pen.colour('--line');
  context.lineWidth = 1;
  for (const tick of up?.ticks ?? []) {
    const place = Math.round(toY(tick.place)) + 0.5;
    context.beginPath();
    context.moveTo(EDGE.left - LABELS_PX / 2, place);
    context.lineTo(pen.width - EDGE.right, place);
    context.stroke();
    write(pen, tick.label.slice(0, 9), EDGE.left - LABELS_PX, place, '--soft', 'right');
  }
  for (const tick of across?.ticks ?? []) writeInside(pen, tick.label.slice(0, 12), toX(tick.place), HEIGHT - EDGE.bottom + LABELS_PX + 3);
  write(pen, across ? `${across.name}${across.isLog ? ' (log)' : ''}` : '', pen.width / 2, HEIGHT - 8, '--ink', 'center');
}

/**
 * @param {Pen} pen
 * @param {[number, number]} place
 * @param {string} colour
 * @param {number} radius
 */
function dot({context}, [x, y], colour, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fillStyle = colour;
  context.globalAlpha = 0.85;
  context.fill();
  context.globalAlpha = 1;
}

/**
 * @param {Pen} pen
 * @param {[number, number]} place
 */
function ring({context, colour}, [x, y]) {
  context.beginPath();
  context.arc(x, y, 8, 0, 7);
  context.strokeStyle = colour('--ink');
  context.lineWidth = 2;
  context.stroke();
}

/**
 * @param {Pen} pen
 * @param {[number, number, number, number]} box
 */
function rectangle({context, colour}, [left, top, right, bottom]) {
  context.fillStyle = colour('--accent');
  context.globalAlpha = 0.15;
  context.fillRect(left, top, right - left, bottom - top);
  context.globalAlpha = 1;
  context.strokeStyle = colour('--accent');
  context.strokeRect(left, top, right - left, bottom - top);
}
