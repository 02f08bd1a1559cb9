/** The time of day as a signal, so that "3 s ago" stays true. */

import {signal} from '/lib/signal.js';
import {h} from '/lib/dom.js';
import {absolute, duration, relative} from '/logic/format.js';

/** Seconds of the Unix epoch, anew each second while the page is looked at. */
export const now = signal(Date.now() / 1000);

setInterval(() => {
  if (document.visibilityState === 'visible') now.value = Date.now() / 1000;
}, 1000);

/**
 * A moment, seen from now; the clock's own words appear when it is pointed at.
 * @param {number | null | undefined} at
 */
export function moment(at) {
  if (at === null || at === undefined) return h('span', {class: 'soft'}, '–');
  return h('time', {datetime: new Date(at * 1000).toISOString(), title: absolute(at)}, () => relative(at, now.value));
}

/**
 * A moment by the clock, and seen from now: for where there is room for both.
 * @param {number} at
 */
export function bothWays(at) {
  return [h('span', {class: 'clock'}, absolute(at)), ' ', h('span', {class: 'soft'}, '(', moment(at), ')')];
}

/**
 * How long something took, or takes until now.
 * @param {number | null | undefined} from
 * @param {number | null | undefined} to
 */
export function span(from, to) {
  if (from === null || from === undefined) return h('span', {class: 'soft'}, '–');
  if (to !== null && to !== undefined) return h('span', null, duration(to - from));
  return h('span', null, () => duration(now.value - from));
}
