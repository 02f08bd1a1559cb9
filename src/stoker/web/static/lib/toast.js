/** Short messages about the result of an action. */

import {h} from '/lib/dom.js';
import {RefusedError} from '/lib/connection.js';

const SHOWN_MS = 6000;
const MOST = 4;

const box = h('div', {class: 'toasts', role: 'status', 'aria-live': 'polite'});

/** The element that contains the messages. */
export function toastBox() {
  return box;
}

/**
 * Show a message for some seconds.
 * @param {string} text
 * @param {'done' | 'refused'} [kind]
 */
export function toast(text, kind = 'done') {
  const note = h('div', {class: `toast ${kind}`}, text, h('button', {class: 'plain', 'aria-label': 'Dismiss', onclick: () => note.remove()}, '×'));
  box.append(note);
  while (box.children.length > MOST) box.firstElementChild?.remove();
  if (kind === 'done') setTimeout(() => note.remove(), SHOWN_MS);
}

/**
 * Run an action and show its result.
 * @template T
 * @param {() => Promise<T>} action
 * @param {(answer: T) => string | null} [describe]
 * @returns {Promise<T | undefined>} undefined if it was refused
 */
export async function attempt(action, describe) {
  try {
    const answer = await action();
    const text = describe?.(answer);
    if (text) toast(text);
    return answer;
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    toast(error.message, 'refused');
    return undefined;
  }
}
