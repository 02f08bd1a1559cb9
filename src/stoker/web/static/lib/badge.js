/** Badge with the state of a job. */

import {h} from '/lib/dom.js';

/** All states, in display order. */
export const STATES = ['running', 'starting', 'waiting', 'held', 'blocked', 'delayed', 'paused', 'suspended', 'failed', 'lost', 'killed', 'skipped', 'preempted', 'done'];

/** @param {string} state */
export function badge(state) {
  return h('span', {class: `state ${STATES.includes(state) ? state : ''}`}, state);
}
