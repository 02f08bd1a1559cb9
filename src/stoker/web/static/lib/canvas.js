/** A canvas that is redrawn when its size, the colours or its data change. */

import {h} from '/lib/dom.js';
import {effect, onCleanup, signal} from '/lib/signal.js';

/**
 * @typedef {object} Pen
 * @property {CanvasRenderingContext2D} context
 * @property {number} width in CSS pixels
 * @property {number} height
 * @property {(name: string) => string} colour of a custom property, as `--accent`
 */

const SMALL = '12px system-ui, sans-serif';

/**
 * @param {object} options
 * @param {(pen: Pen) => void} options.draw what it reads of signals is followed
 * @param {number | (() => number)} options.height
 * @param {() => string} options.label what a reader who cannot see it gets
 * @param {Record<string, any>} [options.props] of the canvas: listeners and the like
 * @returns {HTMLCanvasElement}
 */
export function canvas({draw, height, label, props = {}}) {
  const high = typeof height === 'number' ? () => height : height;
  const element = h('canvas', {class: 'chart', role: 'img', 'aria-label': label, style: () => ({height: `${high()}px`}), ...props});
  const context = /** @type {CanvasRenderingContext2D} */ (element.getContext('2d'));
  const version = signal(0);

  function paint() {
    const width = element.clientWidth;
    if (width === 0) return;
    const ratio = devicePixelRatio || 1;
    const tall = high();
    const [wide, deep] = [Math.round(width * ratio), Math.round(tall * ratio)];
    if (element.width !== wide || element.height !== deep) [element.width, element.height] = [wide, deep];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    context.font = SMALL;
    const style = getComputedStyle(element);
    draw({context, width, height: tall, colour: (name) => style.getPropertyValue(name)});
  }

  const redraw = () => (version.value = version.peek() + 1);

  const sizes = new ResizeObserver(redraw);
  sizes.observe(element);
  const themes = new MutationObserver(redraw);
  themes.observe(document.documentElement, {attributes: true, attributeFilter: ['data-theme']});
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', redraw);
  onCleanup(() => {
    sizes.disconnect();
    themes.disconnect();
    dark.removeEventListener('change', redraw);
  });
  effect(() => {
    version.value;
    paint();
  });
  return element;
}
