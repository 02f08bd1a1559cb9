/** Filter of a sweep's runs by words: `failed`, `lr<0.01`, `opt=adam`. */

import {cell} from '/logic/format.js';
import {valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */

const TERM = /^(.+?)(<=|>=|!=|=|<|>)(.*)$/;

/**
 * A test for runs; all words must fit.
 * @param {string} text
 * @returns {(run: Outcome) => boolean}
 */
export function runFilter(text) {
  const tests = text.trim().split(/\s+/).filter(Boolean).map(testOf);
  return (run) => tests.every((test) => test(run));
}

/**
 * @param {string} word
 * @returns {(run: Outcome) => boolean}
 */
function testOf(word) {
  const found = TERM.exec(word);
  if (found) {
    const [, name = '', sign = '', wanted = ''] = found;
    return (run) => compare(read(run, name), sign, wanted);
  }
  const part = word.toLowerCase();
  return (run) => [run.state, String(run.job), ...Object.values(run.params).map(cell)].some((each) => each.toLowerCase().includes(part));
}

/** @param {Outcome} run @param {string} name */
function read(run, name) {
  if (name === 'state') return run.state;
  return name === 'job' ? run.job : valueOf(run, name);
}

/** @param {unknown} value @param {string} sign @param {string} wanted */
function compare(value, sign, wanted) {
  if (value === null || value === undefined) return false;
  const isNumber = typeof value === 'number' && wanted !== '' && !Number.isNaN(Number(wanted));
  const difference = isNumber ? Number(value) - Number(wanted) : cell(value).localeCompare(wanted, 'en', {numeric: true});
  if (sign === '=') return difference === 0;
  if (sign === '!=') return difference !== 0;
  if (sign.endsWith('=') && difference === 0) return true;
  return sign.startsWith('<') ? difference < 0 : difference > 0;
}
