/**
 * Log view: shows a log like a terminal, with colours, progress bars, search and live updates.
 *
 * Only the visible rows are in the document. The output of a job becomes text and styles, never markup.
 */

import {h} from '/lib/dom.js';
import {download, follow} from '/lib/connection.js';
import {shortcut} from '/lib/keys.js';
import {effect, onCleanup, signal} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {count, plural, size} from '/logic/format.js';
import {Lines, piecesOf, textOf} from '/logic/lines.js';
import {markPieces, Search} from '/logic/search.js';
import {lookOf, paletteColour} from '/logic/styles.js';

const ROW_PX = 18;
const SPARE_ROWS = 20;
// The part of a log that is loaded first; the rest can be downloaded.
const TAIL_LINES = 100_000;
// After a chunk of full size more will follow at once, so drawing waits.
const FULL_BYTES = 64 * 1024;
const LATER_MS = 100;

/** @typedef {import('/lib/connection.js').LogReader} LogReader */
/** @typedef {import('/logic/lines.js').Line} Line */

/**
 * The log of an attempt, by default the last one.
 * @param {{job: number | string, attempt?: number}} whose
 * @returns {HTMLElement}
 */
export function jobLog({job, attempt: number}) {
  const name = number ? `job-${job}.${number}.log` : `job-${job}.log`;
  return logView({
    source: (reader) => follow({job, attempt: number, tail: TAIL_LINES}, reader),
    save: async () => saveAs(await download({job, attempt: number}), name),
  });
}

/**
 * Handlers for the data of a log.
 * @param {{source: (reader: LogReader) => void, save?: () => Promise<void>}} options
 * @returns {HTMLElement}
 */
export function logView({source, save}) {
  const lines = new Lines();
  const search = new Search(lines);
  const decoder = new TextDecoder();
  const following = signal(true);
  const found = signal('');
  const summary = signal('');
  /** @type {Map<number, {line: Line, length: number, words: string, element: HTMLElement}>} */
  const rows = new Map();
  let [left, planned, isOver, drawnTop] = [0, false, false, -1];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let later;

  const inside = h('div', {class: 'log-rows'});
  const spacer = h('div', {class: 'log-spacer'}, inside);
  const view = h('div', {class: 'log-view', tabindex: 0, role: 'region', 'aria-label': 'Log', onscroll: scrolled, onwheel: wheeled}, spacer);
  const field = h('input', {
    type: 'search', placeholder: 'Search (/)', 'aria-label': 'Search the log', oninput: () => look(0),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Enter') look(event.shiftKey ? -1 : 1);
    },
  });

  function draw() {
    planned = false;
    const total = lines.length;
    spacer.style.height = `${total * ROW_PX}px`;
    if (following.peek()) view.scrollTop = view.scrollHeight;
    drawnTop = view.scrollTop;
    const first = Math.max(0, Math.floor(view.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(total, Math.ceil((view.scrollTop + view.clientHeight) / ROW_PX) + SPARE_ROWS);
    for (const [index, row] of rows) {
      if (index < first || index >= last) {
        row.element.remove();
        rows.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) place(index);
    summary.value = describe(lines, left, isOver);
    found.value = search.describe();
  }

  /** @param {number} index */
  function place(index) {
    const line = lines.rows[index] ?? '';
    const known = rows.get(index);
    const length = textOf(line).length;
    const isCurrent = search.row === index;
    const words = `${search.words}\n${isCurrent}`;
    if (known && known.line === line && known.length === length && known.words === words) return;
    const element = h('div', {class: isCurrent ? 'log-row current' : 'log-row'});
    element.style.top = `${index * ROW_PX}px`;
    for (const [text, look, isMarked] of markPieces(piecesOf(line), search.words)) element.append(piece(text, look, isMarked));
    if (known) known.element.replaceWith(element);
    else inside.append(element);
    rows.set(index, {line, length, words, element});
  }

  function plan() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(draw);
  }

  function planLater() {
    later ??= setTimeout(() => {
      later = undefined;
      plan();
    }, LATER_MS);
  }

  function scrolled() {
    const top = view.scrollTop;
    if (top === drawnTop) return; // the user did not scroll
    const below = view.scrollHeight - view.clientHeight - top;
    if (top > drawnTop) following.value ||= below <= ROW_PX;
    else if (below >= 1) following.value = false; // otherwise only the view became larger
    plan();
  }

  /**
   * Any upward scroll stops following, so that the next line does not undo it.
   * @param {WheelEvent} event
   */
  function wheeled(event) {
    if (event.deltaY < 0 && view.scrollHeight > view.clientHeight) following.value = false;
  }

  /** @param {number} step 0: from here on, for new words */
  function look(step) {
    const top = Math.floor(view.scrollTop / ROW_PX);
    const row = step === 0 ? search.begin(field.value, following.peek() ? 0 : top) : search.step(step);
    if (row !== null) {
      following.value = false;
      view.scrollTop = Math.max(0, row * ROW_PX - view.clientHeight / 2);
    }
    plan();
  }

  source({
    begin({offset}) {
      left = left || offset;
    },
    data(bytes) {
      const dropped = lines.dropped;
      search.extend(lines.feed(decoder.decode(bytes, {stream: true})));
      if (lines.dropped !== dropped) clear();
      if (bytes.length < FULL_BYTES) plan();
      else planLater();
    },
    end() {
      isOver = true;
      plan();
    },
    problem(problem) {
      summary.value = problem.detail;
    },
  });

  function clear() {
    for (const row of rows.values()) row.element.remove();
    rows.clear();
  }

  effect(() => {
    if (following.value) plan();
  });
  shortcut('/', 'search the log', () => field.focus());
  shortcut('f', 'follow the log', () => (following.value = !following.peek()));
  const sizes = new ResizeObserver(plan);
  sizes.observe(view);
  onCleanup(() => {
    sizes.disconnect();
    clearTimeout(later);
  });

  return h(
    'div',
    {class: 'log'},
    h(
      'div',
      {class: 'row log-tools'},
      field,
      h('button', {class: 'plain', 'aria-label': 'Previous match', title: 'Previous match (Shift Enter)', onclick: () => look(-1)}, '↑'),
      h('button', {class: 'plain', 'aria-label': 'Next match', title: 'Next match (Enter)', onclick: () => look(1)}, '↓'),
      h('span', {class: 'soft', role: 'status'}, () => found.value),
      h('span', {class: 'spacer'}),
      h('span', {class: 'soft log-summary'}, () => summary.value),
      h('button', {'aria-pressed': () => String(following.value), title: 'Follow the end (f)', onclick: () => (following.value = !following.peek())}, 'Follow'),
      save && h('button', {onclick: () => attempt(save)}, 'Download'),
    ),
    view,
  );
}

/**
 * Save a file with the browser.
 * @param {Blob} blob
 * @param {string} name
 */
export function saveAs(blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = h('a', {href: address, download: name});
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/**
 * @param {Lines} lines
 * @param {number} left bytes before what was asked for
 * @param {boolean} isOver
 */
function describe(lines, left, isOver) {
  if (lines.length === 0) return isOver ? 'The log is empty.' : 'No output yet.';
  const parts = [plural(lines.length, 'line')];
  if (left > 0) parts.push(`${size(left)} before them: download`);
  if (lines.dropped > 0) parts.push(`${count(lines.dropped)} older ones left out`);
  if (lines.cut > 0) parts.push(`long lines cut: ${plural(lines.cut, 'character')} left out`);
  return parts.join(' · ');
}

/**
 * @param {string} text
 * @param {number} number
 * @param {boolean} isMarked
 * @returns {Node}
 */
function piece(text, number, isMarked) {
  if (number === 0 && !isMarked) return document.createTextNode(text);
  const element = document.createElement(isMarked ? 'mark' : 'span');
  element.textContent = text;
  if (number !== 0) dress(element, number);
  return element;
}

/**
 * @param {HTMLElement} element
 * @param {number} number
 */
function dress(element, number) {
  const look = lookOf(number);
  const [front, back] = look.inverse ? [look.bg ?? 'ground', look.fg ?? 'ink'] : [look.fg, look.bg];
  colour(element, 'color', 'f', front);
  colour(element, 'backgroundColor', 'b', back);
  for (const name of /** @type {const} */ (['bold', 'dim', 'italic', 'underline', 'strike'])) {
    if (look[name]) element.classList.add(`t-${name}`);
  }
}

/**
 * @param {HTMLElement} element
 * @param {'color' | 'backgroundColor'} property
 * @param {string} letter
 * @param {number | string | null} value
 */
function colour(element, property, letter, value) {
  if (value === null) return;
  if (typeof value === 'string' && value.startsWith('#')) element.style[property] = value;
  else if (typeof value === 'number' && value > 15) element.style[property] = paletteColour(value);
  else element.classList.add(`${letter}-${value}`);
}
