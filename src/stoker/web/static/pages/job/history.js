/** History of a job: its states in order, and its attempts. */

import {h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {badge} from '/lib/badge.js';
import {bothWays, span} from '/lib/clock.js';
import {duration, size} from '/logic/format.js';

/** @typedef {import('/pages/job/facts.js').Detail} Detail */
/** @typedef {import('/pages/job/facts.js').Attempt} Attempt */

/** @type {[string, string | null, (attempt: Attempt) => import('/lib/dom.js').Child][]} title, class, value */
const COLUMNS = [
  ['No.', 'num', (attempt) => attempt.number],
  ['State', null, (attempt) => badge(attempt.state)],
  ['End', 'clock', ending],
  ['GPU', null, (attempt) => attempt.slots ?? ''],
  ['PID', 'num', (attempt) => (attempt.ended_at === null ? (attempt.pid ?? '') : '')],
  ['Took', 'num', (attempt) => span(attempt.started_at, attempt.ended_at)],
  ['CPU', 'num', (attempt) => (attempt.cpu_s === null ? '' : duration(attempt.cpu_s))],
  ['Memory', 'num', (attempt) => (attempt.max_rss_bytes === null ? '' : size(attempt.max_rss_bytes))],
  ['GPU memory', 'num', (attempt) => peak(attempt.gpu_use)],
  ['GPU use', 'num', (attempt) => mean(attempt.gpu_use)],
];

/** @param {import('/lib/signal.js').Signal<Detail>} job */
export function timeline(job) {
  const shown = computed(() => JSON.stringify([job.value.state, job.value.attempts, job.value.reason]));
  return h('ol', {class: 'timeline', 'aria-label': 'States so far'}, () => shown.value && steps(job.peek()));
}

/** @param {Detail} job */
function steps(job) {
  const past = job.attempts.flatMap((attempt) => [
    attempt.started_at !== null && step(attempt.started_at, 'running', attempt.slots ? `on GPU ${attempt.slots}` : ''),
    attempt.ended_at !== null && step(attempt.ended_at, attempt.state, attempt.reason ?? ending(attempt)),
  ]);
  const last = job.attempts.at(-1);
  const isSaid = last && (last.state === job.state || (last.ended_at === null && job.state === 'running'));
  return [
    step(job.submitted_at, 'waiting', 'submitted'),
    past,
    !isSaid && job.state !== 'waiting' && step(job.ended_at, job.state, job.reason ?? ''),
    !isSaid && job.state === 'waiting' && job.attempts.length > 0 && step(null, 'waiting', 'once more'),
  ];
}

/**
 * @param {number | null} at
 * @param {string} state
 * @param {string} words
 */
function step(at, state, words) {
  return h('li', null, badge(state), ' ', at === null ? 'now' : bothWays(at), ' ', h('span', {class: 'soft'}, words));
}

/** @param {import('/lib/signal.js').Signal<Detail>} job */
export function attempts(job) {
  const shown = computed(() => JSON.stringify(job.value.attempts));
  return h('div', null, () => (shown.value === '[]' ? null : table(job.peek().attempts)));
}

/**
 * Empty columns are left out.
 * @param {Attempt[]} all
 */
function table(all) {
  const columns = COLUMNS.filter(([, , read]) => all.some((each) => read(each) !== ''));
  return h(
    'div',
    {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Attempts'},
    h(
      'table',
      null,
      h('caption', {class: 'sr'}, 'Attempts'),
      h('thead', null, h('tr', null, columns.map(([title, kind]) => h('th', {scope: 'col', class: kind}, title)))),
      h('tbody', null, all.map((each) => h('tr', null, columns.map(([, kind, read]) => h('td', {class: kind}, read(each)))))),
    ),
  );
}

/**
 * Peak of the GPU memory that it used.
 * @param {Attempt['gpu_use']} use
 */
function peak(use) {
  return use?.mem_peak_bytes ? size(use.mem_peak_bytes) : '';
}

/**
 * Mean share of the GPU's time.
 * @param {Attempt['gpu_use']} use
 */
function mean(use) {
  return typeof use?.sm_mean_pct === 'number' ? `${Math.round(use.sm_mean_pct)} %` : '';
}

/** @param {Attempt} attempt */
function ending({exit_code: code, signal}) {
  if (signal !== null) return `signal ${signal}`;
  return code === null ? '' : `exit ${code}`;
}
