/** The time of day as a signal, so that "3 s ago" stays true. */

import {signal} from '/lib/signal.js';
import {h} from '/lib/dom.js';
import {absolute, duration, relative} from '/logic/format.js';

/** Seconds since the Unix epoch, updated each second while the page is visible. */
export const now = signal(Date.now() / 1000);

setInterval(() => {
  if (document.visibilityState === 'visible') now.value = Date.now() / 1000;
}, 1000);

/**
 * A time relative to now; its tooltip shows the clock time.
 * @param {number | null | undefined} at
 */
export function moment(at) {
  if (at === null || at === undefined) return h('span', {class: 'soft'}, '–');
  return h('time', {datetime: new Date(at * 1000).toISOString(), title: absolute(at)}, () => relative(at, now.value));
}

/**
 * A clock time and its distance from now.
 * @param {number} at
 */
export function bothWays(at) {
  return [h('span', {class: 'clock'}, absolute(at)), ' ', h('span', {class: 'soft'}, '(', moment(at), ')')];
}

/**
 * How long something took, or has taken so far.
 * @param {number | null | undefined} from
 * @param {number | null | undefined} to
 */
export function span(from, to) {
  if (from === null || from === undefined) return h('span', {class: 'soft'}, '–');
  if (to !== null && to !== undefined) return h('span', null, duration(to - from));
  return h('span', null, () => duration(now.value - from));
}
