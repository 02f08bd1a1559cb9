/** The runs of a sweep as a table: sorted, filtered, with columns that can be hidden or come first, and runs to compare. */

import {each, h} from '/lib/dom.js';
import {link} from '/lib/router.js';
import {computed, signal} from '/lib/signal.js';
import {cell, duration, plural} from '/logic/format.js';
import {runFilter} from '/logic/filter.js';
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
 * @param {import('/lib/signal.js').Signal<{filter: string, hide: string[], pin: string[]}>} options.table
 * @param {import('/lib/signal.js').Signal<number[]>} options.picked the runs to compare
 * @returns {HTMLElement}
 */
export function runTable({runs: all, params, metrics, best, near, table, picked}) {
  const sorted = signal({name: 'job', falls: false});
  const limit = signal(FIRST_ROWS);
  const fits = computed(() => runFilter(table.value.filter));
  const runs = () => all().filter(fits.value);
  // Columns and rows stay the same elements while their runs get new values.
  const kinds = computed(() => JSON.stringify([...params(), ...metrics()].map((name) => [name, all().some((run) => typeof valueOf(run, name) === 'number')])));
  const every = computed(() => makeColumns(JSON.parse(kinds.value), picked));
  const columns = computed(() => arrange(every.value, table.value));

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
    h('div', {class: 'row'}, h('h2', null, 'Runs'), h('span', {class: 'soft'}, () => plural(runs().length, 'run')), h('span', {class: 'spacer'}), filterField(table), columnMenu(every, table)),
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

/** @param {import('/lib/signal.js').Signal<{filter: string, hide: string[], pin: string[]}>} table */
function filterField(table) {
  const change = (/** @type {any} */ event) => (table.value = {...table.peek(), filter: event.target.value});
  return h('input', {type: 'search', 'aria-label': 'Filter runs', placeholder: 'lr<0.01 failed', title: 'Words that all must fit: a state, part of a value, lr<0.01, opt=adam', value: () => table.value.filter, oninput: change});
}

/**
 * @param {import('/lib/signal.js').Signal<readonly Column[]>} every
 * @param {import('/lib/signal.js').Signal<{filter: string, hide: string[], pin: string[]}>} table
 */
function columnMenu(every, table) {
  /** @param {'hide' | 'pin'} list @param {string} name */
  const turn = (list, name) => {
    const now = table.peek()[list];
    table.value = {...table.peek(), [list]: now.includes(name) ? now.filter((each) => each !== name) : [...now, name]};
  };
  return h(
    'details',
    {class: 'menu'},
    h('summary', null, 'Columns'),
    h('ul', null, () => every.value.filter(({name}) => name !== 'job').map(({name}) => h('li', {class: 'row'}, h('label', null, h('input', {type: 'checkbox', checked: () => !table.value.hide.includes(name), onchange: () => turn('hide', name)}), ` ${name}`), h('button', {class: 'toggle', 'aria-pressed': () => String(table.value.pin.includes(name)), onclick: () => turn('pin', name)}, 'Pin', h('span', {class: 'sr'}, ` ${name}`))))),
  );
}

/**
 * The columns that are shown, pinned ones behind the job.
 * @param {readonly Column[]} every
 * @param {{hide: string[], pin: string[]}} table
 */
function arrange(every, {hide, pin}) {
  const place = (/** @type {Column} */ {name}) => (name === 'job' ? 0 : pin.includes(name) ? 1 : 2);
  return every.filter(({name}) => name === 'job' || !hide.includes(name)).sort((one, other) => place(one) - place(other));
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
 * @param {import('/lib/signal.js').Signal<number[]>} picked
 * @returns {Column[]}
 */
function makeColumns(own, picked) {
  return [
    {name: 'job', value: (run) => run.job, show: (run) => [tick(run.job, picked), h('a', {href: link(`/jobs/${run.job}`)}, String(run.job))], isNumber: true, isFixed: true},
    {name: 'state', value: (run) => run.state, show: (run) => [h('span', {class: `state ${run.state}`}, run.state), run.problem && h('span', {class: 'warn', title: run.problem}, ' !')], isNumber: false},
    ...own.map(([name, isNumber]) => ({name, value: (/** @type {Outcome} */ run) => valueOf(run, name), isNumber})),
    {name: 'took', value: took, show: (run) => { const seconds = took(run); return seconds === null ? '' : duration(seconds); }, isNumber: true},
  ];
}

/** @param {number} job @param {import('/lib/signal.js').Signal<number[]>} picked */
function tick(job, picked) {
  const turn = () => (picked.value = picked.peek().includes(job) ? picked.peek().filter((each) => each !== job) : [...picked.peek(), job]);
  return h('input', {type: 'checkbox', class: 'pick', 'aria-label': `Compare job ${job}`, title: 'Compare 2 to 8 runs', checked: () => picked.value.includes(job), onchange: turn});
}

/** @param {Outcome} run */
function took(run) {
  return run.started_at !== null && run.ended_at !== null ? run.ended_at - run.started_at : null;
}
