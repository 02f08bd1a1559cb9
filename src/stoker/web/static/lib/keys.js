/** Keyboard shortcuts; `?` lists them. */

import {onCleanup} from '/lib/signal.js';

/** @typedef {{keys: string, meaning: string, act: (event: KeyboardEvent) => void}} Shortcut */

/** @type {Set<Shortcut>} */
const shortcuts = new Set();
let before = '';

/**
 * Register a key (`j`, `?`, `Escape`) or a sequence (`g j`) while the present page is shown.
 * @param {string} keys
 * @param {string} meaning
 * @param {(event: KeyboardEvent) => void} act
 */
export function shortcut(keys, meaning, act) {
  const entry = {keys, meaning, act};
  shortcuts.add(entry);
  onCleanup(() => shortcuts.delete(entry));
}

/** All present shortcuts. */
export function listShortcuts() {
  return [...shortcuts];
}

addEventListener('keydown', (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  const pair = `${before} ${event.key}`;
  const found = [...shortcuts].find(({keys}) => keys === pair) ?? [...shortcuts].find(({keys}) => keys === event.key);
  before = found ? '' : event.key;
  if (found) {
    event.preventDefault();
    found.act(event);
  }
});

/** @param {KeyboardEvent} event */
function isTyping(event) {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  if (document.querySelector('dialog[open]')) return true;
  if (event.key === 'Escape') return false;
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
}
