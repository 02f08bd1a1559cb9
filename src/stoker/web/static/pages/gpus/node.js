/** Head of a node of the cluster on the page of the GPUs: its labels, whether it can be reached, and its drain. */

import {h} from '/lib/dom.js';
import {post, watch} from '/lib/connection.js';
import {computed, signal} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {describeNode} from '/logic/nodes.js';

/** @typedef {import('/logic/nodes.js').Node} Node */

/**
 * @param {string} name
 * @param {() => string} summary followed
 */
export function nodeHead(name, summary) {
  const nodes = watch('/v1/nodes');
  const known = computed(() => JSON.stringify(/** @type {Node[]} */ (nodes.value.data ?? []).find((node) => node.name === name) ?? null));
  const node = computed(() => /** @type {Node | null} */ (JSON.parse(known.value)));
  return h(
    'div',
    {class: 'row node-head'},
    h('h2', null, name),
    h('span', {class: 'soft'}, summary),
    () => node.value && Object.entries(node.value.labels).map(([key, value]) => h('span', {class: 'chip-label'}, `${key}=${value}`)),
    () => node.value && h('span', {class: node.value.away ? 'bad' : 'warn'}, describeNode(node.value)),
    h('span', {class: 'spacer'}),
    () => node.value && !node.value.is_head && drain(name, node.value.drained !== null),
  );
}

/** @param {string} name @param {boolean} isDrained */
function drain(name, isDrained) {
  const isAsking = signal(false);
  /** @type {HTMLInputElement} */
  let reason;
  /** @param {string} action @param {string} [why] */
  const order = (action, why = '') => attempt(() => post('/v1/nodes', {action, node: name, reason: why}), () => (action === 'drain' ? `No job starts on ${name}; its running jobs go on.` : `Jobs start on ${name} again.`));
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    order('drain', reason.value.trim());
  };
  const named = () => h('span', {class: 'sr'}, ` node ${name}`);
  if (isDrained) return h('button', {class: 'small-button', onclick: () => order('undrain')}, 'Undrain', named());
  return h('form', {class: 'row', onsubmit: send}, () => (isAsking.value ? [h('input', {'aria-label': `Why node ${name} is drained`, placeholder: 'reason, if you like', size: 18, autofocus: true, ref: (/** @type {HTMLInputElement} */ it) => (reason = it)}), h('button', {class: 'small-button', type: 'submit'}, 'Drain', named())] : h('button', {class: 'small-button', type: 'button', onclick: () => (isAsking.value = true)}, 'Drain …', named())));
}
