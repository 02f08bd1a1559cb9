/** Timeline on a canvas: a row for each GPU; dragging moves it, the wheel zooms. */

import {h} from '/lib/dom.js';
import {canvas} from '/lib/canvas.js';
import {write, writeInside} from '/lib/chart.js';
import {go} from '/lib/router.js';
import {signal} from '/lib/signal.js';
import {absolute, duration} from '/logic/format.js';
import {familyColour} from '/logic/packing.js';
import {timeTicks} from '/logic/timeline.js';

/** @typedef {import('/lib/canvas.js').Pen} Pen */
/** @typedef {import('/logic/timeline.js').Row} Row */
/** @typedef {Row['items'][number]} Placed */
/** @typedef {{left: number, top: number, width: number, height: number, item: Placed, label: string}} Box */

const EDGE = {left: 74, right: 10, top: 8, bottom: 26};
const ROW_PX = [64, 46, 30]; // with few rows, more, and many
const GAP_PX = 6;
const MOST_ROWS = 64;
const SHORTEST_S = 60;
const LONGEST_S = 3_000_000;
const ZOOM = 1.25;
/** @type {Record<string, string>} */
const OUTCOMES = {done: '--good', failed: '--bad', lost: '--bad', killed: '--calm', pruned: '--calm', running: '--accent', starting: '--accent', planned: '--accent'};

/** @param {number} rows */
function rowPx(rows) {
  const [high = 0, usual = 0, low = 0] = ROW_PX;
  return rows <= 8 ? high : rows <= 16 ? usual : low;
}

/**
 * @param {object} options
 * @param {() => readonly Row[]} options.rows followed
 * @param {import('/lib/signal.js').Signal<number>} options.from the time at the left end
 * @param {import('/lib/signal.js').Signal<number>} options.span seconds that are shown
 * @param {import('/lib/signal.js').Signal<number | null>} options.start set when the user moves the chart
 * @param {() => number} options.now
 * @param {() => boolean} options.byOutcome
 * @returns {HTMLElement}
 */
export function timelineChart({rows, from, span, start, now, byOutcome}) {
  const near = signal(/** @type {Box | null} */ (null));
  /** @type {Box[]} */
  let boxes = [];
  let width = 1;
  /** @type {{x: number, from: number, moved: boolean} | null} */
  let held = null;
  const perPx = () => span.peek() / Math.max(1, width - EDGE.left - EDGE.right);

  /** @param {Pen} pen */
  function draw(pen) {
    width = pen.width;
    const toX = (/** @type {number} */ at) => EDGE.left + ((at - from.value) / span.value) * (pen.width - EDGE.left - EDGE.right);
    boxes = rows().slice(0, MOST_ROWS).flatMap((row, index) => layOut(row, index, rowPx(rows().length), toX, pen.width));
    drawGrid(pen, rows().slice(0, MOST_ROWS), from.value, span.value, toX);
    pen.context.save();
    pen.context.beginPath();
    pen.context.rect(EDGE.left, 0, pen.width - EDGE.left - EDGE.right, pen.height);
    pen.context.clip();
    for (const box of boxes) drawBox(pen, box, colourOf(box.item, byOutcome()), toX, box.item.job === near.value?.item.job);
    drawNow(pen, toX(now()));
    pen.context.restore();
  }

  /** @param {number} factor @param {number} x */
  function zoom(factor, x) {
    const next = Math.min(LONGEST_S, Math.max(SHORTEST_S, span.peek() * factor));
    const share = (x - EDGE.left) / Math.max(1, width - EDGE.left - EDGE.right);
    // While the chart follows the time, now stays where it is.
    if (start.peek() !== null) start.value = from.peek() + share * (span.peek() - next);
    span.value = next;
  }

  /** @param {KeyboardEvent} event */
  function steer(event) {
    const step = span.peek() / 8;
    if (event.key === 'ArrowLeft') start.value = from.peek() - step;
    else if (event.key === 'ArrowRight') start.value = from.peek() + step;
    else if (event.key === '+' || event.key === '=') zoom(1 / ZOOM, width / 2);
    else if (event.key === '-') zoom(ZOOM, width / 2);
    else if (event.key === 'Home') start.value = null;
    else return;
    event.preventDefault();
  }

  const element = canvas({
    draw,
    height: () => EDGE.top + EDGE.bottom + Math.max(1, Math.min(MOST_ROWS, rows().length)) * rowPx(rows().length),
    label: () => describe(rows()),
    props: {
      tabindex: 0,
      onkeydown: steer,
      onwheel: (/** @type {WheelEvent} */ event) => {
        if (event.shiftKey) start.value = from.peek() + event.deltaY * perPx();
        else zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, event.offsetX);
        event.preventDefault();
      },
      onpointerdown: (/** @type {PointerEvent} */ event) => {
        held = {x: event.offsetX, from: from.peek(), moved: false};
        element.setPointerCapture(event.pointerId);
      },
      onpointermove: (/** @type {PointerEvent} */ event) => {
        if (!held) {
          near.value = boxAt(boxes, event.offsetX, event.offsetY);
          return;
        }
        held.moved ||= Math.abs(event.offsetX - held.x) > 3;
        if (held.moved) start.value = held.from - (event.offsetX - held.x) * perPx();
      },
      onpointerup: (/** @type {PointerEvent} */ event) => {
        const box = held && !held.moved ? boxAt(boxes, event.offsetX, event.offsetY) : null;
        held = null;
        if (box && box.item.job > 0) go(`/jobs/${box.item.job}`);
      },
      onpointerleave: () => (near.value = null),
    },
  });
  return h('figure', {class: 'chart-box'}, element, h('figcaption', {class: 'chart-tip', hidden: () => near.value === null}, () => (near.value ? describeItem(near.value) : '')));
}

/**
 * @param {Row} row
 * @param {number} index
 * @param {number} tall pixels of a row
 * @param {(at: number) => number} toX
 * @param {number} width
 * @returns {Box[]}
 */
function layOut({label, lanes, items}, index, tall, toX, width) {
  const high = (tall - GAP_PX) / lanes;
  return items.flatMap((item) => {
    const [left, right] = [toX(item.from), toX(item.to)];
    if (right < EDGE.left || left > width) return [];
    return [{left, top: EDGE.top + index * tall + item.lane * high, width: Math.max(1.5, right - left), height: Math.max(1.5, high - 1), item, label}];
  });
}

/** @param {Placed} item @param {boolean} byOutcome */
function colourOf({job, name, project, state}, byOutcome) {
  if (job < 0) return '--accent'; // not in the queue yet
  return byOutcome ? (OUTCOMES[state] ?? '--warn') : `--hue${familyColour(name, project)}`;
}

/**
 * @param {Pen} pen
 * @param {Box} box
 * @param {string} colour
 * @param {(at: number) => number} toX
 * @param {boolean} isNear
 */
function drawBox(pen, {left, top, width, height, item}, colour, toX, isNear) {
  const {context} = pen;
  context.fillStyle = pen.colour(colour);
  const sure = item.surely === null ? 0 : Math.max(0, Math.min(width, toX(item.surely) - left));
  context.globalAlpha = isNear ? 0.85 : 0.6;
  context.fillRect(left, top, Math.max(item.surely === null ? 0 : 1.5, sure), height);
  context.globalAlpha = isNear ? 0.4 : 0.18;
  context.fillRect(left + sure, top, width - sure, height);
  context.globalAlpha = 1;
  if (item.surely === null && width > 4) {
    context.strokeStyle = pen.colour(colour);
    context.setLineDash([3, 3]);
    context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    context.setLineDash([]);
  }
  if (item.state === 'failed' || item.state === 'lost') {
    context.fillStyle = pen.colour('--bad');
    context.fillRect(left + width - 3, top, 3, height);
  }
  if (width > 46 && height > 11) label(pen, left, top, width, height, item.job < 0 ? 'new' : `${item.job} ${item.name ?? ''}`);
}

/** @param {Pen} pen @param {number} left @param {number} top @param {number} width @param {number} height @param {string} text */
function label(pen, left, top, width, height, text) {
  const {context} = pen;
  const inner = Math.max(left, EDGE.left) + 5;
  context.save();
  context.beginPath();
  context.rect(left, top, width - 4, height);
  context.clip();
  write(pen, text, inner, top + height / 2, '--ink', 'left');
  context.restore();
}

/**
 * @param {Pen} pen
 * @param {readonly Row[]} rows
 * @param {number} from
 * @param {number} span
 * @param {(at: number) => number} toX
 */
function drawGrid(pen, rows, from, span, toX) {
  const {context} = pen;
  const bottom = pen.height - EDGE.bottom;
  const tall = rowPx(rows.length);
  for (const [index, {label: name}] of rows.entries()) {
    const top = EDGE.top + index * tall;
    context.fillStyle = pen.colour('--ground');
    context.fillRect(EDGE.left, top, pen.width - EDGE.left - EDGE.right, tall - GAP_PX);
    const shown = name.length > 9 ? `…${name.slice(-8)}` : `GPU ${name}`;
    write(pen, shown, EDGE.left - 8, top + (tall - GAP_PX) / 2, '--ink', 'right');
  }
  const {ticks, step} = timeTicks(from, from + span, Math.max(2, (pen.width - EDGE.left) / 110));
  context.strokeStyle = pen.colour('--line');
  for (const tick of ticks) {
    const x = Math.round(toX(tick)) + 0.5;
    context.beginPath();
    context.moveTo(x, EDGE.top);
    context.lineTo(x, bottom);
    context.stroke();
    writeInside(pen, tickText(tick, step), x, pen.height - 10);
  }
}

/** @param {number} at @param {number} step */
function tickText(at, step) {
  const [day = '', time = ''] = absolute(at).split(' ');
  if (step >= 86400 || time === '00:00:00') return day.slice(5);
  return step < 60 ? time : time.slice(0, 5);
}

/** @param {Pen} pen @param {number} x */
function drawNow(pen, x) {
  const {context} = pen;
  context.strokeStyle = pen.colour('--bad');
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x, EDGE.top - 4);
  context.lineTo(x, pen.height - EDGE.bottom);
  context.stroke();
  context.lineWidth = 1;
}

/** @param {readonly Box[]} boxes @param {number} x @param {number} y */
function boxAt(boxes, x, y) {
  if (x < EDGE.left) return null;
  return boxes.findLast(({left, top, width, height}) => x >= left - 1 && x <= left + width + 1 && y >= top && y <= top + height) ?? null;
}

/** @param {Box} box */
function describeItem({item, label: gpu}) {
  const {job, name, project, state, from, to, surely} = item;
  const who = `${job < 0 ? 'a new job' : `job ${job}`}${name ? ` ${name}` : ''}${project ? ` (${project})` : ''}`;
  const clock = (/** @type {number} */ at) => absolute(at).slice(11);
  if (surely === null) return `${who} is expected on GPU ${gpu} from ~${clock(from)} to ~${clock(to)}`;
  return `${who}, ${state} on GPU ${gpu}, ${clock(from)}, ${duration(surely - from)}${to > surely ? `, until ~${clock(to)}` : ''}`;
}

/** @param {readonly Row[]} rows */
function describe(rows) {
  const items = rows.flatMap((row) => row.items);
  const count = (/** @type {(item: Placed) => boolean} */ is) => items.filter(is).length;
  return `Timeline of ${rows.length} GPUs: ${count(({surely, to}) => surely === to)} attempts have ended, ${count(({surely, to}) => surely !== null && surely !== to)} run, ${count(({surely}) => surely === null)} are expected. Arrow keys move it, plus and minus zoom, Home follows the time.`;
}
