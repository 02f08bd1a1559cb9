/** The table of jobs: rows can be selected, and dragged to another position in the queue. */

import {each, h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {badge, mark} from '/lib/badge.js';
import {moment, span} from '/lib/clock.js';
import {shortcut} from '/lib/keys.js';
import {link} from '/lib/router.js';
import {lookClass} from '/pages/jobs/look.js';
import {move, put} from '/pages/jobs/move.js';

/** @typedef {import('/pages/jobs.js').Job} Job */
/** @typedef {import('/pages/jobs.js').JobsView} JobsView */

/** @type {{title: string, kind?: string, sorts?: string[]}[]} the orders that clicks on a title go through */
const COLUMNS = [
  {title: 'Id', kind: 'num', sorts: ['newest', 'oldest']},
  {title: 'State'},
  {title: 'What', sorts: ['name']},
  {title: 'Project', kind: 'wide col-project'},
  {title: 'GPU', kind: 'tight wide col-gpu'},
  {title: 'Priority', kind: 'num wide col-priority'},
  {title: 'When', kind: 'tight wide col-when', sorts: ['ended']},
  {title: 'Ran', kind: 'num wide col-ran', sorts: ['longest']},
];
const BAD = ['failed', 'lost'];
/** @type {Record<string, 'ascending' | 'descending'>} */
const WAYS = {newest: 'descending', oldest: 'ascending', name: 'ascending', ended: 'descending', longest: 'descending'};

/** @type {number | null} the job whose box was clicked last: Shift selects all from there */
let last = null;

/**
 * The jobs from one row to another.
 * @param {JobsView} view
 * @param {number} from
 * @param {number} to
 */
function range(view, from, to) {
  const ids = (view.jobs.peek()?.jobs ?? []).map(({id}) => id);
  const [one, other] = [ids.indexOf(from), ids.indexOf(to)];
  return one < 0 || other < 0 ? [to] : ids.slice(Math.min(one, other), Math.max(one, other) + 1);
}

/** @param {JobsView} view */
export function table(view) {
  const jobs = computed(() => view.jobs.value?.jobs ?? []);
  const isAll = computed(() => jobs.value.length > 0 && jobs.value.every(({id}) => view.chosen.value.has(id)));
  const isSome = computed(() => !isAll.value && jobs.value.some(({id}) => view.chosen.value.has(id)));
  const chooseAll = () => {
    // The selection on other pages stays.
    const chosen = new Set(view.chosen.peek());
    for (const {id} of jobs.peek()) {
      if (isAll.peek()) chosen.delete(id);
      else chosen.add(id);
    }
    view.chosen.value = chosen;
  };
  const body = each(h('tbody', null), () => jobs.value, ({id}) => id, (job) => row(view, job));
  bindKeys(view, body);
  return h(
    'div',
    {class: 'scroll tall'},
    h(
      'table',
      {class: lookClass},
      h('caption', {class: 'sr'}, 'Jobs'),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          h('th', {scope: 'col'}, h('input', {type: 'checkbox', 'aria-label': 'Select all on this page', checked: () => isAll.value, indeterminate: () => isSome.value, onchange: chooseAll})),
          COLUMNS.map(({title, kind, sorts}) => heading(view, title, kind ?? '', sorts)),
        ),
      ),
      body,
    ),
  );
}

/**
 * A column title; clicks go through its orders and back to the queue order.
 * @param {JobsView} view
 * @param {string} title
 * @param {string} kind
 * @param {string[]} [sorts]
 */
function heading(view, title, kind, sorts) {
  if (!sorts) return h('th', {scope: 'col', class: kind}, title);
  const now = () => view.query.value.get('sort') ?? '';
  const next = () => sorts[sorts.indexOf(view.query.peek().get('sort') ?? '') + 1] ?? null;
  const way = () => (sorts.includes(now()) ? WAYS[now()] : null);
  return h('th', {scope: 'col', class: `${kind} sorts`, 'aria-sort': way}, h('button', {class: 'plain', onclick: () => view.filter({sort: next()})}, title));
}

/**
 * @param {JobsView} view
 * @param {import('/lib/signal.js').Signal<Job>} job
 */
function row(view, job) {
  const {id} = job.peek();
  const isChosen = () => view.chosen.value.has(id);
  /** @param {MouseEvent} event */
  const flip = (event) => {
    const chosen = new Set(view.chosen.peek());
    if (event.shiftKey && last !== null) for (const between of range(view, last, id)) chosen.add(between);
    else if (!chosen.delete(id)) chosen.add(id);
    last = id;
    view.chosen.value = chosen;
  };
  const waits = computed(() => job.value.state === 'waiting');
  const where = () => job.value.slots ?? (job.value.gpus ? `needs ${job.value.gpus}` : 'none');
  const when = () => moment(job.value.ended_at ?? job.value.started_at ?? job.value.submitted_at);
  return h(
    'tr',
    {'data-job': id, 'aria-selected': () => String(isChosen()), draggable: () => (waits.value ? 'true' : 'false'), ...dragging(view, job)},
    h('td', null, h('input', {type: 'checkbox', 'aria-label': `Select job ${id}`, checked: isChosen, onclick: flip})),
    h('td', {class: 'num'}, h('a', {href: link(`/jobs/${id}`)}, id)),
    h('td', null, () => badge(job.value.state), () => mark(job.value.mark)),
    h('td', {class: 'what'}, h('div', null, () => job.value.name ?? ''), h('code', {title: () => job.value.command}, () => brief(view, job.value)), h('div', {class: () => (BAD.includes(job.value.state) ? 'bad' : 'soft')}, () => job.value.mark?.text ?? job.value.reason ?? ''), h('div', {class: 'small soft'}, 'GPU ', where, ' · ', when)),
    h('td', {class: 'wide project col-project'}, () => job.value.project ?? ''),
    h('td', {class: 'tight wide col-gpu'}, where),
    h('td', {class: 'num wide col-priority'}, () => job.value.priority),
    h('td', {class: 'tight wide col-when'}, when),
    h('td', {class: 'num wide col-ran'}, () => span(job.value.started_at, job.value.ended_at)),
  );
}

/**
 * What tells a command from those of the same program on this page; the whole command where nothing does.
 * @param {JobsView} view
 * @param {Job} job
 */
function brief(view, job) {
  const found = view.varied.value.get(job.id);
  return found ? [h('b', null, found.varied), !job.name && ` ${found.program}`] : job.command;
}

/**
 * @param {JobsView} view
 * @param {import('/lib/signal.js').Signal<Job>} job
 */
function dragging(view, job) {
  const {id} = job.peek();
  /** @param {DragEvent} event */
  const isAbove = (event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    return event.clientY < box.top + box.height / 2;
  };
  return {
    ondragstart: (/** @type {DragEvent} */ event) => event.dataTransfer?.setData('text/plain', String(id)),
    ondragover: (/** @type {DragEvent} */ event) => {
      if (job.peek().state === 'waiting' && !view.query.peek().get('sort')) event.preventDefault();
    },
    ondrop: (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      const dragged = Number(event.dataTransfer?.getData('text/plain'));
      if (dragged && dragged !== id) put(dragged, id, isAbove(event) ? 'before' : 'behind');
    },
  };
}

/**
 * j and k go from row to row, x selects, J and K move a waiting job in the queue.
 * @param {JobsView} view
 * @param {HTMLElement} body
 */
function bindKeys(view, body) {
  const current = () => {
    const row = document.activeElement?.closest('tr[data-job]');
    return row && body.contains(row) ? /** @type {HTMLElement} */ (row) : null;
  };
  /** @param {1 | -1} step */
  const walk = (step) => {
    const now = current();
    const next = now ? (step > 0 ? now.nextElementSibling : now.previousElementSibling) : body.firstElementChild;
    next?.querySelector('a')?.focus();
  };
  const id = () => Number(current()?.dataset.job ?? 0);
  shortcut('j', 'next job', () => walk(1));
  shortcut('k', 'previous job', () => walk(-1));
  shortcut('x', 'select this job, or not', () => /** @type {HTMLElement | null} */ (current()?.querySelector('input'))?.click());
  shortcut('J', 'move this job down the queue', () => move(view, id(), 1));
  shortcut('K', 'move this job up the queue', () => move(view, id(), -1));
}
