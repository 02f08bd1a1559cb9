/** Actions on the selected jobs. */

import {h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {shortcut} from '/lib/keys.js';
import {confirmed, order} from '/lib/job_actions.js';
import {get} from '/lib/connection.js';
import {attempt} from '/lib/toast.js';
import {count} from '/logic/format.js';
import {filterOf} from '/pages/jobs/filters.js';
import {move} from '/pages/jobs/move.js';

const MOST = 10_000;
const PAGE = 1000;

/** @param {import('/pages/jobs.js').JobsView} view */
export function actions(view) {
  const ids = computed(() => [...view.chosen.value]);
  const isNone = computed(() => !ids.value.length);
  const who = () => (ids.peek().length === 1 ? `job ${ids.peek()[0]}` : `${count(ids.peek().length)} jobs`);
  /** @param {string} verb @param {object} [more] */
  const act = async (verb, more) => {
    if (!ids.peek().length) return;
    const changed = await order(verb, ids.peek(), more);
    if (changed) view.chosen.value = new Set(changed.refused.map(({id}) => id));
  };
  const kill = async () => {
    if (ids.peek().length && (await confirmed(`End ${who()}? What they have done so far may be lost.`, 'Kill'))) act('kill');
  };
  const remove = async () => {
    if (ids.peek().length && (await confirmed(`Forget ${who()}, and their logs?`, 'Remove'))) act('rm');
  };
  shortcut('Escape', 'select no job', () => (view.chosen.value = new Set()));
  /** @type {HTMLInputElement} */
  const priority = h('input', {type: 'number', class: 'short', 'aria-label': 'Priority', value: '0', min: -1000000, max: 1000000});
  /** @param {string} text @param {() => void} onclick @param {string} [kind] */
  const button = (text, onclick, kind = '') => h('button', {class: kind, onclick}, text);
  const single = computed(() => {
    const [only, ...others] = ids.value;
    const job = view.jobs.value?.jobs.find(({id}) => id === only);
    return job && !others.length && job.state === 'waiting' ? job : null;
  });
  const isMore = computed(() => Boolean(view.jobs.value?.next) || view.page.value > 1);
  return h(
    'div',
    {class: 'row actions card', hidden: () => isNone.value, role: 'toolbar', 'aria-label': 'Actions for the selected jobs'},
    h('span', {class: 'soft', 'aria-live': 'polite'}, () => `${count(ids.value.length)} selected`),
    () => isMore.value && allPages(view),
    button('Kill', kill, 'danger'),
    button('Retry', () => act('retry')),
    button('Hold', () => act('hold')),
    button('Release', () => act('release')),
    button('Start next', () => act('start')),
    priority,
    button('Set priority', () => act('set', {to: {priority: Number(priority.value)}})),
    button('Remove', remove, 'danger'),
    h('button', {disabled: () => !single.value, onclick: () => single.peek() && move(view, single.peek()?.id ?? 0, -1)}, 'Up'),
    h('button', {disabled: () => !single.value, onclick: () => single.peek() && move(view, single.peek()?.id ?? 0, 1)}, 'Down'),
  );
}

/**
 * The button that selects the jobs of all pages.
 * @param {import('/pages/jobs.js').JobsView} view
 */
export function allPages(view) {
  return h('button', {onclick: () => attempt(() => chooseAll(view), tellChosen)}, 'Select all pages');
}

/**
 * Select all jobs that match the filter, on all pages; whether there are more than the limit.
 * @param {import('/pages/jobs.js').JobsView} view
 */
async function chooseAll(view) {
  const asked = view.query.peek();
  /** @type {Set<number>} */
  const found = new Set();
  let after = null;
  do {
    const part = await get('/v1/ls', {...filterOf(asked), sort: asked.get('sort'), after, limit: PAGE});
    for (const {id} of part.jobs) found.add(id);
    after = part.next;
  } while (after && found.size < MOST);
  if (view.query.peek() === asked) view.chosen.value = found;
  return after !== null;
}

/** @param {boolean} isMore */
function tellChosen(isMore) {
  return isMore ? `Only the first ${count(MOST)} are selected. The command line can take all, for example stoker kill --all.` : null;
}
