/** Results of a sweep's runs: the best run, groups of failures, and runs inside brushes. */

/**
 * @typedef {object} Outcome
 * @property {number} job
 * @property {string} id
 * @property {string} state
 * @property {Record<string, unknown>} params
 * @property {Record<string, unknown>} metrics
 * @property {string | null} reason
 * @property {string | null} failure its class, as `gpu_oom`
 * @property {number} attempt
 * @property {string | null} slots
 * @property {number | null} started_at
 * @property {number | null} ended_at
 * @property {string | null} problem
 */

/** @typedef {Record<string, [number, number]>} Brushes places on axes, by their names */
/** @typedef {'minimize' | 'maximize'} Goal */

const BAD = new Set(['failed', 'lost', 'killed']);
/** Metrics of other waiting runs come from earlier attempts. */
const COUNTING = new Set(['done', 'running', 'starting', 'paused', 'suspended']);

/**
 * Whether the metrics of a run count: it has succeeded or runs.
 * @param {Outcome} run
 */
export function isCounting(run) {
  return COUNTING.has(run.state);
}

/**
 * A parameter or a metric of a run.
 * @param {Outcome} run
 * @param {string} name
 */
export function valueOf(run, name) {
  if (Object.hasOwn(run.metrics, name)) return run.metrics[name];
  return Object.hasOwn(run.params, name) ? run.params[name] : null;
}

/**
 * The run with the best value, of those that succeeded or run; null if none has one.
 * @param {readonly Outcome[]} runs
 * @param {string} metric
 * @param {'minimize' | 'maximize'} goal
 * @returns {Outcome | null}
 */
export function bestRun(runs, metric, goal) {
  let best = null;
  let bestValue = NaN;
  for (const run of runs) {
    const value = valueOf(run, metric);
    if (!COUNTING.has(run.state) || typeof value !== 'number' || !Number.isFinite(value)) continue;
    if (best === null || (goal === 'minimize' ? value < bestValue : value > bestValue)) [best, bestValue] = [run, value];
  }
  return best;
}

/**
 * How good a run is, from 0 (worst) to 1 (best), as colours show it; null if it has no value.
 * @param {Outcome} run
 * @param {import('/logic/axes.js').Axis | undefined} axis of the metric, from 0 to 1
 * @param {Goal} goal
 */
export function rankOf(run, axis, goal) {
  const place = axis?.place(valueOf(run, axis.name)) ?? null;
  return place === null || goal === 'maximize' ? place : 1 - place;
}

/**
 * A brush as a word of the address: `lr:0.25:0.5`.
 * @param {[string, [number, number]]} brush
 */
export function writeBrush([name, [low, high]]) {
  return `${name}:${Number(low.toFixed(3))}:${Number(high.toFixed(3))}`;
}

/**
 * The brush that a word of the address means; none if it is not valid.
 * @param {string} word
 * @returns {[string, [number, number]][]}
 */
export function readBrush(word) {
  const found = word.match(/^(.+):([\d.]+):([\d.]+)$/s);
  const [low, high] = [Number(found?.[2]), Number(found?.[3])];
  return found?.[1] && low >= 0 && low < high && high <= 1 ? [[found[1], [low, high]]] : [];
}

/**
 * Place of a run among those that have a value, the best first.
 * @param {readonly Outcome[]} runs
 * @param {Outcome} own
 * @param {string} metric
 * @param {Goal} goal
 */
export function placeAmong(runs, own, metric, goal) {
  const known = runs.filter((run) => COUNTING.has(run.state)).map((run) => valueOf(run, metric)).filter((value) => typeof value === 'number' && Number.isFinite(value));
  const mine = Number(valueOf(own, metric));
  const better = known.filter((value) => (goal === 'minimize' ? Number(value) < mine : Number(value) > mine));
  return {place: better.length + 1, of: known.length};
}

/**
 * Whether less is better, guessed from the name of a metric.
 * @param {string} metric
 * @returns {'minimize' | 'maximize'}
 */
export function likelyGoal(metric) {
  return /loss|err|mse|mae|rmse|perplex|ppl|nll|time|latency|fid/i.test(metric) ? 'minimize' : 'maximize';
}

/**
 * Failed runs grouped by reason, the largest group first. Numbers inside a reason (free memory, step) do not
 * separate groups, except at its start (the exit code).
 * @param {readonly Outcome[]} runs
 * @returns {{failure: string | null, reason: string, runs: Outcome[]}[]} each with the reason of its first
 */
export function groupFailures(runs) {
  /** @type {Map<string, {failure: string | null, reason: string, runs: Outcome[]}>} */
  const groups = new Map();
  for (const run of runs) {
    if (!BAD.has(run.state)) continue;
    const failure = run.failure ?? null;
    const reason = run.reason ?? run.state;
    const [code = '', ...rest] = reason.split(':');
    const key = JSON.stringify([failure, code, rest.join(':').replace(/\d+(\.\d+)?(e[-+]?\d+)?/gi, '#')]);
    const group = groups.get(key) ?? {failure, reason, runs: []};
    group.runs.push(run);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.runs.length - a.runs.length);
}

/**
 * Runs sorted by a name; runs without a value come last in both directions.
 * @param {readonly Outcome[]} runs
 * @param {(run: Outcome) => unknown} value
 * @param {boolean} falls
 * @returns {Outcome[]}
 */
export function sortRuns(runs, value, falls) {
  const known = runs.filter((run) => isValue(value(run)));
  const rest = runs.filter((run) => !isValue(value(run)));
  known.sort((a, b) => compare(value(a), value(b)) * (falls ? -1 : 1));
  return [...known, ...rest];
}

/** @param {unknown} value */
function isValue(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
function compare(one, other) {
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  return String(one).localeCompare(String(other), 'en', {numeric: true});
}

/**
 * Whether a run is inside all brushes.
 * @param {Outcome} run
 * @param {Brushes} brushes
 * @param {ReadonlyMap<string, import('/logic/axes.js').Axis>} axes
 */
export function isBrushed(run, brushes, axes) {
  for (const [name, [low, high]] of Object.entries(brushes)) {
    const place = axes.get(name)?.place(valueOf(run, name)) ?? null;
    if (place === null || place < low || place > high) return false;
  }
  return true;
}

/**
 * Number of runs in each state.
 * @param {readonly {state: string}[]} runs
 * @returns {Record<string, number>}
 */
export function countStates(runs) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const run of runs) counts[run.state] = (counts[run.state] ?? 0) + 1;
  return counts;
}

const WAITING = new Set(['waiting', 'held', 'blocked', 'delayed', 'preempted']);
const AT_WORK = new Set(['running', 'starting']);

/**
 * About how long until all runs are over, if as many run at once as do now; null if that is not known.
 * @param {readonly Outcome[]} runs
 * @returns {number | null}
 */
export function secondsLeft(runs) {
  const took = runs.flatMap(({state, started_at: begin, ended_at: end}) => (state === 'done' && begin !== null && end !== null ? [end - begin] : []));
  const [open, now] = [runs.filter((run) => WAITING.has(run.state)).length, runs.filter((run) => AT_WORK.has(run.state)).length];
  if (took.length === 0 || now === 0) return null;
  const mean = took.reduce((sum, each) => sum + each, 0) / took.length;
  return mean * (open / now + 0.5);
}
