/** A job as a run of its sweep: its parameters and metrics, how far it is from the best run, and its neighbours. */

import {each, h} from '/lib/dom.js';
import {get} from '/lib/connection.js';
import {lineChart} from '/lib/chart.js';
import {link} from '/lib/router.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {cell, text} from '/logic/format.js';
import {bestRun, likelyGoal, placeAmong, valueOf} from '/logic/outcomes.js';

/** @typedef {import('/pages/job/facts.js').Detail} Detail */
/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */

const PAUSE_MS = 3000;
const MOST_METRICS = 8;

/**
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<Detail>} job
 */
export function sweepRun(id, job) {
  const {sweep} = job.peek();
  if (!sweep) return null;
  const [name, cwd] = [sweep.name, text(sweep.cwd)];
  const results = signal(/** @type {any} */ (null));
  const curves = signal(/** @type {any[]} */ ([]));
  const runs = computed(() => /** @type {Outcome[]} */ (results.value?.runs ?? []));
  const metric = computed(() => results.value?.metric ?? results.value?.metrics[0] ?? '');
  const goal = computed(() => results.value?.goal ?? likelyGoal(metric.value));
  const best = computed(() => bestRun(runs.value, metric.value, goal.value));
  const own = computed(() => runs.value.find((run) => run.job === id) ?? null);
  keepFresh(name, cwd, id, job, results, curves);
  return h(
    'section',
    {class: 'card sweep-run'},
    h('div', {class: 'row'}, h('h2', null, 'Sweep ', h('a', {href: link(`/sweeps/${encodeURIComponent(name)}`, {cwd})}, name)), h('span', {class: 'spacer'}), () => neighbours(runs.value, id)),
    () => own.value && h('dl', {class: 'params'}, Object.entries(own.value.params).map(([key, value]) => [h('dt', null, key), h('dd', null, cell(value))])),
    () => own.value && metric.value && h('p', {class: 'standing'}, standing(own.value, best.value, runs.value, metric.value, goal.value)),
    each(h('div', {class: 'multiples'}), () => metricsOf(curves.value, id), (each) => each, (each) => h('section', null, h('h3', null, each.peek()), lineChart({label: `${each.peek()} of job ${id}`, height: 170, series: () => series(curves.value, each.peek(), id)}))),
  );
}

/**
 * Load now, and again while the job runs and when it has ended.
 * @param {string} name
 * @param {string} cwd
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<Detail>} job
 * @param {import('/lib/signal.js').Signal<any>} results
 * @param {import('/lib/signal.js').Signal<any[]>} curves
 */
function keepFresh(name, cwd, id, job, results, curves) {
  const isLive = computed(() => ['running', 'starting'].includes(job.value.state));
  let isLeft = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  async function load() {
    try {
      const found = await get('/v1/results', {name, cwd});
      results.value = found;
      const names = found.metrics.slice(0, MOST_METRICS);
      if (names.length > 0) curves.value = await get('/v1/curves', {name, cwd, metric: names, jobs: [String(id)]});
    } catch {
      // The sweep may be forgotten: the page shows the job without it.
    }
    if (isLive.peek() && !isLeft) timer = setTimeout(load, PAUSE_MS);
  }
  effect(() => {
    isLive.value;
    clearTimeout(timer);
    load();
  });
  onCleanup(() => {
    isLeft = true;
    clearTimeout(timer);
  });
}

/** @param {readonly Outcome[]} runs @param {number} id */
function neighbours(runs, id) {
  const at = runs.findIndex((run) => run.job === id);
  const [before, after] = [runs[at - 1], runs[at + 1]];
  if (at < 0) return null;
  return [before && h('a', {href: link(`/jobs/${before.job}`)}, `← job ${before.job}`), ' ', after && h('a', {href: link(`/jobs/${after.job}`)}, `job ${after.job} →`)];
}

/**
 * @param {Outcome} own
 * @param {Outcome | null} best
 * @param {readonly Outcome[]} runs
 * @param {string} metric
 * @param {'minimize' | 'maximize'} goal
 */
function standing(own, best, runs, metric, goal) {
  const value = valueOf(own, metric);
  if (typeof value !== 'number') return [h('span', {class: 'soft'}, `No ${metric} yet.`)];
  const top = best ? Number(valueOf(best, metric)) : value;
  const {place, of} = placeAmong(runs, own, metric, goal);
  const words = best?.job === own.job ? 'the best of the sweep' : `number ${place} of ${of}; `;
  const gap = top - value;
  return [h('span', {class: 'soft'}, `${metric} `), h('b', null, cell(value)), ` ${words}`, best && best.job !== own.job && [h('a', {href: link(`/jobs/${best.job}`)}, `best, job ${best.job}`), ` ${gap >= 0 ? '+' : '−'}${cell(Math.abs(gap))}`]];
}

/** @param {readonly any[]} curves @param {number} id @returns {string[]} */
function metricsOf(curves, id) {
  return curves.filter((curve) => curve.job === id && curve.xs.length > 1).map((curve) => curve.metric);
}

/** @param {readonly any[]} curves @param {string} metric @param {number} id */
function series(curves, metric, id) {
  return curves.filter((curve) => curve.metric === metric && curve.job === id).map(({xs, ys}) => ({label: metric, colour: '--accent', xs, ys: ys.map((/** @type {number | null} */ value) => value ?? NaN)}));
}
