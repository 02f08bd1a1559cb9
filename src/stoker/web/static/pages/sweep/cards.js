/** Cards of a sweep's page: the choice of the metric, the best run, failures, and what all runs have in common. */

import {h} from '/lib/dom.js';
import {post} from '/lib/connection.js';
import {link} from '/lib/router.js';
import {computed} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {cell, plural} from '/logic/format.js';
import {importanceOf, LEAST_RUNS} from '/logic/importance.js';
import {groupFailures, valueOf} from '/logic/outcomes.js';

const MOST_SHARES = 8;

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {import('/pages/sweep/state.js').SweepState} SweepState */

/** @type {Record<string, string>} names of failure classes */
const CLASSES = {
  gpu_oom: 'GPU out of memory',
  host_oom: 'machine out of memory',
  gpu_fault: 'GPU fault',
  neighbour: 'this job or one beside it',
  nccl: 'GPU communication (NCCL)',
  port_taken: 'port in use',
  container: 'no container',
  disk_full: 'disk full',
  setup: 'missing file or module',
  diverged: 'diverged',
  stalled: 'stalled',
  idle: 'idle GPU',
  error: 'error of the program',
};

/** @param {SweepState} state */
export function chooser(state) {
  const {metrics, metric, goal, wantedMetric, wantedGoal} = state;
  const isEmpty = computed(() => metrics.value.length === 0);
  return h('div', null, () => {
    if (isEmpty.value) return h('p', {class: 'card soft'}, 'No run has reported anything yet. In your script: ', h('code', null, 'stoker.report(step, val_acc=accuracy)'));
    return h(
      'div',
      {class: 'row'},
      h('label', {for: 'metric'}, 'Compare by'),
      picker({id: 'metric'}, () => metrics.value, () => metric.value, (chosen) => {
        wantedMetric.value = chosen;
        wantedGoal.value = '';
      }),
      h('label', {for: 'goal', class: 'sr'}, 'Goal'),
      h('select', {id: 'goal', value: () => goal.value, onchange: (/** @type {any} */ event) => (wantedGoal.value = event.target.value)}, h('option', {value: 'maximize'}, 'more is better'), h('option', {value: 'minimize'}, 'less is better')),
    );
  });
}

/**
 * A select whose options are made again only if they differ.
 * @param {Record<string, string>} props
 * @param {() => readonly string[]} names
 * @param {() => string} chosen
 * @param {(name: string) => void} choose
 */
export function picker(props, names, chosen, choose) {
  const key = computed(() => JSON.stringify(names()));
  const options = () => /** @type {string[]} */ (JSON.parse(key.value)).map((each) => h('option', {value: each}, each));
  return h('select', {...props, value: () => key.value && chosen(), onchange: (/** @type {any} */ event) => choose(event.target.value)}, options);
}

/** @param {SweepState} state */
export function bestCard({best, metric, params}) {
  const shown = computed(() => JSON.stringify([best.value?.job, best.value?.state, metric.value, ...[metric.value, ...params.value].map((each) => best.value && valueOf(best.value, each))]));
  return h('article', {class: 'card best'}, h('h2', null, 'Best run'), () => {
    const run = shown.value ? best.peek() : null;
    if (!run) return h('p', {class: 'soft'}, 'No run has a value yet.');
    return [
      h('p', {class: 'figure'}, h('span', {class: 'soft'}, metric.peek()), ' ', h('b', null, cell(valueOf(run, metric.peek())))),
      h('dl', {class: 'facts'}, params.peek().map((each) => [h('dt', null, each), h('dd', null, cell(valueOf(run, each)))])),
      h('p', null, h('a', {href: link(`/jobs/${run.job}`)}, `Job ${run.job}`), ' ', h('span', {class: `state ${run.state}`}, run.state)),
    ];
  });
}

/** @param {SweepState} state */
export function failureCard({runs, load}) {
  const groups = computed(() => groupFailures(runs.value));
  const shown = computed(() => JSON.stringify(groups.value.map(({failure, reason, runs: members}) => [failure, reason, members.map((run) => run.job)])));
  return h('article', {class: 'card failures'}, h('h2', null, 'Failures'), () => {
    if (shown.value === '[]') return h('p', {class: 'soft'}, 'No run has failed.');
    return h('ul', {class: 'groups'}, groups.peek().map((group) => failureGroup(group, load)));
  });
}

/**
 * @param {ReturnType<typeof groupFailures>[number]} group
 * @param {() => Promise<void>} load
 */
function failureGroup({failure, reason, runs: members}, load) {
  return h(
    'li',
    null,
    h('div', {class: 'row'}, h('b', null, plural(members.length, 'run')), failure && h('span', {class: 'state failed'}, CLASSES[failure] ?? failure), h('span', {class: 'spacer'}), h('button', {onclick: () => retry(members, load)}, 'Retry these')),
    h('p', {class: 'reason'}, reason),
    h('p', {class: 'soft'}, members.slice(0, 6).map((run) => [h('a', {href: link(`/jobs/${run.job}`)}, `job ${run.job}`), ' ']), members.length > 6 && `and ${members.length - 6} more`),
  );
}

/**
 * @param {readonly Outcome[]} members
 * @param {() => Promise<void>} load
 */
async function retry(members, load) {
  const ids = members.map((run) => run.job).join(',');
  await attempt(() => post('/v1/retry', {ids}), (answer) => {
    const refused = answer.refused[0] ? ` ${answer.refused[0].reason}` : '';
    return `${plural(answer.ids.length, 'run')} queued again.${refused}`;
  });
  await load();
}

/** @param {SweepState} state */
export function importanceCard({runs, params, metric}) {
  const shown = computed(() => JSON.stringify(importanceOf(runs.value, params.value, metric.value).map(({name, share}) => [name, Math.round(share * 100)])));
  return h('article', {class: 'card importance'}, h('h2', null, 'What matters'), () => {
    const found = /** @type {[string, number][]} */ (JSON.parse(shown.value));
    if (found.length === 0) return h('p', {class: 'soft'}, `This needs ${LEAST_RUNS} runs with a value.`);
    return [
      h('p', {class: 'hint'}, `How much of the differences in ${metric.peek()} each parameter explains by itself`),
      h('ul', {class: 'shares'}, found.slice(0, MOST_SHARES).map(([name, percent]) => h('li', null, h('span', null, name), h('span', {class: 'share-bar', 'aria-hidden': 'true'}, h('span', {style: {width: `${percent}%`}})), h('span', {class: 'num'}, `${percent} %`)))),
    ];
  });
}

/** @param {SweepState} state */
export function fixedCard({results}) {
  const shown = computed(() => JSON.stringify(results.value?.fixed ?? {}));
  return h('div', null, () => {
    const entries = Object.entries(JSON.parse(shown.value));
    if (entries.length === 0) return null;
    return h('article', {class: 'card'}, h('h2', null, 'Equal in all runs'), h('dl', {class: 'facts'}, entries.map(([name, value]) => [h('dt', null, name), h('dd', null, cell(value))])));
  });
}
