/** Filters of the table of jobs: state, project, GPU and text. They are part of the address. */

import {h} from '/lib/dom.js';
import {watch} from '/lib/connection.js';
import {shortcut} from '/lib/keys.js';
import {STATES} from '/lib/badge.js';
import {computed, effect} from '/lib/signal.js';
import {count} from '/logic/format.js';
import {lookTools} from '/pages/jobs/look.js';

const TYPING_MS = 200;
/** @type {Record<string, string[]>} states of a chip that combines several */
const CHIPS = {running: ['running', 'starting'], failed: ['failed', 'lost']};
const USUAL = ['running', 'waiting', 'failed', 'done']; // shown also where no job is in that state
const NAMES = STATES.filter((state) => !['starting', 'lost', 'preempted'].includes(state));

/** @param {import('/pages/jobs.js').JobsView} view */
export function filters({query, counts, filter, jobs}) {
  const projects = computed(() => JSON.stringify([...new Set((jobs.value?.jobs ?? []).map(({project}) => project).filter(Boolean))].sort()));
  return h('div', {class: 'filters'}, chips(query, counts, filter), fields(query, filter), h('datalist', {id: 'project-names'}, () => JSON.parse(projects.value).map((/** @type {string} */ value) => h('option', {value}))));
}

/**
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 * @param {import('/lib/signal.js').Signal<Record<string, number>>} counts
 * @param {(change: Record<string, string[]>) => void} set
 */
function chips(query, counts, set) {
  return h(
    'div',
    {class: 'row', role: 'group', 'aria-label': 'States'},
    NAMES.map((name) => {
      const states = CHIPS[name] ?? [name];
      const isOn = () => states.some((state) => query.value.getAll('states').includes(state));
      const flip = () => {
        const others = query.peek().getAll('states').filter((state) => !states.includes(state));
        const on = states.some((state) => query.peek().getAll('states').includes(state));
        set({states: on ? others : [...others, ...states]});
      };
      const number = () => states.reduce((sum, state) => sum + (counts.value[state] ?? 0), 0);
      return h('button', {class: 'chip', hidden: () => number() === 0 && !isOn() && !USUAL.includes(name), 'aria-pressed': () => String(isOn()), onclick: flip}, name, ' ', h('span', {class: 'mono'}, () => count(number())));
    }),
  );
}

/**
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 * @param {(change: Record<string, string | null>) => void} set
 */
function fields(query, set) {
  /** @type {HTMLInputElement} */
  let search;
  shortcut('/', 'search jobs', () => search.focus());
  const gpus = watch('/v1/status');
  const sort = h(
    'select',
    {onchange: (/** @type {Event} */ event) => set({sort: /** @type {HTMLSelectElement} */ (event.target).value})},
    h('option', {value: ''}, 'queue order'),
    h('option', {value: 'newest'}, 'newest first'),
    h('option', {value: 'oldest'}, 'oldest first'),
    h('option', {value: 'name'}, 'by name'),
    h('option', {value: 'ended'}, 'ended last'),
    h('option', {value: 'longest'}, 'took longest'),
  );
  effect(() => (sort.value = query.value.get('sort') ?? ''));
  return h(
    'div',
    {class: 'row'},
    labelled('Search', field(query, 'text', 'name or command', set, (input) => (search = input))),
    labelled('Project', field(query, 'project', 'any', set, (input) => input.setAttribute('list', 'project-names'))),
    labelled('GPU', field(query, 'gpu', 'any', set, (input) => input.setAttribute('list', 'gpu-names'))),
    h('datalist', {id: 'gpu-names'}, () => (/** @type {any} */ (gpus.value.data)?.slots ?? []).map((/** @type {any} */ slot) => h('option', {value: slot.label}))),
    labelled('Order', sort),
    lookTools(),
  );
}

/**
 * @param {string} title
 * @param {HTMLElement} control
 */
function labelled(title, control) {
  return h('label', {class: 'field'}, h('span', null, title), control);
}

/**
 * A field that takes effect after a pause in typing.
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query
 * @param {string} name
 * @param {string} placeholder
 * @param {(change: Record<string, string | null>) => void} set
 * @param {(input: HTMLInputElement) => void} [ref]
 */
function field(query, name, placeholder, set, ref) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let own = ''; // what this field has put into the address
  /** @type {HTMLInputElement} */
  const input = h('input', {
    type: 'search',
    placeholder,
    name,
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        own = input.value.trim();
        set({[name]: own || null});
      }, TYPING_MS);
    },
  });
  ref?.(input);
  effect(() => {
    const value = query.value.get(name) ?? '';
    if (value === own) return; // the user may have typed on
    clearTimeout(timer);
    own = input.value = value;
  });
  return input;
}

/**
 * The filter of an address, as GET /v1/ls takes it.
 * @param {URLSearchParams} query
 */
export function filterOf(query) {
  return {states: query.getAll('states'), project: query.get('project'), text: query.get('text'), gpu: query.get('gpu')};
}
