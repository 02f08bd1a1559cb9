/** Number of jobs in each state, as a bar and as text. */

import {h} from '/lib/dom.js';
import {count} from '/logic/format.js';

const ORDER = ['done', 'pruned', 'running', 'starting', 'paused', 'suspended', 'failed', 'lost', 'killed', 'skipped', 'waiting', 'held', 'blocked', 'delayed', 'preempted'];

/**
 * @param {Record<string, number>} counts by state
 * @returns {HTMLElement}
 */
export function progress(counts) {
  const present = ORDER.filter((state) => (counts[state] ?? 0) > 0);
  const total = present.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const words = present.map((state) => `${count(counts[state] ?? 0)} ${state}`);
  return h(
    'div',
    {class: 'progress'},
    h('div', {class: 'progress-bar', 'aria-hidden': 'true'}, present.map((state) => h('span', {class: `part ${state}`, style: {flexGrow: String(counts[state])}}))),
    h('div', {class: 'row progress-words'}, h('b', null, `${total ? Math.floor((100 * ((counts.done ?? 0) + (counts.pruned ?? 0))) / total) : 0} %`), words.map((word, index) => h('span', {class: `word ${present[index]}`}, word))),
  );
}
