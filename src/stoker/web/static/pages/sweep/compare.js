/** Runs side by side: their curves in colours of their own, the parameters that differ, and the ends of their logs. */

import {h} from '/lib/dom.js';
import {download, get} from '/lib/connection.js';
import {curveChart} from '/lib/curve_chart.js';
import {go, link} from '/lib/router.js';
import {computed, effect, signal} from '/lib/signal.js';
import {smooth} from '/logic/curves.js';
import {cell, duration} from '/logic/format.js';
import {valueOf} from '/logic/outcomes.js';

/** @typedef {import('/logic/outcomes.js').Outcome} Outcome */
/** @typedef {import('/pages/sweep/state.js').SweepState} SweepState */

export const MOST = 8;
const TAIL = 20;
// Escape sequences, and what a carriage return has overwritten.
const ESCAPES = /\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[^\n]*\r(?!\n)/g;

/** @param {SweepState} state */
export function compareCard(state) {
  const {picked, runs} = state;
  const chosen = computed(() => JSON.stringify(picked.value.filter((job) => runs.value.some((run) => run.job === job)).slice(0, MOST)));
  return h('div', null, () => {
    const jobs = /** @type {number[]} */ (JSON.parse(chosen.value));
    return jobs.length > 1 && compared(state, jobs);
  });
}

/** @param {SweepState} state @param {readonly number[]} jobs */
function compared(state, jobs) {
  const shown = computed(() => jobs.flatMap((job) => state.runs.value.filter((run) => run.job === job)));
  return h(
    'article',
    {class: 'card compare', 'aria-label': 'Compared runs'},
    h('div', {class: 'row'}, h('h2', null, `Compare ${jobs.length} runs`), h('span', {class: 'spacer'}), h('button', {onclick: () => (state.picked.value = [])}, 'Done')),
    h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'What differs'}, () => differences(state, shown.value)),
    ownCurves(state, jobs),
    h('div', {class: 'tails'}, jobs.map((job, index) => tail(state, job, index))),
  );
}

/** @param {number} index */
const hue = (index) => `swatch line hue-${index % MOST}`;

/** @param {SweepState} state @param {readonly Outcome[]} shown */
function differences({params, metrics}, shown) {
  const varied = params.value.filter((name) => new Set(shown.map((run) => cell(valueOf(run, name)))).size > 1);
  /** @param {string} name @param {(run: Outcome) => any} read */
  const line = (name, read) => h('tr', null, h('th', {scope: 'row'}, name), shown.map((run) => h('td', null, read(run))));
  return h(
    'table',
    {class: 'differences'},
    h('thead', null, h('tr', null, h('th', {scope: 'col'}, 'job'), shown.map((run, index) => h('th', {scope: 'col'}, h('span', {class: hue(index)}), ' ', h('a', {href: link(`/jobs/${run.job}`)}, run.job))))),
    h('tbody', null, line('state', (run) => h('span', {class: `state ${run.state}`}, run.state)), varied.map((name) => line(name, (run) => cell(valueOf(run, name)))), metrics.value.map((name) => line(name, (run) => cell(valueOf(run, name)))), line('took', (run) => (run.started_at !== null && run.ended_at !== null ? duration(run.ended_at - run.started_at) : ''))),
  );
}

/** @param {SweepState} state @param {readonly number[]} jobs */
function ownCurves({name, cwd, metric, results, look, near}, jobs) {
  const curves = signal(/** @type {any[]} */ ([]));
  effect(() => {
    const [wanted, x] = [metric.value, look.value.x];
    if (!results.value || !wanted) return;
    get('/v1/curves', {name, cwd: cwd.peek(), metric: [wanted], x, jobs: jobs.map(String)}).then((found) => {
      if (metric.peek() === wanted) curves.value = found;
    }, () => {});
  });
  return curveChart({
    lines: () => jobs.flatMap((job, index) => curves.value.filter((curve) => curve.job === job).map(({xs, ys}) => ({job, label: `job ${job}`, xs, ys: smooth(ys, look.value.smooth), colour: `--hue${index % MOST}`, strong: true}))),
    label: () => `${metric.value} of the compared jobs ${jobs.join(', ')}`,
    isLog: () => look.value.log,
    zoom: signal(null),
    near,
    open: (job) => go(`/jobs/${job}`),
    formatX: (x) => (look.peek().x === 'time' ? duration(x) : cell(x)),
    height: 220,
  });
}

/** @param {SweepState} state @param {number} job @param {number} index */
function tail({results}, job, index) {
  const lines = signal('');
  effect(() => {
    if (!results.value) return;
    download({job, tail: TAIL}).then(async (log) => (lines.value = (await log.text()).replace(ESCAPES, '').trimEnd()), () => (lines.value = ''));
  });
  const box = h('pre', {tabindex: 0, 'aria-label': `End of the log of job ${job}`}, () => lines.value || 'nothing yet');
  effect(() => {
    if (lines.value) requestAnimationFrame(() => (box.scrollTop = box.scrollHeight));
  });
  return h('section', null, h('h3', null, h('span', {class: hue(index)}), ` Log of job ${job}`), box);
}
