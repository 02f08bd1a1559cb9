/** The runs of a sweep as a table that can be sorted. */

import {each, h} from '/lib/dom.js';
import {link} from '/lib/router.js';
import {computed, signal} from '/lib/signal.js';
import {cell, duration, plural} from '/logic/format.js';
import {sortRuns, valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {{name: string, value: (run: Outcome) => unknown, show?: (run: Outcome) => any, isNumber: boolean, isFixed?: boolean}} Column */

const FIRST_ROWS = 100;

/**
 * @param {object} options
 * @param {() => readonly Outcome[]} options.runs
 * @param {() => readonly string[]} options.params
 * @param {() => readonly string[]} options.metrics
 * @param {() => Outcome | null} options.best
 * @param {import('/lib/signal.js').Signal<number | null>} options.near the job that the pointer is at
 * @returns {HTMLElement}
 */
export function runTable({runs, params, metrics, best, near}) {
  const sorted = signal({name: 'job', falls: false});
  const limit = signal(FIRST_ROWS);
  // Columns and rows stay the same elements while their runs get new values.
  const kinds = computed(() => JSON.stringify([...params(), ...metrics()].map((name) => [name, runs().some((run) => typeof valueOf(run, name) === 'number')])));
  const columns = computed(() => makeColumns(JSON.parse(kinds.value)));

  /** @param {string} name */
  function sort(name) {
    const {name: before, falls} = sorted.peek();
    sorted.value = {name, falls: before === name ? !falls : false};
  }

  function rows() {
    const shown = columns.value;
    const by = shown.find((each) => each.name === sorted.value.name) ?? shown[0];
    return by ? sortRuns(runs(), by.value, sorted.value.falls).slice(0, limit.value) : [];
  }

  /** @param {readonly Column[]} shown @param {import('/lib/signal.js').Signal<Outcome>} run */
  function row(shown, run) {
    const {job} = run.peek();
    const kind = () => [job === best()?.job && 'best', job === near.value && 'near'].filter(Boolean).join(' ');
    return h('tr', {class: kind, onpointerenter: () => (near.value = job), onpointerleave: () => (near.value = null)}, shown.map((each) => h('td', {class: each.isNumber ? 'num' : null}, content(each, run))));
  }

  const isMore = computed(() => runs().length > limit.value);
  return h(
    'div',
    null,
    h('div', {class: 'row'}, h('h2', null, 'Runs'), h('span', {class: 'soft'}, () => plural(runs().length, 'run'))),
    h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Runs'}, () => {
      const shown = columns.value;
      return h(
        'table',
        {class: 'runs'},
        h('thead', null, h('tr', null, shown.map((each) => h('th', {class: each.isNumber ? 'num' : null, scope: 'col', 'aria-sort': () => direction(sorted.value, each.name)}, h('button', {class: 'plain', onclick: () => sort(each.name)}, each.name))))),
        each(h('tbody', null), rows, (run) => run.job, (run) => row(shown, run)),
      );
    }),
    () => isMore.value && h('button', {onclick: () => (limit.value += 10 * FIRST_ROWS)}, () => `Show more of ${runs().length}`),
  );
}

/**
 * @param {Column} column
 * @param {import('/lib/signal.js').Signal<Outcome>} run
 */
function content({isFixed, show, value}, run) {
  if (isFixed) return show?.(run.peek());
  return () => (show ? show(run.value) : cell(value(run.value)));
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
 * @param {readonly [string, boolean][]} own parameters and metrics, and whether they have numbers
 * @returns {Column[]}
 */
function makeColumns(own) {
  return [
    {name: 'job', value: (run) => run.job, show: (run) => h('a', {href: link(`/jobs/${run.job}`)}, String(run.job)), isNumber: true, isFixed: true},
    {name: 'state', value: (run) => run.state, show: (run) => [h('span', {class: `state ${run.state}`}, run.state), run.problem && h('span', {class: 'warn', title: run.problem}, ' !')], isNumber: false},
    ...own.map(([name, isNumber]) => ({name, value: (/** @type {Outcome} */ run) => valueOf(run, name), isNumber})),
    {name: 'took', value: took, show: (run) => { const seconds = took(run); return seconds === null ? '' : duration(seconds); }, isNumber: true},
  ];
}

/** @param {Outcome} run */
function took(run) {
  return run.started_at !== null && run.ended_at !== null ? run.ended_at - run.started_at : null;
}
