/** One sweep: progress, results of its runs, the best run, and failures. */

import {h} from '/lib/dom.js';
import {get, post, RefusedError, save, watch} from '/lib/connection.js';
import {saveAs} from '/lib/logview.js';
import {lineChart} from '/lib/chart.js';
import {parallel} from '/lib/parallel.js';
import {progress} from '/lib/progress.js';
import {link} from '/lib/router.js';
import {runTable} from '/lib/runtable.js';
import {scatter} from '/lib/scatter.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {makeAxis} from '/logic/axes.js';
import {cell, plural, text} from '/logic/format.js';
import {bestRun, countStates, groupFailures, isBrushed, likelyGoal, valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {import('/logic/outcomes.js').Brushes} Brushes */

const SHORTEST_PAUSE_MS = 2000;
const MOST_AXES = 12;
/** @type {Record<string, string>} names of failure classes */
const CLASSES = {
  gpu_oom: 'GPU out of memory',
  host_oom: 'machine out of memory',
  gpu_fault: 'GPU fault',
  neighbour: 'this job or one beside it',
  nccl: 'GPU communication (NCCL)',
  port_taken: 'port in use',
  disk_full: 'disk full',
  setup: 'missing file or module',
  diverged: 'diverged',
  stalled: 'stalled',
  idle: 'idle GPU',
  error: 'error of the program',
};

/** @param {import('/pages/index.js').Context} context */
export function page({parts, query}) {
  const name = parts.name ?? '';
  const cwd = query.peek().get('cwd') ?? '';
  const results = signal(/** @type {any} */ (null));
  const problem = signal('');
  const curves = signal(/** @type {any[]} */ ([]));
  const brushes = signal(/** @type {Brushes} */ ({}));
  const logs = signal(/** @type {Record<string, boolean>} */ ({}));
  const metric = signal('');
  const goal = signal(/** @type {'minimize' | 'maximize'} */ ('minimize'));
  const across = signal('');

  const runs = computed(() => /** @type {Outcome[]} */ (results.value?.runs ?? []));
  const axes = computed(() => {
    const found = results.value;
    const names = found ? [...found.params, ...found.metrics].slice(-MOST_AXES) : [];
    return new Map(names.map((/** @type {string} */ each) => [each, makeAxis(each, runs.value.map((run) => valueOf(run, each)), [0, 1], logs.value[each])]));
  });
  const best = computed(() => bestRun(runs.value, metric.value, goal.value));
  const inside = computed(() => runs.value.filter((run) => isBrushed(run, brushes.value, axes.value)));
  const colour = () => axes.value.get(metric.value) ?? null;

  let [asked, shown] = [0, 0];

  async function load() {
    asked += 1;
    const mine = asked;
    try {
      const found = await get('/v1/results', {name, cwd});
      if (mine < shown) return; // a newer answer has already arrived
      shown = mine;
      problem.value = '';
      results.value = found;
      if (!metric.peek() || !found.metrics.includes(metric.peek())) choose(found.metric ?? found.metrics[0] ?? '', found.goal);
      if (!across.peek()) across.value = found.params[0] ?? '';
      if (!metric.peek()) return;
      const drawn = await get('/v1/curves', {name, cwd, metric: metric.peek()});
      if (mine === shown) curves.value = drawn;
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      problem.value = error.message;
    }
  }

  /**
   * @param {string} chosen
   * @param {'minimize' | 'maximize' | null} [wanted]
   */
  function choose(chosen, wanted) {
    metric.value = chosen;
    goal.value = wanted ?? likelyGoal(chosen);
  }

  keepFresh(name, cwd, load);

  return h(
    'section',
    {class: 'stack'},
    h(
      'div',
      {class: 'row'},
      h('h1', null, name),
      h('span', {class: 'soft path'}, cwd),
      h('span', {class: 'spacer'}),
      h('a', {class: 'button', href: link('/jobs', {project: name})}, 'Its jobs'),
      h('button', {onclick: () => attempt(async () => saveAs(await save('/v1/export', {name, cwd}), `${name}.csv`))}, 'Export CSV'),
    ),
    () => problem.value && h('p', {class: 'card bad'}, problem.value),
    () => results.value && progress(countStates(runs.value)),
    () => results.value?.left_out > 0 && h('p', {class: 'soft'}, `The newest ${runs.value.length} runs are shown; ${plural(results.value.left_out, 'older run')} left out. Export CSV has all.`),
    () => results.value && chooser(results.value, metric, goal, choose, load),
    () => results.value && h('div', {class: 'two'}, bestCard(best, metric, results), failureCard(runs, load)),
    () => axes.value.size > 1 && h(
      'article',
      {class: 'card'},
      h('div', {class: 'row'}, h('h2', null, 'Parallel coordinates'), h('span', {class: 'soft'}, () => describeShown(inside.value.length, runs.value.length, metric.value)), h('span', {class: 'spacer'}), clearButton(brushes)),
      parallel({runs: () => runs.value, axes: () => axes.value, colour, best: () => best.value, brushes, toggleLog: (each) => (logs.value = {...logs.peek(), [each]: !axes.peek().get(each)?.isLog})}),
    ),
    () => metric.value !== '' && h(
      'div',
      {class: 'two'},
      h('article', {class: 'card'}, h('div', {class: 'row'}, h('h2', null, metric.value, ' over '), picker('Across', () => [...axes.value.keys()], across)), scatter({runs: () => runs.value, axes: () => axes.value, x: () => across.value, y: () => metric.value, colour, best: () => best.value, brushes})),
      h('article', {class: 'card'}, h('h2', null, metric.value, ' over steps'), lineChart({label: `${metric.value} over steps`, height: 280, log: () => axes.value.get(metric.value)?.isLog ?? false, series: () => toSeries(curves.value, inside.value, best.value)})),
    ),
    () => results.value && h('article', {class: 'card'}, runTable({runs: () => inside.value, params: () => results.value.params, metrics: () => results.value.metrics, best: () => best.value})),
    () => results.value && fixedCard(results.value.fixed),
  );
}

/**
 * Load now, whenever a run changes its state, and from time to time while any run is running.
 * @param {string} name
 * @param {string} cwd
 * @param {() => Promise<void>} load
 */
function keepFresh(name, cwd, load) {
  const sweeps = watch('/v1/sweeps', {limit: 100});
  let [isBusy, isDue, isLive] = [false, false, true];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  async function run() {
    if (isBusy) {
      isDue = true;
      return;
    }
    isBusy = true;
    await load();
    timer = setTimeout(() => {
      isBusy = false;
      const again = isDue || (isLive && document.visibilityState === 'visible');
      isDue = false;
      if (again) run();
    }, SHORTEST_PAUSE_MS);
  }

  effect(() => {
    const mine = sweeps.value.data?.find((/** @type {any} */ each) => each.name === name && text(each.cwd) === cwd);
    if (sweeps.value.data === undefined) return;
    isLive = ['running', 'starting'].some((each) => (mine?.counts[each] ?? 0) > 0);
    run();
  });
  onCleanup(() => clearTimeout(timer));
}

/**
 * @param {any} results
 * @param {import('/lib/signal.js').Signal<string>} metric
 * @param {import('/lib/signal.js').Signal<'minimize' | 'maximize'>} goal
 * @param {(name: string) => void} choose
 * @param {() => Promise<void>} load
 */
function chooser(results, metric, goal, choose, load) {
  if (results.metrics.length === 0) {
    return h('p', {class: 'card soft'}, 'No run has reported anything yet. In your script: ', h('code', null, 'stoker.report(step, val_acc=accuracy)'));
  }
  return h(
    'div',
    {class: 'row'},
    h('label', {for: 'metric'}, 'Compare by'),
    h('select', {id: 'metric', onchange: (/** @type {any} */ event) => { choose(event.target.value); load(); }}, results.metrics.map((/** @type {string} */ each) => h('option', {value: each, selected: each === metric.peek()}, each))),
    h('label', {for: 'goal', class: 'sr'}, 'Goal'),
    h('select', {id: 'goal', value: () => goal.value, onchange: (/** @type {any} */ event) => (goal.value = event.target.value)}, h('option', {value: 'maximize'}, 'more is better'), h('option', {value: 'minimize'}, 'less is better')),
  );
}

/**
 * @param {import('/lib/signal.js').Signal<Outcome | null>} best
 * @param {import('/lib/signal.js').Signal<string>} metric
 * @param {import('/lib/signal.js').Signal<any>} results
 */
function bestCard(best, metric, results) {
  return h('article', {class: 'card best'}, h('h2', null, 'Best run'), () => {
    const run = best.value;
    if (!run) return h('p', {class: 'soft'}, 'No run has a value yet.');
    return [
      h('p', {class: 'figure'}, h('span', {class: 'soft'}, metric.value), ' ', h('b', null, cell(valueOf(run, metric.value)))),
      h('dl', {class: 'facts'}, results.value.params.map((/** @type {string} */ each) => [h('dt', null, each), h('dd', null, cell(valueOf(run, each)))])),
      h('p', null, h('a', {href: link(`/jobs/${run.job}`)}, `Job ${run.job}`), ' ', h('span', {class: `state ${run.state}`}, run.state)),
    ];
  });
}

/**
 * @param {import('/lib/signal.js').Signal<Outcome[]>} runs
 * @param {() => Promise<void>} load
 */
function failureCard(runs, load) {
  return h('article', {class: 'card failures'}, h('h2', null, 'Failures'), () => {
    const groups = groupFailures(runs.value);
    if (groups.length === 0) return h('p', {class: 'soft'}, 'No run has failed.');
    return h('ul', {class: 'groups'}, groups.map(({failure, reason, runs: members}) => h(
      'li',
      null,
      h('div', {class: 'row'}, h('b', null, plural(members.length, 'run')), failure && h('span', {class: 'state failed'}, CLASSES[failure] ?? failure), h('span', {class: 'spacer'}), h('button', {onclick: () => retry(members, load)}, 'Retry these')),
      h('p', {class: 'reason'}, reason),
      h('p', {class: 'soft'}, members.slice(0, 6).map((run) => [h('a', {href: link(`/jobs/${run.job}`)}, `job ${run.job}`), ' ']), members.length > 6 && `and ${members.length - 6} more`),
    )));
  });
}

/**
 * @param {readonly Outcome[]} members
 * @param {() => Promise<void>} load
 */
async function retry(members, load) {
  const ids = members.map((run) => run.job).join(',');
  await attempt(() => post('/v1/retry', {ids}), (answer) => {
    const refused = answer.refused[0] ? ` ${answer.refused[0].reason}` : '';
    return `${plural(answer.ids.length, 'run')} queued again.${refused}`;
  });
  await load();
}

/** @param {Record<string, unknown>} fixed */
function fixedCard(fixed) {
  const entries = Object.entries(fixed);
  if (entries.length === 0) return null;
  return h('article', {class: 'card'}, h('h2', null, 'Equal in all runs'), h('dl', {class: 'facts'}, entries.map(([name, value]) => [h('dt', null, name), h('dd', null, cell(value))])));
}

/** @param {import('/lib/signal.js').Signal<Brushes>} brushes */
function clearButton(brushes) {
  return h('button', {disabled: () => Object.keys(brushes.value).length === 0, onclick: () => (brushes.value = {})}, 'Show all runs');
}

/**
 * @param {string} label
 * @param {() => string[]} names
 * @param {import('/lib/signal.js').Signal<string>} chosen
 */
function picker(label, names, chosen) {
  return h('select', {'aria-label': label, onchange: (/** @type {any} */ event) => (chosen.value = event.target.value)}, () => names().map((each) => h('option', {value: each, selected: each === chosen.value}, each)));
}

/**
 * @param {number} inside
 * @param {number} all
 * @param {string} metric
 */
function describeShown(inside, all, metric) {
  const shown = inside === all ? plural(all, 'run') : `${inside} of ${plural(all, 'run')}`;
  return metric ? `${shown}, coloured by ${metric}; drag on an axis to keep a range` : shown;
}

/**
 * @param {readonly any[]} curves
 * @param {readonly Outcome[]} inside
 * @param {Outcome | null} best
 * @returns {import('/lib/chart.js').Series[]}
 */
function toSeries(curves, inside, best) {
  const wanted = new Set(inside.map((run) => run.job));
  const shown = curves.filter((curve) => wanted.has(curve.job));
  shown.sort((one, other) => Number(one.job === best?.job) - Number(other.job === best?.job));
  return shown.map((curve) => {
    const isBest = curve.job === best?.job;
    return {label: `job ${curve.job}`, colour: isBest ? '--high' : '--low', xs: curve.xs, ys: curve.ys, faint: !isBest};
  });
}
