/** Why a job is in its state: in one sentence, and for a job that waits as a picture with a cell for each GPU. */

import {each, h} from '/lib/dom.js';
import {watch} from '/lib/connection.js';
import {link} from '/lib/router.js';
import {computed} from '/lib/signal.js';
import {count} from '/logic/format.js';

/** @typedef {{label: string, state: string, text: string, job: number | null}} Cell */

/** @type {Record<string, string>} what a cell says if no job is to blame */
const WORDS = {free: 'free', held: 'in use', full: 'full', kept: 'kept', drained: 'drained', closed: 'closed', foreign: 'other people', barred: 'not for it'};
const COUNTED = 10_000;

/**
 * The explanation of the state, with its changes.
 * @param {number} id
 * @param {import('/lib/signal.js').Signal<import('/pages/job/facts.js').Detail>} job
 */
export function why(id, job) {
  const answer = watch('/v1/why', {job: id});
  const found = computed(() => /** @type {{text: string, gpus: Cell[], ahead: number | null} | undefined} */ (answer.value.data));
  const kind = computed(() => (['failed', 'lost', 'skipped'].includes(job.value.state) ? 'why bad' : 'why soft'));
  const ahead = computed(() => found.value?.ahead ?? 0);
  const isPictured = computed(() => (found.value?.gpus.length ?? 0) > 0);
  return h(
    'div',
    {class: 'why-box'},
    h('p', {class: () => kind.value, role: 'status'}, () => found.value?.text ?? ''),
    () => isPictured.value && h(
      'div',
      {class: 'row why-picture'},
      each(h('ul', {class: 'cells', 'aria-label': 'GPUs that it waits for'}), () => found.value?.gpus ?? [], (each) => each.label, cell),
      () => ahead.value > 0 && h('a', {class: 'ahead', href: link('/jobs', {states: ['waiting']})}, `${ahead.value >= COUNTED ? `more than ${count(COUNTED)}` : count(ahead.value)} ahead of it`),
    ),
  );
}

/** @param {import('/lib/signal.js').Signal<Cell>} cell */
function cell(cell) {
  const words = () => `GPU ${cell.value.label}: ${cell.value.text}`;
  const shown = computed(() => JSON.stringify([cell.value.state, cell.value.job]));
  return h('li', {class: () => `cell ${cell.value.state}`, title: words}, () => {
    const [state, job] = JSON.parse(shown.value);
    const name = [h('b', null, cell.peek().label), ' '];
    if (job === null) return h('span', null, name, WORDS[state] ?? state, h('span', {class: 'sr'}, () => `: ${cell.value.text}`));
    return h('a', {href: link(`/jobs/${job}`)}, name, state === 'kept' ? `kept for job ${job}` : `job ${job}`, h('span', {class: 'sr'}, () => `: ${cell.value.text}`));
  });
}
