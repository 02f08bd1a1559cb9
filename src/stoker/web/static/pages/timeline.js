/** Past and plan: what ran on each GPU, what runs, and what is expected to start when. */

import {h} from '/lib/dom.js';
import {get, watch} from '/lib/connection.js';
import {followAddress} from '/lib/address.js';
import {now} from '/lib/clock.js';
import {link} from '/lib/router.js';
import {computed, effect, onCleanup, signal} from '/lib/signal.js';
import {timelineChart} from '/lib/timeline_chart.js';
import {absolute, about} from '/logic/format.js';
import {timelineRows} from '/logic/timeline.js';

/** @typedef {{now: number, attempts: any[], planned: any[], left_out: boolean}} Timeline */

const SPANS = /** @type {[string, number][]} */ ([['15 min', 900], ['1 h', 3600], ['6 h', 21600], ['1 day', 86400], ['7 days', 604800]]);
const USUAL_S = 3600;
const PAST_SHARE = 0.62; // part of the width that is past, while the chart follows the time
const REBASE_MS = 120_000;
const SHOWN_STARTS = 12;

/** @param {import('/pages/index.js').Context} context */
export function page({query}) {
  const span = signal(USUAL_S);
  const start = signal(/** @type {number | null} */ (null)); // null: follows the time
  const colours = signal('job');
  followAddress(
    query,
    (given) => {
      span.value = Math.min(3e6, Math.max(60, Number(given.get('span')) || USUAL_S));
      start.value = Number(given.get('from')) || null;
      colours.value = given.get('colour') === 'outcome' ? 'outcome' : 'job';
    },
    () => ({span: span.value === USUAL_S ? null : Math.round(span.value), from: start.value === null ? null : Math.round(start.value), colour: colours.value === 'job' ? null : colours.value}),
  );
  const from = computed(() => start.value ?? now.value - span.value * PAST_SHARE);
  const {attempts, planned, leftOut} = readTimeline(() => Math.min(from.value, now.value) - 1);
  const status = watch('/v1/status');
  const labels = computed(() => JSON.stringify((/** @type {any} */ (status.value.data)?.slots ?? []).map((/** @type {any} */ slot) => slot.label)));
  const rows = computed(() => timelineRows([...attempts.value.values()], planned.value, now.value, JSON.parse(labels.value)));
  return h(
    'section',
    null,
    h('div', {class: 'row times-tools'}, h('h1', null, 'Timeline'), h('span', {class: 'soft'}, () => summary(status.value.data)), h('span', {class: 'spacer'}), tools(span, start, colours)),
    h('div', {class: 'card times'}, timelineChart({rows: () => rows.value, from, span, start, now: () => now.value, byOutcome: () => colours.value === 'outcome'})),
    () => leftOut.value && h('p', {class: 'soft'}, 'There are more attempts than are drawn: zoom in to see all of them.'),
    starts(planned),
  );
}

/**
 * The attempts since a time, with their changes, and the plan. What has ended is loaded once.
 * @param {() => number} from followed; an earlier time loads more
 */
function readTimeline(from) {
  const attempts = signal(/** @type {ReadonlyMap<string, any>} */ (new Map()));
  const planned = signal(/** @type {any[]} */ ([]));
  const leftOut = signal(false);
  const base = signal(Math.floor(Date.now() / 1000));
  let loaded = Infinity;

  /** @param {readonly any[]} found */
  function merge(found) {
    const all = new Map([...attempts.peek()].filter(([, each]) => each.ended_at !== null));
    for (const each of found) all.set(`${each.job}.${each.attempt}`, each);
    attempts.value = all;
  }
  effect(() => {
    const wanted = Math.floor(from() / 300) * 300;
    if (wanted >= loaded) return;
    loaded = wanted;
    get('/v1/timeline', {since: Math.max(0, wanted)}).then((/** @type {Timeline} */ found) => {
      leftOut.value = found.left_out;
      merge(found.attempts);
    }, () => {});
  });
  effect(() => {
    const answer = watch('/v1/timeline', {since: base.value - 10});
    effect(() => {
      const found = /** @type {Timeline | undefined} */ (answer.value.data);
      if (!found) return;
      merge(found.attempts);
      planned.value = found.planned;
    });
  });
  const timer = setInterval(() => (base.value = Math.floor(Date.now() / 1000)), REBASE_MS);
  onCleanup(() => clearInterval(timer));
  return {attempts, planned, leftOut};
}

/** @param {any} status */
function summary(status) {
  return status?.eta_s > 0 ? `the queue is done in ~${about(status.eta_s)}` : '';
}

/**
 * @param {import('/lib/signal.js').Signal<number>} span
 * @param {import('/lib/signal.js').Signal<number | null>} start
 * @param {import('/lib/signal.js').Signal<string>} colours
 */
function tools(span, start, colours) {
  return [
    h('div', {class: 'row', role: 'group', 'aria-label': 'Time shown'}, SPANS.map(([words, seconds]) => h('button', {class: 'chip', 'aria-pressed': () => String(span.value === seconds), onclick: () => (span.value = seconds)}, words))),
    h('button', {disabled: () => start.value === null, onclick: () => (start.value = null)}, 'Now'),
    h('label', {for: 'colours'}, 'Colour by'),
    h('select', {id: 'colours', value: () => colours.value, onchange: (/** @type {any} */ event) => (colours.value = event.target.value)}, h('option', {value: 'job'}, 'family of jobs'), h('option', {value: 'outcome'}, 'outcome')),
  ];
}

/** @param {import('/lib/signal.js').Signal<any[]>} planned */
function starts(planned) {
  const shown = computed(() => JSON.stringify([...planned.value].sort((one, other) => one.start_at - other.start_at).slice(0, SHOWN_STARTS).map(({job, name, slots, start_at: at}) => [job, name, slots, Math.round(at / 5) * 5])));
  return h('section', null, h('h2', null, 'Next starts'), () => {
    const list = /** @type {[number, string | null, string[], number][]} */ (JSON.parse(shown.value));
    if (list.length === 0) return h('p', {class: 'soft'}, 'No job waits for a GPU, or nothing is known yet of how long such jobs take.');
    return h('ol', {class: 'next-starts'}, list.map(([job, name, slots, at]) => h('li', null, h('a', {href: link(`/jobs/${job}`)}, `job ${job}`), ` ${name ?? ''} on GPU ${slots.join(', ')} `, h('span', {class: 'soft', title: absolute(at)}, () => `in ~${about(Math.max(0, at - now.value))}`))));
  });
}
