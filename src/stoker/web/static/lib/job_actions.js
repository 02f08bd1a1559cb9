/** Actions on jobs, with the verbs of the command line. */

import {h} from '/lib/dom.js';
import {post} from '/lib/connection.js';
import {attempt, toast} from '/lib/toast.js';
import {count} from '/logic/format.js';

/** @typedef {{ids: number[], refused: {id: number, reason: string}[]}} Changed */

/** @type {Record<string, [string, string]>} the message for one job, and for several */
const DONE = {
  kill: ['is being ended', 'are being ended'],
  retry: ['will run again', 'will run again'],
  hold: ['is held', 'are held'],
  release: ['is released', 'are released'],
  rm: ['is removed', 'are removed'],
  set: ['is changed', 'are changed'],
  start: ['starts next', 'start next'],
  pause: ['is paused', 'are paused'],
  resume: ['continues', 'continue'],
  suspend: ['is suspended', 'are suspended'],
};

/**
 * Run a verb on jobs and show the result.
 * @param {string} verb
 * @param {readonly number[]} ids
 * @param {object} [more]
 */
export async function order(verb, ids, more = {}) {
  const body = {ids: ids.join(','), ...more};
  /** @type {Changed | undefined} */
  const changed = await attempt(() => post(`/v1/${verb}`, body), (/** @type {Changed} */ answer) => describe(verb, answer));
  const [first] = changed?.refused ?? [];
  if (first) {
    const others = (changed?.refused.length ?? 0) - 1;
    toast(`${first.reason.startsWith('job ') ? '' : `job ${first.id}: `}${first.reason}${others ? ` (and ${others} more)` : ''}`, 'refused');
  }
  return changed;
}

/**
 * @param {string} verb
 * @param {Changed} changed
 */
function describe(verb, changed) {
  if (!changed.ids.length) return null;
  const [only, ...others] = changed.ids;
  const [one, several] = DONE[verb] ?? ['is done', 'are done'];
  return others.length ? `${count(changed.ids.length)} jobs ${several}` : `job ${only} ${one}`;
}

/**
 * Ask for confirmation of an action that cannot be undone.
 * @param {string} question
 * @param {string} yes
 * @returns {Promise<boolean>}
 */
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    /** @param {boolean} answer */
    const answer = (answer) => () => {
      dialog.remove();
      resolve(answer);
    };
    const dialog = h(
      'dialog',
      {class: 'card', 'aria-labelledby': 'question', oncancel: answer(false)},
      h('p', {id: 'question'}, question),
      h('div', {class: 'row'}, h('button', {autofocus: true, onclick: answer(false)}, 'Cancel'), h('button', {class: 'danger', onclick: answer(true)}, yes)),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
