/** Curves of runs: smoothing, means with their spread, and the best so far. */

/** @typedef {{job: number, xs: readonly number[], ys: readonly (number | null)[]}} Curve */
/** @typedef {{group: string, count: number, xs: number[], ys: number[], low: number[], high: number[]}} Band */

/**
 * An exponential mean without the bias of its first values; gaps stay gaps.
 * @param {readonly (number | null)[]} ys
 * @param {number} weight of what came before, from 0 to below 1
 * @returns {number[]}
 */
export function smooth(ys, weight) {
  if (!(weight > 0)) return ys.map((value) => value ?? NaN);
  let [sum, share] = [0, 0];
  return ys.map((value) => {
    if (value === null || !Number.isFinite(value)) return NaN;
    sum = sum * weight + (1 - weight) * value;
    share = share * weight + (1 - weight);
    return sum / share;
  });
}

/**
 * Value of a curve at a place between its points; NaN outside of it.
 * @param {readonly number[]} xs rising
 * @param {readonly (number | null)[]} ys
 * @param {number} x
 */
export function valueAt(xs, ys, x) {
  let [low, high] = [0, xs.length - 1];
  if (high < 0 || x < (xs[0] ?? NaN) || x > (xs[high] ?? NaN)) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  const [left = 0, right = 0] = [xs[low], xs[high]];
  const [from, to] = [ys[low] ?? NaN, ys[high] ?? NaN];
  return right > left ? from + ((to - from) * (x - left)) / (right - left) : from;
}

const PLACES = 120;

/**
 * Mean and standard deviation of the curves of each group.
 * @param {readonly Curve[]} curves
 * @param {(job: number) => string} groupOf
 * @returns {Band[]}
 */
export function bandsOf(curves, groupOf) {
  /** @type {Map<string, Curve[]>} */
  const groups = new Map();
  for (const curve of curves) {
    if (curve.xs.length === 0) continue;
    const group = groupOf(curve.job);
    const members = groups.get(group) ?? [];
    members.push(curve);
    groups.set(group, members);
  }
  return [...groups].sort(([one], [other]) => one.localeCompare(other, 'en', {numeric: true})).map(([group, members]) => band(group, members));
}

/**
 * @param {string} group
 * @param {readonly Curve[]} members
 * @returns {Band}
 */
function band(group, members) {
  const first = Math.min(...members.map(({xs}) => xs[0] ?? Infinity));
  const last = Math.max(...members.map(({xs}) => xs[xs.length - 1] ?? -Infinity));
  /** @type {Band} */
  const made = {group, count: members.length, xs: [], ys: [], low: [], high: []};
  for (let index = 0; index <= PLACES; index += 1) {
    const x = first + ((last - first) * index) / PLACES;
    const values = members.map(({xs, ys}) => valueAt(xs, ys, x)).filter(Number.isFinite);
    if (values.length === 0) continue;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, values.length - 1));
    made.xs.push(x);
    made.ys.push(mean);
    made.low.push(mean - spread);
    made.high.push(mean + spread);
    if (last === first) break;
  }
  return made;
}

/**
 * The best value after each run that has one, in the order in which they ended.
 * @param {readonly {job: number, ended_at: number | null, value: unknown}[]} runs
 * @param {'minimize' | 'maximize'} goal
 * @returns {{jobs: number[], xs: number[], ys: number[], best: number[]}} `ys` are the values of the runs
 */
export function bestSoFar(runs, goal) {
  const known = runs.filter(({value}) => typeof value === 'number' && Number.isFinite(value));
  known.sort((one, other) => (one.ended_at ?? Infinity) - (other.ended_at ?? Infinity) || one.job - other.job);
  const ys = known.map(({value}) => Number(value));
  let best = goal === 'minimize' ? Infinity : -Infinity;
  return {jobs: known.map(({job}) => job), xs: known.map((_run, index) => index + 1), ys, best: ys.map((value) => (best = goal === 'minimize' ? Math.min(best, value) : Math.max(best, value)))};
}
