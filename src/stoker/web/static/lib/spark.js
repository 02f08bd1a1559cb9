/** A small curve over the last minutes. */

import {h} from '/lib/dom.js';
import {effect, onCleanup} from '/lib/signal.js';

/**
 * @typedef {object} Curve
 * @property {readonly number[]} at seconds, rising
 * @property {readonly (number | null)[]} values
 * @property {number} most what the full height means
 * @property {number} [mark] a line across, as for what is reserved
 */

/**
 * A curve that is redrawn when its data changes.
 * @param {string} label its text alternative
 * @param {() => Curve} read
 * @param {string} colour the name of a custom property
 * @param {{fill?: boolean}} [look]
 * @returns {HTMLElement}
 */
export function spark(label, read, colour, {fill = true} = {}) {
  const canvas = h('canvas', {class: 'spark', role: 'img', 'aria-label': label});
  let curve = /** @type {Curve} */ ({at: [], values: [], most: 1});
  const paint = () => draw(canvas, curve, colour, fill);
  effect(() => {
    curve = read();
    paint();
  });
  const observer = new ResizeObserver(paint);
  observer.observe(canvas);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const themes = new MutationObserver(paint);
  themes.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
  scheme.addEventListener('change', paint);
  onCleanup(() => {
    observer.disconnect();
    themes.disconnect();
    scheme.removeEventListener('change', paint);
  });
  return canvas;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Curve} curve
 * @param {string} colour
 * @param {boolean} fill whether the ground below the curve has its colour too
 */
function draw(canvas, {at, values, most, mark}, colour, fill) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const pen = canvas.getContext('2d');
  if (!width || !pen) return;
  if (canvas.width !== width * ratio) canvas.width = width * ratio;
  if (canvas.height !== height * ratio) canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const styles = getComputedStyle(canvas);
  const ink = styles.getPropertyValue(colour);
  /** @param {number} value */
  const y = (value) => height - 1 - (Math.min(value, most) / (most || 1)) * (height - 2);
  if (mark !== undefined) {
    pen.strokeStyle = styles.getPropertyValue('--soft');
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(0, y(mark));
    pen.lineTo(width, y(mark));
    pen.stroke();
    pen.setLineDash([]);
  }
  const [first, last] = [at[0] ?? 0, at.at(-1) ?? 1];
  /** @param {number} moment */
  const x = (moment) => ((moment - first) / (last - first || 1)) * width;
  pen.beginPath();
  let from = 0;
  let open = false;
  for (const [index, value] of values.entries()) {
    const moment = at[index] ?? 0;
    if (value === null) {
      open = false;
      continue;
    }
    if (open) pen.lineTo(x(moment), y(value));
    else {
      pen.moveTo(x(moment), y(value));
      from ||= moment;
    }
    open = true;
  }
  pen.strokeStyle = ink;
  pen.lineWidth = 1.5;
  pen.stroke();
  if (!fill) return;
  pen.lineTo(width, height);
  pen.lineTo(x(from || first), height);
  pen.globalAlpha = 0.15;
  pen.fillStyle = ink;
  pen.fill();
  pen.globalAlpha = 1;
}
