/** Curves of a sweep's runs: each run, means with their spread, or the best so far; of one metric or of all. */

import {each, h} from '/lib/dom.js';
import {curveChart} from '/lib/curve_chart.js';
import {go} from '/lib/router.js';
import {computed, signal} from '/lib/signal.js';
import {bandsOf, bestSoFar, smooth} from '/logic/curves.js';
import {cell, duration} from '/logic/format.js';
import {isCounting, valueOf} from '/logic/outcomes.js';
import {picker} from '/pages/sweep/cards.js';

/** @typedef {import('/pages/sweep/state.js').SweepState} SweepState */
/** @typedef {import('/lib/curve_chart.js').Line} Line */

const HUES = 8;
const SMALL_PX = 170;

/** @param {SweepState} state */
export function curvesCard(state) {
  const {metric, metrics, look} = state;
  const zoom = signal(/** @type {[number, number] | null} */ (null));
  const isMany = computed(() => look.value.all && metrics.value.length > 1);
  const isBest = computed(() => look.value.show === 'best');
  return h(
    'article',
    {class: 'card curves'},
    h('div', {class: 'row'}, h('h2', null, 'Curves'), h('span', {class: 'soft'}, () => (isMany.value ? 'all metrics' : metric.value)), h('span', {class: 'spacer'}), tools(state, zoom)),
    () => (isBest.value ? bestChart(state) : isMany.value ? multiples(state, zoom) : chart(state, () => metric.value, zoom, 300)),
    () => legend(state),
  );
}

/**
 * @param {SweepState} state
 * @param {import('/lib/signal.js').Signal<[number, number] | null>} zoom
 */
function tools({look, params, metrics}, zoom) {
  /** @param {Partial<typeof look.value>} change */
  const set = (change) => (look.value = {...look.peek(), ...change});
  return [
    h('button', {hidden: () => zoom.value === null, onclick: () => (zoom.value = null)}, 'Show all'),
    h('label', {for: 'curve-show', class: 'sr'}, 'Show'),
    h('select', {id: 'curve-show', value: () => look.value.show, onchange: (/** @type {any} */ event) => set({show: event.target.value})}, h('option', {value: 'runs'}, 'each run'), h('option', {value: 'band'}, 'mean ± deviation'), h('option', {value: 'best'}, 'best so far')),
    h('span', {class: 'row', hidden: () => look.value.show !== 'band'}, h('span', {class: 'soft'}, 'by'), picker({'aria-label': 'Group by'}, () => params.value, () => look.value.by || (params.value[0] ?? ''), (by) => set({by}))),
    h('label', {for: 'curve-x', class: 'sr'}, 'Over'),
    h('select', {id: 'curve-x', hidden: () => look.value.show === 'best', value: () => look.value.x, onchange: (/** @type {any} */ event) => { zoom.value = null; set({x: event.target.value}); }}, h('option', {value: 'step'}, 'over steps'), h('option', {value: 'time'}, 'over time')),
    h('label', {class: 'row plain-label', hidden: () => look.value.show === 'best'}, 'Smooth', h('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: () => String(look.value.smooth), oninput: (/** @type {any} */ event) => set({smooth: Number(event.target.value)})})),
    h('button', {'aria-pressed': () => String(look.value.log), class: 'toggle', onclick: () => set({log: !look.peek().log})}, 'Log'),
    h('button', {'aria-pressed': () => String(look.value.all), class: 'toggle', hidden: () => metrics.value.length < 2 || look.value.show === 'best', onclick: () => set({all: !look.peek().all})}, 'All metrics'),
  ];
}

/**
 * @param {SweepState} state
 * @param {() => string} name
 * @param {import('/lib/signal.js').Signal<[number, number] | null>} zoom
 * @param {number} height
 */
function chart(state, name, zoom, height) {
  const {look, near} = state;
  return curveChart({
    lines: () => (look.value.show === 'band' ? bandLines(state, name()) : runLines(state, name())),
    label: () => `${name()} of ${curvesOf(state, name()).length} runs over ${look.value.x === 'time' ? 'time' : 'steps'}${bestWords(state)}`,
    isLog: () => look.value.log,
    zoom,
    near,
    open: (job) => go(`/jobs/${job}`),
    formatX: (x) => (look.peek().x === 'time' ? duration(x) : cell(x)),
    height,
  });
}

/** @param {SweepState} state */
function bestWords({best, metric}) {
  return best.value ? `; the best, job ${best.value.job}, has ${metric.value} ${cell(valueOf(best.value, metric.value))}` : '';
}

/**
 * @param {SweepState} state
 * @param {string} name
 */
function curvesOf({curves, inside}, name) {
  const wanted = new Set(inside.value.map((run) => run.job));
  return curves.value.filter((curve) => wanted.has(curve.job) && curve.metric === name);
}

/**
 * @param {SweepState} state
 * @param {string} name
 * @returns {Line[]}
 */
function runLines(state, name) {
  const byJob = new Map(state.runs.value.map((run) => [run.job, run]));
  const best = state.best.value?.job;
  const lines = curvesOf(state, name).map(({job, xs, ys}) => {
    const run = byJob.get(job);
    return {job, label: `job ${job}`, xs, ys: smooth(ys, state.look.value.smooth), rank: run ? state.rank(run) : null, strong: job === best};
  });
  return lines.sort((one, other) => Number(one.strong) - Number(other.strong) || (one.rank ?? -1) - (other.rank ?? -1));
}

/**
 * @param {SweepState} state
 * @param {string} name
 * @returns {Line[]}
 */
function bandLines(state, name) {
  return bands(state, name).map(({group, xs, ys, low, high}, index) => ({job: null, label: group, xs, ys, low, high, colour: `--hue${index % HUES}`, strong: true}));
}

/**
 * @param {SweepState} state
 * @param {string} name
 */
function bands(state, name) {
  const {look, params, runs} = state;
  const by = look.value.by || (params.value[0] ?? '');
  const byJob = new Map(runs.value.map((run) => [run.job, run]));
  const smoothed = curvesOf(state, name).map(({job, xs, ys}) => ({job, xs, ys: smooth(ys, look.value.smooth)}));
  return bandsOf(smoothed, (job) => {
    const run = byJob.get(job);
    return run ? `${by}=${cell(valueOf(run, by))}` : '';
  });
}

/** @param {SweepState} state */
function legend(state) {
  if (state.look.value.show !== 'band') return null;
  const shown = bands(state, state.metric.value);
  return h('ul', {class: 'row legend'}, shown.map(({group, count}, index) => h('li', null, h('span', {class: `swatch line hue-${index % HUES}`}), `${group} (${count})`)));
}

/**
 * A small chart for each metric; all have the same zoom.
 * @param {SweepState} state
 * @param {import('/lib/signal.js').Signal<[number, number] | null>} zoom
 */
function multiples(state, zoom) {
  return each(h('div', {class: 'multiples'}), () => state.metrics.value, (name) => name, (name) => h('section', null, h('h3', null, name.peek()), chart(state, () => name.peek(), zoom, SMALL_PX)));
}

/** @param {SweepState} state */
function bestChart(state) {
  const {inside, metric, goal, near, look} = state;
  const found = computed(() => bestSoFar(inside.value.filter(isCounting).map((run) => ({job: run.job, ended_at: run.ended_at, value: valueOf(run, metric.value)})), goal.value));
  return curveChart({
    lines: () => {
      const {jobs, xs, ys, best} = found.value;
      const dots = jobs.map((job, index) => ({job, label: `job ${job}, run ${xs[index]}`, xs: [xs[index] ?? 0], ys: [ys[index] ?? NaN], colour: '--low', dots: true}));
      return [...dots, {job: null, label: `best ${metric.value}`, xs: xs.flatMap((x, index) => (index ? [x, x] : [x])), ys: best.flatMap((value, index) => (index ? [best[index - 1] ?? NaN, value] : [value])), colour: '--high', strong: true}];
    },
    label: () => `Best ${metric.value} so far over ${found.value.xs.length} runs: ${cell(found.value.best.at(-1) ?? null)}`,
    isLog: () => look.value.log,
    zoom: signal(null),
    near,
    open: (job) => go(`/jobs/${job}`),
  });
}
