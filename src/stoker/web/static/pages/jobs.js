/** The jobs: a live table with filters and actions. */

import {h} from '/lib/dom.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {get, watch} from '/lib/connection.js';
import {shortcut} from '/lib/keys.js';
import {filterOf, filters} from '/pages/jobs/filters.js';
import {actions, allPages} from '/pages/jobs/actions.js';
import {table} from '/pages/jobs/table.js';
import {variedOptions} from '/logic/commands.js';
import {go, keepScroll, link} from '/lib/router.js';

/**
 * @typedef {object} Job
 * @property {number} id
 * @property {string | null} name
 * @property {string | null} project
 * @property {string} state
 * @property {string} command
 * @property {number} gpus
 * @property {number} priority
 * @property {number} attempt
 * @property {string | null} slots
 * @property {string | null} reason
 * @property {number | null} submitted_at
 * @property {number | null} started_at
 * @property {number | null} ended_at
 * @property {number | null} ends_at
 * @property {import('/lib/badge.js').Mark | null} mark
 */
/** @typedef {{jobs: Job[], next: string | null}} Jobs */
/**
 * State that the parts of the page share.
 * @typedef {object} JobsView
 * @property {import('/lib/signal.js').Signal<URLSearchParams>} query the filter in the address
 * @property {(change: Record<string, string | string[] | null>) => void} filter change the filter or the order
 * @property {import('/lib/signal.js').Signal<number>} page
 * @property {import('/lib/signal.js').Signal<Jobs | undefined>} jobs
 * @property {import('/lib/signal.js').Signal<ReadonlySet<number>>} chosen
 * @property {import('/lib/signal.js').Signal<Record<string, number>>} counts
 * @property {import('/lib/signal.js').Signal<ReadonlyMap<number, {program: string, varied: string}>>} varied
 */

const PAGE = 50;
const COUNT_EACH_MS = 3000;

/** @param {import('/pages/index.js').Context} context */
export function page({query}) {
  const cursors = computed(() => JSON.stringify(query.value.getAll('after')));
  /** @param {string[]} after @param {{replace?: boolean}} [how] */
  const turn = (after, how = {}) => go('/jobs', {...filterOf(query.peek()), sort: query.peek().get('sort'), after}, how);
  /** @param {Record<string, string | string[] | null>} change */
  const filter = (change) => go('/jobs', {...filterOf(query.peek()), sort: query.peek().get('sort'), ...change}, {replace: true});
  const jobs = readJobs(query, cursors);
  const varied = computed(() => variedOptions(jobs.value?.jobs ?? []));
  const view = {query, filter, page: computed(() => query.value.getAll('after').length + 1), jobs, chosen: signal(new Set()), counts: readCounts(query), varied};
  const part = computed(() => JSON.stringify([filterOf(query.value), query.value.get('sort')]));
  let known = part.peek();
  effect(() => {
    if (part.value !== known) view.chosen.value = new Set();
    known = part.value;
  });
  effect(() => {
    // No job of this part matches: continue with the next part.
    const jobs = view.jobs.value;
    if (jobs && !jobs.jobs.length && jobs.next) turn([...query.peek().getAll('after'), jobs.next], {replace: true});
  });
  const rows = table(view);
  keepScroll(rows, () => view.jobs.value !== undefined);
  const isEmpty = computed(() => view.jobs.value !== undefined && !view.jobs.value.jobs.length && !view.jobs.value.next);
  return h(
    'section',
    null,
    h('h1', null, 'Jobs'),
    filters(view),
    rows,
    () => isEmpty.value && empty(query.value),
    pager(view, turn),
    actions(view),
  );
}

/**
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 * @param {import('/lib/signal.js').Signal<string>} cursors a JSON list
 */
function readJobs(query, cursors) {
  const jobs = signal(/** @type {Jobs | undefined} */ (undefined));
  effect(() => {
    const answer = watch('/v1/ls', {...filterOf(query.value), sort: query.value.get('sort'), after: JSON.parse(cursors.value).at(-1), limit: PAGE});
    effect(() => {
      // The old rows stay until new ones arrive.
      if (answer.value.data) jobs.value = /** @type {Jobs} */ (answer.value.data);
    });
  });
  return jobs;
}

/**
 * Number of jobs in each state; with a filter they are counted from time to time.
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 */
function readCounts(query) {
  const counts = signal(/** @type {Record<string, number>} */ ({}));
  const part = computed(() => {
    const {project, text, gpu} = filterOf(query.value);
    return project || text || gpu ? JSON.stringify({project, text, gpu}) : '';
  });
  effect(() => {
    if (!part.value) {
      const status = watch('/v1/status');
      effect(() => {
        if (status.value.data) counts.value = /** @type {any} */ (status.value.data).counts;
      });
      return;
    }
    const wanted = JSON.parse(part.value);
    const ask = async () => {
      const answer = await get('/v1/counts', wanted).catch(() => null);
      if (answer && JSON.stringify(wanted) === part.peek()) counts.value = answer;
    };
    ask();
    const timer = setInterval(ask, COUNT_EACH_MS);
    onCleanup(() => clearInterval(timer));
  });
  return counts;
}

/** @param {URLSearchParams} query */
function empty(query) {
  if (query.toString()) {
    return h('div', {class: 'empty'}, h('p', null, 'No job matches the filters.'), h('a', {href: link('/jobs')}, 'Show all'));
  }
  return h('div', {class: 'empty'}, h('p', null, 'There are no jobs yet. Add the first one:'), h('pre', null, 'stoker add -- python train.py'), h('a', {href: link('/submit')}, 'or from this page'));
}

/**
 * @param {JobsView} view
 * @param {(after: string[]) => void} turn
 */
function pager(view, turn) {
  const isFirst = computed(() => view.page.value === 1);
  const next = computed(() => view.jobs.value?.next ?? null);
  const back = () => {
    if (!isFirst.peek()) turn(view.query.peek().getAll('after').slice(0, -1));
  };
  const on = () => {
    const cursor = next.peek();
    if (cursor) turn([...view.query.peek().getAll('after'), cursor]);
  };
  shortcut('n', 'next page of jobs', on);
  shortcut('p', 'previous page of jobs', back);
  return h(
    'nav',
    {class: 'row pager', 'aria-label': 'Pages of jobs'},
    h('button', {disabled: () => isFirst.value, onclick: () => turn([])}, 'First'),
    h('button', {disabled: () => isFirst.value, onclick: back}, 'Previous'),
    h('span', {class: 'soft'}, () => `Page ${view.page.value}`),
    h('button', {disabled: () => !next.value, onclick: on}, 'Next'),
    h('span', {class: 'spacer'}),
    () => !view.chosen.value.size && (next.value || !isFirst.value) && allPages(view),
  );
}
