/** All sweeps, the newest first, with their progress, best value and how much longer they take. */

import {each, h} from '/lib/dom.js';
import {get, watch} from '/lib/connection.js';
import {progress} from '/lib/progress.js';
import {link} from '/lib/router.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {spark} from '/lib/spark.js';
import {bestSoFar} from '/logic/curves.js';
import {about, cell, count, text} from '/logic/format.js';
import {bestRun, isCounting, likelyGoal, secondsLeft, valueOf} from '/logic/outcomes.js';

/** Sweeps whose results are read: each costs the daemon a process. */
const SUMMARISED = 12;
const PAUSE_MS = 5000;

/** @param {import('/pages/index.js').Context} _context */
export function page(_context) {
  const sweeps = watch('/v1/sweeps', {limit: 100});
  const rows = () => /** @type {any[]} */ (sweeps.value.data ?? []);
  const turns = inTurn();
  return h(
    'section',
    null,
    h('div', {class: 'row'}, h('h1', null, 'Sweeps'), h('span', {class: 'spacer'}), h('a', {class: 'button primary', href: link('/submit', {form: 'sweep'})}, 'New sweep')),
    () => sweeps.value.problem && h('p', {class: 'bad'}, sweeps.value.problem.detail),
    () => sweeps.value.data !== undefined && rows().length === 0 && nothing(),
    each(h('div', {class: 'sweeps'}), rows, keyOf, (sweep) => card(sweep, rows().findIndex((each) => keyOf(each) === keyOf(sweep.peek())) < SUMMARISED ? turns : null)),
  );
}

/** @param {any} sweep */
const keyOf = (sweep) => `${text(sweep.cwd)}\n${sweep.name}`;

/** Runs actions one after the other, so that a long list does not start many processes at once. */
function inTurn() {
  let last = Promise.resolve();
  return (/** @type {() => Promise<void>} */ action) => (last = last.then(action, action));
}

/**
 * @param {import('/lib/signal.js').Signal<any>} sweep
 * @param {((action: () => Promise<void>) => Promise<void>) | null} turns null: its results are not read
 */
function card(sweep, turns) {
  const {name, cwd} = sweep.peek();
  return h(
    'article',
    {class: 'card sweep'},
    h('div', {class: 'row'}, h('h2', null, h('a', {href: link(`/sweeps/${encodeURIComponent(name)}`, {cwd: text(cwd)})}, name)), h('span', {class: 'soft path'}, text(cwd))),
    () => progress(sweep.value.counts),
    turns && summary(sweep, turns),
    () => sweep.value.large && h('p', {class: 'soft'}, `The counts are those of its newest runs; its jobs are ${count(sweep.value.first)} to ${count(sweep.value.last)}.`),
  );
}

/**
 * The best value, its way there, and the time that is left. Read again when more runs have ended.
 * @param {import('/lib/signal.js').Signal<any>} sweep
 * @param {(action: () => Promise<void>) => Promise<void>} turns
 */
function summary(sweep, turns) {
  const {name, cwd} = sweep.peek();
  const results = signal(/** @type {any} */ (null));
  const key = computed(() => JSON.stringify(sweep.value.counts));
  let isLeft = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const load = () => turns(async () => {
    if (!isLeft) results.value = await get('/v1/results', {name, cwd: text(cwd)}).catch(() => null);
  });
  effect(() => {
    const isFirst = key.value && results.peek() === null;
    clearTimeout(timer);
    if (isFirst) load();
    else timer = setTimeout(load, PAUSE_MS);
  });
  onCleanup(() => {
    isLeft = true;
    clearTimeout(timer);
  });
  return h('div', {class: 'row sweep-summary'}, () => results.value && describe(results.value));
}

/** @param {any} results */
function describe(results) {
  const {runs} = results;
  const metric = results.metric ?? results.metrics[0] ?? '';
  const goal = results.goal ?? likelyGoal(metric);
  const best = bestRun(runs, metric, goal);
  const left = secondsLeft(runs);
  const way = bestSoFar(runs.filter(isCounting).map((/** @type {any} */ run) => ({job: run.job, ended_at: run.ended_at, value: valueOf(run, metric)})), goal);
  const [low, high] = [Math.min(...way.best), Math.max(...way.best)];
  const values = way.best.map((value) => (high > low ? (value - low) / (high - low) : 0.5));
  return [
    best && h('span', null, `best ${metric} `, h('b', null, cell(valueOf(best, metric))), ' ', h('a', {href: link(`/jobs/${best.job}`)}, `job ${best.job}`)),
    best && way.best.length > 1 && spark(`Best ${metric} so far over ${way.best.length} runs`, () => ({at: way.xs, values, most: 1}), '--accent', {fill: false}),
    left !== null && h('span', {class: 'soft'}, `~${about(left)} left`),
  ];
}

function nothing() {
  return h(
    'div',
    {class: 'card empty'},
    h('p', null, 'No sweep yet. Write one ', h('a', {href: link('/submit', {form: 'sweep'})}, 'here'), ', or on the command line:'),
    h('pre', null, "stoker sweep 'python train.py --lr {lr} --bs {bs}' lr=1e-3,3e-4 bs=32,64"),
  );
}
