/** The runs of a sweep as a table that can be sorted. */

import {h} from '/lib/dom.js';
import {link} from '/lib/router.js';
import {signal} from '/lib/signal.js';
import {cell, duration, plural} from '/logic/format.js';
import {sortRuns, valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {{name: string, value: (run: Outcome) => unknown, show?: (run: Outcome) => any, isNumber: boolean}} Column */

const FIRST_ROWS = 100;

/**
 * @param {object} options
 * @param {() => readonly Outcome[]} options.runs
 * @param {() => readonly string[]} options.params
 * @param {() => readonly string[]} options.metrics
 * @param {() => Outcome | null} options.best
 * @returns {HTMLElement}
 */
export function runTable({runs, params, metrics, best}) {
  const sorted = signal({name: 'job', falls: false});
  const limit = signal(FIRST_ROWS);
  const columns = () => makeColumns(runs(), params(), metrics());

  /** @param {string} name */
  function sort(name) {
    const {name: before, falls} = sorted.peek();
    sorted.value = {name, falls: before === name ? !falls : false};
  }

  function body() {
    const shown = columns();
    const by = shown.find((each) => each.name === sorted.value.name) ?? shown[0];
    const rows = by ? sortRuns(runs(), by.value, sorted.value.falls) : [];
    return rows.slice(0, limit.value).map((run) => h('tr', {class: run === best() ? 'best' : null}, shown.map((each) => h('td', {class: each.isNumber ? 'num' : null}, each.show ? each.show(run) : cell(each.value(run))))));
  }

  return h(
    'div',
    null,
    h('div', {class: 'row'}, h('h2', null, 'Runs'), h('span', {class: 'soft'}, () => plural(runs().length, 'run'))),
    h(
      'div',
      {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Runs'},
      h(
        'table',
        {class: 'runs'},
        h('thead', null, h('tr', null, () => columns().map((each) => h('th', {class: each.isNumber ? 'num' : null, scope: 'col', 'aria-sort': () => direction(sorted.value, each.name)}, h('button', {class: 'plain', onclick: () => sort(each.name)}, each.name))))),
        h('tbody', null, body),
      ),
    ),
    () => runs().length > limit.value && h('button', {onclick: () => (limit.value += 10 * FIRST_ROWS)}, `Show more of ${runs().length}`),
  );
}

/**
 * @param {{name: string, falls: boolean}} sorted
 * @param {string} name
 */
function direction(sorted, name) {
  if (sorted.name !== name) return null;
  return sorted.falls ? 'descending' : 'ascending';
}

/**
 * @param {readonly Outcome[]} runs
 * @param {readonly string[]} params
 * @param {readonly string[]} metrics
 * @returns {Column[]}
 */
function makeColumns(runs, params, metrics) {
  /** @param {string} name @returns {Column} */
  const own = (name) => ({name, value: (run) => valueOf(run, name), isNumber: runs.some((run) => typeof valueOf(run, name) === 'number')});
  return [
    {name: 'job', value: (run) => run.job, show: (run) => h('a', {href: link(`/jobs/${run.job}`)}, String(run.job)), isNumber: true},
    {name: 'state', value: (run) => run.state, show: (run) => [h('span', {class: `state ${run.state}`}, run.state), run.problem && h('span', {class: 'warn', title: run.problem}, ' !')], isNumber: false},
    ...params.map(own),
    ...metrics.map(own),
    {name: 'took', value: took, show: (run) => { const seconds = took(run); return seconds === null ? '' : duration(seconds); }, isNumber: true},
  ];
}

/** @param {Outcome} run */
function took(run) {
  return run.started_at !== null && run.ended_at !== null ? run.ended_at - run.started_at : null;
}
