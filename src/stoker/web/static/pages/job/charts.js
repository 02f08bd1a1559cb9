/** What a job that runs uses of its GPU. */

import {h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {watch} from '/lib/connection.js';
import {spark} from '/lib/spark.js';
import {size} from '/logic/format.js';

/**
 * Charts while it is on a GPU; nothing else can be told of it then.
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<boolean>} isOnGpu
 */
export function charts(id, isOnGpu) {
  return h('div', {class: 'columns'}, () => (isOnGpu.value ? draw(id) : null));
}

/** @param {number} id */
function draw(id) {
  const answer = watch('/v1/history', {job: id});
  const usage = computed(() => /** @type {any} */ (answer.value.data) ?? {at: [], mem_bytes: [], utilisation_pct: []});
  const peak = computed(() => Math.max(1, ...usage.value.mem_bytes));
  return [
    h('div', {class: 'card'}, h('h2', null, 'GPU utilisation ', h('span', {class: 'soft'}, () => last(usage.value.utilisation_pct, (value) => `${value} %`))), spark(`Utilisation of the GPU of job ${id}`, () => ({at: usage.value.at, values: usage.value.utilisation_pct, most: 100}), '--accent')),
    h('div', {class: 'card'}, h('h2', null, 'GPU memory ', h('span', {class: 'soft'}, () => last(usage.value.mem_bytes, size))), spark(`Memory of the GPU of job ${id}`, () => ({at: usage.value.at, values: usage.value.mem_bytes, most: peak.value}), '--calm')),
  ];
}

/**
 * @param {(number | null)[]} values
 * @param {(value: number) => string} format
 */
function last(values, format) {
  const value = values.at(-1);
  return value === undefined || value === null ? '' : format(value);
}
