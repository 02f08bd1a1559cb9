/** What if: when the jobs of a form would start and be over, and whom they would delay, before they are queued. */

import {h} from '/lib/dom.js';
import {get, post} from '/lib/connection.js';
import {debounced} from '/lib/form.js';
import {computed, signal} from '/lib/signal.js';
import {timelineChart} from '/lib/timeline_chart.js';
import {basis, foretell} from '/logic/forecast.js';
import {timelineRows} from '/logic/timeline.js';

/** @typedef {import('/lib/form.js').Form} Form */
/** @typedef {import('/logic/forecast.js').Prediction} Prediction */

const PAUSE_MS = 300;
const SHARES = [['', 'as usual'], ['never', 'never'], ['auto', 'as measured'], ['always:2', 'two on a GPU'], ['always:4', 'four on a GPU'], ['always:8', 'eight on a GPU']];

/**
 * @param {Form} form
 * @param {() => Record<string, unknown> | null} order the jobs as POST /v1/forecast takes them; null: nothing to ask
 * @param {string} usual how such jobs share GPUs if the user does not say
 * @returns {{look: () => void, element: HTMLElement}}
 */
export function whatIf(form, order, usual) {
  const found = signal(/** @type {Prediction | null} */ (null));
  const gpus = signal(1);
  const most = signal(1);
  const rows = signal(/** @type {import('/logic/timeline.js').Row[]} */ ([]));
  let asked = 0;

  get('/v1/status').then(({slots}) => (most.value = Math.max(1, slots.length)), () => {});

  async function ask() {
    const body = order();
    asked += 1;
    const mine = asked;
    gpus.value = Number(form.text('gpus') || 1);
    if (!body) {
      found.value = null;
      return;
    }
    try {
      const [answer, status, timeline] = await Promise.all([post('/v1/forecast', {...body, share: body.share ?? usual}), get('/v1/status'), get('/v1/timeline', {since: Math.floor(Date.now() / 1000)})]);
      if (mine !== asked) return;
      rows.value = timelineRows(timeline.attempts, [...timeline.planned, ...answer.planned], timeline.now, status.slots.map((/** @type {any} */ slot) => slot.label));
      found.value = answer;
    } catch {
      if (mine === asked) found.value = null; // the form shows what is wrong when it is sent
    }
  }
  const look = debounced(ask, PAUSE_MS);

  /** @param {Event} event */
  function slide(event) {
    form.fill('gpus', /** @type {HTMLInputElement} */ (event.target).value);
    look();
  }
  const words = computed(() => (found.value ? foretell(found.value, Date.now() / 1000) : ''));
  const id = 'what-if-gpus';
  const element = h(
    'section',
    {class: 'wide what-if', 'aria-label': 'What if', hidden: () => found.value === null},
    h('p', {role: 'status', class: 'foretold'}, () => words.value),
    h('p', {class: 'soft'}, () => (found.value ? basis(found.value) : '')),
    h(
      'div',
      {class: 'row'},
      h('label', {for: id}, 'GPUs each'),
      h('input', {id, type: 'range', min: 0, max: () => most.value, value: () => gpus.value, oninput: slide}),
      h('output', {for: id}, () => gpus.value),
      form.field('share', 'Share GPUs', {tag: 'select', children: SHARES.map(([value, label]) => h('option', {value}, label))}),
    ),
    () => (found.value?.planned.length ? ghosts(rows, found.value) : null),
  );
  return {look, element};
}

/**
 * The queue's plan with the jobs that are not in it yet.
 * @param {import('/lib/signal.js').Signal<import('/logic/timeline.js').Row[]>} rows
 * @param {Prediction} found
 */
function ghosts(rows, found) {
  const now = Date.now() / 1000;
  const span = signal(Math.max(300, ((found.end_at ?? now) - now) * 1.25));
  const start = signal(/** @type {number | null} */ (now - span.peek() * 0.08));
  const from = computed(() => start.value ?? now);
  return h('div', {class: 'times'}, timelineChart({rows: () => rows.value, from, span, start, now: () => now, byOutcome: () => false}));
}
