/** How the table of jobs looks: dense or not, and its columns. Kept by the browser. */

import {h} from '/lib/dom.js';
import {signal} from '/lib/signal.js';

const KEY = 'stoker.jobs';
const COLUMNS = ['Project', 'GPU', 'Priority', 'When', 'Ran'];

/** @typedef {{dense: boolean, hidden: string[]}} Look */

/** @returns {Look} */
function read() {
  try {
    const {dense, hidden} = JSON.parse(localStorage.getItem(KEY) ?? '{}');
    return {dense: dense === true, hidden: Array.isArray(hidden) ? hidden.filter((each) => COLUMNS.includes(each)) : []};
  } catch {
    return {dense: false, hidden: []};
  }
}

export const look = signal(read());

/** @param {Partial<Look>} change */
function set(change) {
  look.value = {...look.peek(), ...change};
  localStorage.setItem(KEY, JSON.stringify(look.peek()));
}

/** The classes of the table. */
export function lookClass() {
  return ['jobs', look.value.dense && 'dense', ...look.value.hidden.map((title) => `without-${title.toLowerCase()}`)].filter(Boolean).join(' ');
}

/** Buttons for the row of filters. */
export function lookTools() {
  /** @param {string} title */
  const turn = (title) => set({hidden: look.peek().hidden.includes(title) ? look.peek().hidden.filter((each) => each !== title) : [...look.peek().hidden, title]});
  const isOpen = signal(false);
  return h(
    'div',
    {class: 'row look'},
    h('button', {class: 'toggle', type: 'button', 'aria-pressed': () => String(look.value.dense), onclick: () => set({dense: !look.peek().dense})}, 'Dense'),
    h('details', {class: 'menu', ontoggle: (/** @type {any} */ event) => (isOpen.value = event.target.open)}, h('summary', null, 'Columns'), () => isOpen.value && h('ul', null, COLUMNS.map((title) => h('li', null, h('label', null, h('input', {type: 'checkbox', checked: () => !look.value.hidden.includes(title), onchange: () => turn(title)}), ` ${title}`))))),
  );
}
