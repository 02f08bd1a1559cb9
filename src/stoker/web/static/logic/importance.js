/** How much each parameter matters for a metric: the share of its variance that the parameter explains by itself. */

import {cell} from '/logic/format.js';
import {valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */

export const LEAST_RUNS = 8;
const GROUPS = 5;
const COUNTING = new Set(['done', 'running', 'starting', 'paused', 'suspended']);

/**
 * Shares from 0 to 1, the largest first; empty with too few runs. Runs are grouped by the values of a parameter, many numbers
 * by fifths. What groups of that number would explain by chance is taken off (epsilon squared).
 * @param {readonly Outcome[]} runs
 * @param {readonly string[]} params
 * @param {string} metric
 * @returns {{name: string, share: number}[]}
 */
export function importanceOf(runs, params, metric) {
  const known = runs.flatMap((run) => {
    const value = valueOf(run, metric);
    return COUNTING.has(run.state) && typeof value === 'number' && Number.isFinite(value) ? [{run, value}] : [];
  });
  if (known.length < LEAST_RUNS) return [];
  const values = known.map(({value}) => value);
  const found = params.map((name) => ({name, share: explained(values, groupsOf(known.map(({run}) => valueOf(run, name))))}));
  return found.sort((one, other) => other.share - one.share);
}

/**
 * The group of each value.
 * @param {readonly unknown[]} values
 * @returns {string[]}
 */
function groupsOf(values) {
  const words = values.map((value) => cell(value));
  const isNumeric = values.every((value) => typeof value === 'number');
  if (!isNumeric || new Set(words).size <= GROUPS) return words;
  const sorted = values.map(Number).sort((one, other) => one - other);
  return values.map((value) => String(Math.floor((sorted.indexOf(Number(value)) * GROUPS) / sorted.length)));
}

/**
 * @param {readonly number[]} values
 * @param {readonly string[]} groups
 */
function explained(values, groups) {
  /** @type {Map<string, number[]>} */
  const members = new Map();
  for (const [index, value] of values.entries()) {
    const group = groups[index] ?? '';
    members.set(group, [...(members.get(group) ?? []), value]);
  }
  const all = squares(values);
  const [count, kinds] = [values.length, members.size];
  if (all === 0 || kinds < 2 || kinds >= count) return 0;
  const within = [...members.values()].reduce((sum, each) => sum + squares(each), 0);
  return Math.max(0, 1 - within / (count - kinds) / (all / (count - 1)));
}

/**
 * Sum of the squared distances from the mean.
 * @param {readonly number[]} values
 */
function squares(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
}
