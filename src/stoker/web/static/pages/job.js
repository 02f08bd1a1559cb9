/** One job: its state and reason, details, history, charts and log. */

import {h} from '/lib/dom.js';
import {computed, signal} from '/lib/signal.js';
import {badge, mark} from '/lib/badge.js';
import {watch} from '/lib/connection.js';
import {shortcut} from '/lib/keys.js';
import {jobLog} from '/lib/logview.js';
import {confirmed, order} from '/lib/job_actions.js';
import {backTo, go, lastList} from '/lib/router.js';
import {facts} from '/pages/job/facts.js';
import {attempts, timeline} from '/pages/job/history.js';
import {charts} from '/pages/job/charts.js';
import {sweepRun} from '/pages/job/run.js';
import {why} from '/pages/job/why.js';

/** @typedef {import('/pages/job/facts.js').Detail} Detail */

const LIVE = ['starting', 'running', 'paused', 'suspended'];
/** @type {[string, string, (state: string) => boolean][]} */
const VERBS = [
  ['Kill', 'kill', (state) => LIVE.includes(state) || ['waiting', 'held', 'blocked', 'delayed'].includes(state)],
  ['Pause', 'pause', (state) => state === 'running'],
  ['Suspend', 'suspend', (state) => state === 'running'],
  ['Resume', 'resume', (state) => state === 'paused' || state === 'suspended'],
  ['Hold', 'hold', (state) => ['waiting', 'blocked', 'delayed'].includes(state)],
  ['Release', 'release', (state) => state === 'held'],
  ['Start next', 'start', (state) => ['waiting', 'held', 'delayed'].includes(state)],
  ['Retry', 'retry', (state) => ['failed', 'lost', 'killed', 'skipped', 'pruned', 'done'].includes(state)],
  ['Remove', 'rm', (state) => !LIVE.includes(state)],
];

/** @param {import('/pages/index.js').Context} context */
export function page({parts}) {
  const name = parts.id ?? '';
  const answer = watch('/v1/show', {job: name});
  const job = computed(() => /** @type {Detail | undefined} */ (answer.value.data));
  const id = computed(() => job.value?.id);
  const isGone = computed(() => answer.value.problem?.status === 404);
  shortcut('u', 'back to the jobs', () => backTo('/jobs'));
  return h(
    'section',
    null,
    h('p', {class: 'up'}, h('a', {href: lastList('/jobs'), onclick: back}, '← Jobs')),
    h('h1', null, () => `Job ${id.value ?? name} `, () => !isGone.value && title(job.value)),
    () => id.value !== undefined && !isGone.value && show(id.value, /** @type {import('/lib/signal.js').Signal<Detail>} */ (job)),
    () => isGone.value && h('p', {class: 'empty'}, answer.value.problem?.detail ?? ''),
  );
}

/** @param {Detail | undefined} job */
function title(job) {
  return job && [h('span', null, job.name ?? ''), ' ', badge(job.state), ' ', mark(job.mark)];
}

/** @param {MouseEvent} event */
function back(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  backTo('/jobs');
}

/**
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<Detail>} job
 */
function show(id, job) {
  const state = computed(() => job.value.state);
  return [
    why(id, job),
    h('div', {class: 'row', role: 'toolbar', 'aria-label': `Actions for job ${id}`}, () => buttons(id, state.value)),
    h(
      'div',
      {class: 'columns'},
      h('div', {class: 'card'}, h('h2', null, 'Details'), facts(job)),
      h('div', {class: 'card'}, h('h2', null, 'History'), timeline(job), attempts(job)),
    ),
    charts(id, computed(() => LIVE.includes(state.value) && job.value.slots !== null)),
    sweepRun(id, job),
    log(id, job),
  ];
}

/**
 * @param {number} id
 * @param {string} state
 */
function buttons(id, state) {
  return VERBS.filter(([, , fits]) => fits(state)).map(([title, verb]) => {
    const isFinal = verb === 'kill' || verb === 'rm';
    const act = async () => {
      const question = verb === 'kill' ? `End job ${id}?` : `Forget job ${id}, and its logs?`;
      if (isFinal && !(await confirmed(question, title))) return;
      const changed = await order(verb, [id]);
      if (verb === 'rm' && changed?.ids.length) go('/jobs');
    };
    return h('button', {class: isFinal ? 'danger' : '', onclick: act}, title);
  });
}

/**
 * The log of the last attempt, or of a selected one.
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<Detail>} job
 */
function log(id, job) {
  const last = computed(() => Math.max(1, job.value.attempt));
  const chosen = signal(/** @type {number | null} */ (null));
  const number = computed(() => chosen.value ?? last.value);
  const choose = () =>
    last.value > 1 &&
    h(
      'label',
      {class: 'attempt'},
      h('span', null, 'Attempt '),
      h(
        'select',
        {onchange: (/** @type {Event} */ event) => (chosen.value = Number(/** @type {HTMLSelectElement} */ (event.target).value))},
        Array.from({length: last.value}, (_, index) => h('option', {value: index + 1, selected: index + 1 === number.peek()}, index + 1)),
      ),
    );
  return h('section', null, h('h2', null, 'Log'), choose, () => jobLog({job: id, attempt: number.value}));
}
