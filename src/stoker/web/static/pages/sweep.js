/** One sweep: progress, results of its runs, the best run, and failures. */

import {h} from '/lib/dom.js';
import {save} from '/lib/connection.js';
import {saveAs} from '/lib/logview.js';
import {parallel} from '/lib/parallel.js';
import {progress} from '/lib/progress.js';
import {link} from '/lib/router.js';
import {runTable} from '/lib/runtable.js';
import {scatter} from '/lib/scatter.js';
import {computed} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {plural} from '/logic/format.js';
import {countStates} from '/logic/outcomes.js';
import {bestCard, chooser, failureCard, fixedCard, importanceCard, picker} from '/pages/sweep/cards.js';
import {compareCard} from '/pages/sweep/compare.js';
import {curvesCard} from '/pages/sweep/curves.js';
import {steering} from '/pages/sweep/steer.js';
import {sweepState} from '/pages/sweep/state.js';

/** @typedef {import('/pages/sweep/state.js').SweepState} SweepState */

/** @param {import('/pages/index.js').Context} context */
export function page(context) {
  const state = sweepState(context);
  const isThere = computed(() => state.results.value !== null);
  return h(
    'section',
    {class: 'stack'},
    title(state),
    () => state.problem.value && h('p', {class: 'card bad', role: 'alert'}, state.problem.value, ' ', !isThere.value && h('a', {href: link('/sweeps')}, 'All sweeps')),
    () => isThere.value && body(state),
  );
}

/** @param {SweepState} state */
function title(state) {
  const {name, cwd} = state;
  return h(
    'div',
    {class: 'row'},
    h('h1', null, name),
    h('span', {class: 'soft path'}, () => cwd.value),
    h('span', {class: 'spacer'}),
    steering(state),
    h('a', {class: 'button', href: link('/jobs', {project: name})}, 'Its jobs'),
    h('button', {onclick: () => attempt(async () => saveAs(await save('/v1/export', {name, cwd: cwd.peek()}), `${name}.csv`))}, 'Export CSV'),
  );
}

/**
 * Everything below the title. It is built once: new results reach it through signals, so that a chosen order, the
 * focus, an open select and a drag outlive them.
 * @param {SweepState} state
 */
function body(state) {
  const {results, runs, params, metrics, metric, best, inside, axes, near} = state;
  const hasAxes = computed(() => axes.value.size > 1);
  const hasMetric = computed(() => metric.value !== '');
  const left = computed(() => results.value?.left_out ?? 0);
  return [
    () => progress(countStates(runs.value)),
    () => left.value > 0 && h('p', {class: 'soft'}, `The newest ${runs.value.length} runs are shown; ${plural(left.value, 'older run')} left out. Export CSV has all.`),
    chooser(state),
    h('div', {class: 'three'}, bestCard(state), importanceCard(state), failureCard(state)),
    () => hasMetric.value && charts(state),
    () => hasAxes.value && coordinates(state),
    compareCard(state),
    h('article', {class: 'card'}, runTable({runs: () => inside.value, params: () => params.value, metrics: () => metrics.value, best: () => best.value, near, table: state.table, picked: state.picked})),
    fixedCard(state),
  ];
}

/** @param {SweepState} state */
function coordinates({runs, inside, axes, metric, best, brushes, logs, rank, near}) {
  return h(
    'article',
    {class: 'card'},
    h(
      'div',
      {class: 'row'},
      h('h2', null, 'Parallel coordinates'),
      h('span', {class: 'soft'}, () => describeShown(inside.value.length, runs.value.length, metric.value)),
      h('span', {class: 'spacer'}),
      h('button', {disabled: () => Object.keys(brushes.value).length === 0, onclick: () => (brushes.value = {})}, 'Show all runs'),
    ),
    parallel({runs: () => runs.value, axes: () => axes.value, rank, best: () => best.value, brushes, near, toggleLog: (each) => (logs.value = {...logs.peek(), [each]: !axes.peek().get(each)?.isLog})}),
  );
}

/** @param {SweepState} state */
function charts(state) {
  const {runs, axes, across, metric, rank, best, brushes, near, wantedAcross} = state;
  return [
    curvesCard(state),
    h(
      'article',
      {class: 'card'},
      h('div', {class: 'row'}, h('h2', null, () => metric.value, ' over '), picker({'aria-label': 'Across'}, () => [...axes.value.keys()], () => across.value, (chosen) => (wantedAcross.value = chosen))),
      scatter({runs: () => runs.value, axes: () => axes.value, x: () => across.value, y: () => metric.value, rank, best: () => best.value, brushes, near}),
    ),
  ];
}

/**
 * @param {number} inside
 * @param {number} all
 * @param {string} metric
 */
function describeShown(inside, all, metric) {
  const shown = inside === all ? plural(all, 'run') : `${inside} of ${plural(all, 'run')}`;
  return metric ? `${shown}, coloured by ${metric}, orange is best; drag on an axis to keep a range` : shown;
}
