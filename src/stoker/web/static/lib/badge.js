/** Badges with the state of a job, and with its mark. */

import {h} from '/lib/dom.js';

/** All states, in display order. */
export const STATES = ['running', 'starting', 'waiting', 'held', 'blocked', 'delayed', 'paused', 'suspended', 'failed', 'lost', 'killed', 'skipped', 'preempted', 'pruned', 'done'];

/** @typedef {{kind: string, since: number, text: string}} Mark how a running job wastes its GPU */

/**
 * Badge of a running job that wastes its GPU.
 * @param {Mark | null | undefined} found
 */
export function mark(found) {
  return found ? h('span', {class: 'mark', title: found.text}, found.kind) : null;
}

/** @param {string} state */
export function badge(state) {
  return h('span', {class: `state ${STATES.includes(state) ? state : ''}`}, state);
}
