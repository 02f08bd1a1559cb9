/** Axes for values of any kind: numbers (linear or logarithmic) and texts. */

import {cell} from '/logic/format.js';
import {extentOf, linearScale, logScale, pointScale, spansDecades} from '/logic/scales.js';

const MOST_WORDS = 24;

/**
 * @typedef {object} Axis
 * @property {string} name
 * @property {boolean} canLog
 * @property {boolean} isLog
 * @property {(value: unknown) => number | null} place null for what is not on it
 * @property {{place: number, label: string}[]} ticks
 */

/**
 * An axis for the values of one parameter or metric.
 * @param {string} name
 * @param {readonly unknown[]} values
 * @param {[number, number]} range
 * @param {boolean} [wantsLog] by default where the values span decades
 * @returns {Axis}
 */
export function makeAxis(name, values, range, wantsLog) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const numbers = known.filter((value) => typeof value === 'number' && Number.isFinite(value));
  if (known.length > 0 && numbers.length === known.length) return numberAxis(name, numbers, range, wantsLog);
  if (numbers.length > known.length / 2) return numberAxis(name, numbers, range, wantsLog);
  return wordAxis(name, known, range);
}

/**
 * @param {string} name
 * @param {readonly unknown[]} numbers
 * @param {[number, number]} range
 * @param {boolean | undefined} wantsLog
 * @returns {Axis}
 */
function numberAxis(name, numbers, range, wantsLog) {
  const extent = extentOf(numbers) ?? [0, 1];
  const canLog = extent[0] > 0 && extent[1] > extent[0];
  const isLog = canLog && (wantsLog ?? spansDecades(numbers));
  const scale = (isLog ? logScale : linearScale)(extent, range);
  return {
    name,
    canLog,
    isLog,
    place: (value) => (typeof value === 'number' && Number.isFinite(value) ? scale.place(value) : null),
    ticks: scale.ticks.map((tick) => ({place: scale.place(tick), label: cell(tick)})),
  };
}

/**
 * @param {string} name
 * @param {readonly unknown[]} known
 * @param {[number, number]} range
 * @returns {Axis}
 */
function wordAxis(name, known, range) {
  const words = [...new Set(known.map(cell))].sort();
  const scale = pointScale(words, range);
  const every = Math.ceil(words.length / MOST_WORDS);
  return {
    name,
    canLog: false,
    isLog: false,
    place: (value) => (value === null || value === undefined ? null : scale.place(cell(value))),
    ticks: words.filter((_word, index) => index % every === 0).map((word) => ({place: scale.place(word), label: word})),
  };
}
