/** Buttons that steer a sweep: pause, stop, retry what failed. */

import {h} from '/lib/dom.js';
import {post, watch} from '/lib/connection.js';
import {confirmed} from '/lib/job_actions.js';
import {computed} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {plural} from '/logic/format.js';
import {countStates} from '/logic/outcomes.js';

/** @typedef {import('/pages/sweep/state.js').SweepState} SweepState */

const OPEN = ['waiting', 'held', 'blocked', 'delayed', 'starting', 'running', 'paused', 'suspended'];
const BAD = ['failed', 'lost'];

/** @param {SweepState} state */
export function steering({name, runs, load}) {
  const status = watch('/v1/status');
  const isPaused = computed(() => Object.hasOwn(/** @type {any} */ (status.value.data)?.projects_paused ?? {}, name));
  /** @param {string[]} states */
  const count = (states) => computed(() => {
    const counts = countStates(runs.value);
    return states.reduce((sum, each) => sum + (counts[each] ?? 0), 0);
  });
  const [open, bad] = [count(OPEN), count(BAD)];

  /** @param {string} verb @param {object} order @param {(answer: any) => string} words */
  async function steer(verb, order, words) {
    await attempt(() => post(`/v1/${verb}`, {project: name, ...order}), words);
    await load();
  }
  async function stop() {
    if (!(await confirmed(`End ${plural(open.peek(), 'run')} of ${name} that run or wait? The results so far stay.`, 'Stop the sweep'))) return;
    await steer('kill', {}, (answer) => `${plural(answer.ids.length, 'run')} ended.`);
  }
  return h(
    'div',
    {class: 'row', role: 'toolbar', 'aria-label': `Steer ${name}`},
    h('button', {hidden: () => open.value === 0 && !isPaused.value, onclick: () => steer(isPaused.peek() ? 'resume' : 'pause', {queue: true}, () => (isPaused.peek() ? 'Runs start again.' : 'No more runs start; those that run go on.'))}, () => (isPaused.value ? 'Resume' : 'Pause')),
    h('button', {hidden: () => bad.value === 0, onclick: () => steer('retry', {states: BAD}, (answer) => `${plural(answer.ids.length, 'run')} queued again.`)}, () => `Retry ${bad.value} failed`),
    h('button', {class: 'danger', hidden: () => open.value === 0, onclick: stop}, 'Stop'),
  );
}
