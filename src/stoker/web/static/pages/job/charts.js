/** Charts of the GPU use of a job. */

import {h} from '/lib/dom.js';
import {computed, effect, signal} from '/lib/signal.js';
import {get, watch} from '/lib/connection.js';
import {spark} from '/lib/spark.js';
import {duration, size} from '/logic/format.js';

const LEAST_BYTES = 2 ** 30; // so that small amounts look small

/** @typedef {{at: number[], mem_bytes: (number | null)[], utilisation_pct: (number | null)[]}} History */

/**
 * Charts of the last minutes on a GPU. For a job that has ended they are loaded once: a watch would keep the
 * daemon sampling GPUs.
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<boolean>} isOnGpu
 */
export function charts(id, isOnGpu) {
  const seen = signal(/** @type {History | null} */ (null));
  /** @param {History | undefined} history */
  const show = (history) => {
    if (history?.at.length) seen.value = history;
  };
  effect(() => {
    if (!isOnGpu.value) {
      get('/v1/history', {job: id}).then(show, () => {});
      return;
    }
    const answer = watch('/v1/history', {job: id});
    effect(() => show(/** @type {History | undefined} */ (answer.value.data)));
  });
  const hasSome = computed(() => seen.value !== null);
  return h('div', {class: 'columns'}, () => hasSome.value && draw(id, /** @type {import('/lib/signal.js').Signal<History>} */ (seen)));
}

/**
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<History>} seen
 */
function draw(id, seen) {
  const peak = computed(() => Math.max(LEAST_BYTES, ...seen.value.mem_bytes.map((value) => value ?? 0)));
  return [
    chart('GPU utilisation', seen, () => seen.value.utilisation_pct, () => 100, (value) => `${Math.round(value)} %`, '--accent', `Utilisation of the GPU by job ${id}`),
    chart('GPU memory', seen, () => seen.value.mem_bytes, () => peak.value, size, '--calm', `Memory of the GPU that job ${id} holds`),
  ];
}

/**
 * @param {string} title
 * @param {import('/lib/signal.js').Signal<History>} seen
 * @param {() => (number | null)[]} values
 * @param {() => number} most what the full height means
 * @param {(value: number) => string} format
 * @param {string} colour
 * @param {string} label
 */
function chart(title, seen, values, most, format, colour, label) {
  const last = () => values().at(-1) ?? null;
  const first = () => (seen.value.at.at(-1) ?? 0) - (seen.value.at[0] ?? 0);
  return h(
    'div',
    {class: 'card'},
    h('h2', null, `${title} `, h('span', {class: 'soft'}, () => (last() === null ? '' : format(/** @type {number} */ (last()))))),
    spark(label, () => ({at: seen.value.at, values: values(), most: most()}), colour),
    h('div', {class: 'scale'}, h('span', null, () => `${duration(first())} before`), h('span', null, () => `up to ${format(most())}`)),
  );
}
