/** State of a sweep's page: its results, kept fresh, and the choices of the user, which are in the address. */

import {get, RefusedError, watch} from '/lib/connection.js';
import {followAddress} from '/lib/address.js';
import {go, place} from '/lib/router.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {makeAxis} from '/logic/axes.js';
import {text} from '/logic/format.js';
import {bestRun, isBrushed, likelyGoal, rankOf, readBrush, valueOf, writeBrush} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {import('/logic/outcomes.js').Brushes} Brushes */
/** @typedef {import('/logic/outcomes.js').Goal} Goal */
/** @typedef {ReturnType<typeof sweepState>} SweepState */

const SHORTEST_PAUSE_MS = 2000;
const MOST_AXES = 12;
const MOST_CURVES = 12; // metrics that are drawn at once
const LIVE = ['running', 'starting'];

/** @param {import('/pages/index.js').Context} context */
export function sweepState({parts, query}) {
  const name = parts.name ?? '';
  const cwd = signal(query.peek().get('cwd') ?? '');
  const results = signal(/** @type {any} */ (null));
  const problem = signal('');
  const curves = signal(/** @type {any[]} */ ([]));
  const {brushes, logs, look, wantedMetric, wantedGoal, wantedAcross, picked, table} = choices(query);
  const near = signal(/** @type {number | null} */ (null)); // the job that the pointer is at, in any chart or the table

  const runs = computed(() => /** @type {Outcome[]} */ (results.value?.runs ?? []));
  const params = sameList(() => results.value?.params ?? []);
  const metrics = sameList(() => results.value?.metrics ?? []);
  const metric = computed(() => (metrics.value.includes(wantedMetric.value) ? wantedMetric.value : (results.value?.metric ?? metrics.value[0] ?? '')));
  const goal = computed(() => /** @type {Goal} */ (wantedGoal.value || (metric.value === results.value?.metric && results.value?.goal) || likelyGoal(metric.value)));
  const names = computed(() => [...params.value, ...metrics.value].slice(-MOST_AXES));
  const axes = computed(() => new Map(names.value.map((each) => [each, makeAxis(each, runs.value.map((run) => valueOf(run, each)), [0, 1], logs.value[each])])));
  const across = computed(() => (names.value.includes(wantedAcross.value) ? wantedAcross.value : (names.value[0] ?? '')));
  const best = computed(() => bestRun(runs.value, metric.value, goal.value));
  const inside = computed(() => runs.value.filter((run) => isBrushed(run, brushes.value, axes.value)));
  /** @param {Outcome} run */
  const rank = (run) => rankOf(run, axes.value.get(metric.value), goal.value);

  const load = refusalsTo(problem, async () => {
    const found = await get('/v1/results', {name, cwd: cwd.peek()});
    problem.value = '';
    results.value = found;
  });
  const loadCurves = oneAtATime(refusalsTo(problem, async () => {
    const chosen = wantedCurves.peek();
    const {x, names} = JSON.parse(chosen);
    if (!names[0]) return; // the results have just come, and with them the metric
    const drawn = await get('/v1/curves', {name, cwd: cwd.peek(), metric: names, x});
    if (chosen === wantedCurves.peek()) curves.value = drawn;
  }));
  const wantedCurves = computed(() => JSON.stringify({x: look.value.x, names: look.value.all ? metrics.value.slice(0, MOST_CURVES) : [metric.value]}));
  effect(() => {
    if (results.value && metric.value && wantedCurves.value) loadCurves();
  });
  keepFresh(name, cwd, problem, load);

  return {name, cwd, results, problem, curves, brushes, logs, runs, params, metrics, metric, goal, axes, across, best, inside, rank, near, look, load, picked, table, wantedMetric, wantedGoal, wantedAcross};
}

/**
 * What the user chooses on the page, in step with the address.
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 */
function choices(query) {
  const brushes = signal(/** @type {Brushes} */ ({}));
  const logs = signal(/** @type {Record<string, boolean>} */ ({}));
  const look = signal(USUAL_LOOK);
  const wantedMetric = signal('');
  const wantedGoal = signal(/** @type {Goal | ''} */ (''));
  const wantedAcross = signal('');
  const picked = signal(/** @type {number[]} */ ([])); // runs to compare
  const table = signal({filter: '', hide: /** @type {string[]} */ ([]), pin: /** @type {string[]} */ ([])});
  followAddress(
    query,
    (given) => {
      brushes.value = Object.fromEntries(given.getAll('brush').flatMap(readBrush));
      logs.value = Object.fromEntries([...given.getAll('log').map((each) => [each, true]), ...given.getAll('even').map((each) => [each, false])]);
      look.value = readLook(given);
      wantedMetric.value = given.get('metric') ?? '';
      const goal = given.get('goal');
      wantedGoal.value = goal === 'minimize' || goal === 'maximize' ? goal : '';
      wantedAcross.value = given.get('across') ?? '';
      picked.value = given.getAll('pick').map(Number).filter((job) => job > 0);
      table.value = {filter: given.get('filter') ?? '', hide: given.getAll('hide'), pin: given.getAll('pin')};
    },
    () => ({
      ...writeLook(look.value),
      metric: wantedMetric.value,
      goal: wantedGoal.value,
      across: wantedAcross.value,
      pick: picked.value.map(String),
      filter: table.value.filter,
      hide: table.value.hide,
      pin: table.value.pin,
      brush: Object.entries(brushes.value).map(writeBrush),
      log: Object.keys(logs.value).filter((each) => logs.value[each]),
      even: Object.keys(logs.value).filter((each) => !logs.value[each]),
    }),
  );
  return {brushes, logs, look, wantedMetric, wantedGoal, wantedAcross, picked, table};
}

/** How the curves are drawn. */
const USUAL_LOOK = {show: 'runs', by: '', x: 'step', smooth: 0, log: false, all: false};

/** @param {URLSearchParams} given */
function readLook(given) {
  const show = given.get('show') ?? '';
  return {
    show: ['band', 'best'].includes(show) ? show : 'runs',
    by: given.get('by') ?? '',
    x: given.get('x') === 'time' ? 'time' : 'step',
    smooth: Math.min(0.99, Math.max(0, Number(given.get('smooth')) || 0)),
    log: given.get('curve') === 'log',
    all: given.get('all') === '1',
  };
}

/** @param {typeof USUAL_LOOK} look */
function writeLook({show, by, x, smooth, log, all}) {
  return {show: show === 'runs' ? null : show, by: by || null, x: x === 'step' ? null : x, smooth: smooth || null, curve: log ? 'log' : null, all: all ? 1 : null};
}

/**
 * A list of words that is a new one only if the words differ.
 * @param {() => readonly string[]} read
 */
function sameList(read) {
  const key = computed(() => JSON.stringify(read()));
  return computed(() => /** @type {string[]} */ (JSON.parse(key.value)));
}

/**
 * @param {import('/lib/signal.js').Signal<string>} problem
 * @param {() => Promise<void>} action
 */
function refusalsTo(problem, action) {
  return async () => {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      problem.value = error.message;
    }
  };
}

/**
 * An action that is done once more, when it is over, if it is wanted meanwhile.
 * @param {() => Promise<void>} action
 */
function oneAtATime(action) {
  let [isBusy, isDue] = [false, false];
  return async function run() {
    isDue = isBusy;
    if (isBusy) return;
    isBusy = true;
    await action();
    isBusy = false;
    if (isDue) run();
  };
}

/**
 * Load now, whenever a run changes its state, and from time to time while any run is running. An address without a
 * folder means the newest sweep of that name.
 * @param {string} name
 * @param {import('/lib/signal.js').Signal<string>} cwd
 * @param {import('/lib/signal.js').Signal<string>} problem
 * @param {() => Promise<void>} load
 */
function keepFresh(name, cwd, problem, load) {
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
    const all = /** @type {any[] | undefined} */ (sweeps.value.data);
    if (all === undefined) return;
    const mine = all.find((each) => each.name === name && (!cwd.peek() || text(each.cwd) === cwd.peek()));
    if (!mine && !cwd.peek()) {
      problem.value = `There is no sweep ${name}.${all.length ? ` There are: ${all.slice(0, 8).map((each) => each.name).join(', ')}.` : ''}`;
      return;
    }
    if (mine && !cwd.peek()) {
      cwd.value = text(mine.cwd);
      const given = Object.fromEntries([...place.peek().query.keys()].map((key) => [key, place.peek().query.getAll(key)]));
      go(place.peek().path, {...given, cwd: cwd.peek()}, {replace: true});
    }
    isLive = LIVE.some((each) => (mine?.counts[each] ?? 0) > 0);
    run();
  });
  onCleanup(() => clearTimeout(timer));
}
