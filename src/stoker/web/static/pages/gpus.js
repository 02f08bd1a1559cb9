/** The GPUs: one card each, with its jobs, its load and other processes. */

import {each, h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {post, watch} from '/lib/connection.js';
import {link} from '/lib/router.js';
import {spark} from '/lib/spark.js';
import {attempt} from '/lib/toast.js';
import {size} from '/logic/format.js';

/**
 * @typedef {object} Gpu
 * @property {string} label
 * @property {string | null} name
 * @property {number} mem_total_bytes
 * @property {number} mem_used_bytes
 * @property {number} mem_reserved_bytes
 * @property {number | null} utilisation_pct
 * @property {number | null} temperature_c
 * @property {number | null} power_w
 * @property {boolean} lost
 * @property {string | null} slot
 * @property {number[]} jobs
 * @property {string | null} closed
 * @property {string | null} drained
 * @property {{pid: number, user: string | null, mem_bytes: number | null}[]} users
 * @property {{at: number[], mem_bytes: (number | null)[], utilisation_pct: (number | null)[]}} history
 */
/** @typedef {import('/lib/signal.js').Signal<Gpu>} GpuSignal */

const MOST_NAMES = 1000;

/** @param {import('/pages/index.js').Context} _context */
export function page(_context) {
  const names = readNames();
  const answer = watch('/v1/gpus', {history: true});
  const gpus = computed(() => /** @type {Gpu[]} */ (answer.value.data ?? []));
  const isEmpty = computed(() => answer.value.data !== undefined && !gpus.value.length);
  return h(
    'section',
    null,
    h('h1', null, 'GPUs'),
    () => isEmpty.value && empty(),
    each(h('div', {class: 'grid'}), () => gpus.value, (gpu) => gpu.label, (gpu) => card(gpu, names)),
    adding(),
  );
}

/** Names of running jobs by number. */
function readNames() {
  const live = watch('/v1/ls', {states: ['running', 'starting', 'paused'], limit: MOST_NAMES});
  return computed(() => new Map(/** @type {any[]} */ (/** @type {any} */ (live.value.data)?.jobs ?? []).map(({id, name, command}) => [id, name ?? command])));
}

function empty() {
  return h(
    'div',
    {class: 'empty'},
    h('p', null, 'This queue has no GPU. Jobs that need none can run:'),
    h('pre', null, 'stoker add -g 0 -- python prepare.py'),
    h('p', null, 'To name the slots yourself:'),
    h('pre', null, 'stoker daemon restart --gpus 0,1'),
  );
}

/**
 * @param {GpuSignal} gpu
 * @param {import('/lib/signal.js').Signal<Map<number, string>>} names
 */
function card(gpu, names) {
  const label = gpu.peek().label;
  return h(
    'article',
    {class: 'card gpu', 'aria-labelledby': `gpu-${label}`, 'data-gpu': label},
    h('h2', {id: `gpu-${label}`}, `GPU ${label} `, h('span', {class: 'soft', title: () => gpu.value.name}, () => gpu.value.name ?? '')),
    h('ul', {class: 'on'}, () => jobs(gpu.value, names.value)),
    () => trouble(gpu.value),
    meter('Utilisation', () => percent(gpu.value.utilisation_pct), utilisation(gpu)),
    meter('Memory', () => memory(gpu.value), used(gpu)),
    () => share(gpu.value),
    () => users(gpu.value),
    h('div', {class: 'row foot'}, h('span', {class: 'soft row'}, () => sensors(gpu.value)), h('span', {class: 'row acts'}, () => buttons(gpu.value.label, gpu.value.slot, gpu.value.drained))),
  );
}

/**
 * @param {string} title
 * @param {() => string} now
 * @param {HTMLElement} curve
 */
function meter(title, now, curve) {
  return h('div', {class: 'meter'}, h('div', {class: 'row'}, h('strong', null, title), h('span', {class: 'spacer'}), h('span', {class: 'mono'}, now)), curve);
}

/** @param {GpuSignal} gpu */
function utilisation(gpu) {
  const read = () => ({at: gpu.value.history.at, values: gpu.value.history.utilisation_pct, most: 100});
  return spark(`Utilisation of GPU ${gpu.peek().label} over the last minutes`, read, '--accent');
}

/** @param {GpuSignal} gpu */
function used(gpu) {
  const read = () => {
    const {history, mem_total_bytes: most, mem_reserved_bytes: mark} = gpu.value;
    return {at: history.at, values: history.mem_bytes, most, mark: mark && mark < most ? mark : undefined};
  };
  return spark(`Memory of GPU ${gpu.peek().label} over the last minutes`, read, '--calm');
}

/** @param {number | null} value */
function percent(value) {
  return value === null ? 'unknown' : `${value} %`;
}

/** @param {Gpu} gpu */
function memory({mem_total_bytes: total, mem_used_bytes: used}) {
  return total ? size(used) : 'unknown';
}

/**
 * Memory that jobs have reserved, and how much of it is in use.
 * @param {Gpu} gpu
 */
function share({mem_total_bytes: total, mem_used_bytes: used, mem_reserved_bytes: reserved}) {
  if (!total) return null;
  /** @param {number} bytes */
  const width = (bytes) => ({width: `${Math.min(100, (bytes / total) * 100)}%`});
  return [
    h('div', {class: 'share'}, h('div', {class: 'reserved', style: width(reserved)}), h('div', {class: 'used', style: width(used)})),
    h('div', {class: 'scale'}, h('span', null, `${size(reserved)} reserved`), h('span', null, `of ${size(total)}`)),
  ];
}

/**
 * @param {Gpu} gpu
 * @param {Map<number, string>} names
 */
function jobs({jobs, slot, drained}, names) {
  const word = jobs.length ? null : slot === null ? 'not in this queue' : drained ? 'drained' : 'free';
  return [
    jobs.map((id) => h('li', null, h('a', {href: link(`/jobs/${id}`)}, `job ${id}`), ' ', h('span', {class: 'soft'}, names.get(id) ?? ''))),
    word && h('li', {class: 'soft'}, word),
    drained && jobs.length > 0 && h('li', null, h('span', {class: 'state held'}, drained)),
  ];
}

/** @param {Gpu} gpu */
function trouble({lost, closed}) {
  if (!lost && !closed) return null;
  return h('p', {class: 'bad'}, closed ?? 'lost: the driver cannot reach it');
}

/** @param {Gpu} gpu */
function sensors({temperature_c: heat, power_w: power}) {
  return [heat !== null && h('span', null, `${heat} °C`), power !== null && h('span', null, `${Math.round(power)} W`)];
}

/** @param {Gpu} gpu */
function users({users}) {
  if (!users.length) return null;
  return [
    h('h3', null, 'Other processes'),
    h(
      'ul',
      {class: 'users'},
      users.map(({pid, user, mem_bytes: bytes}) => h('li', null, h('strong', null, user ?? 'a process outside this container'), ` pid ${pid}, ${size(bytes)}`)),
    ),
  ];
}

/**
 * @param {string} label
 * @param {string | null} slot
 * @param {string | null} drained
 */
function buttons(label, slot, drained) {
  if (slot === null) return change('Add', 'add', label);
  return [drained ? change('Enable', 'add', slot) : change('Drain', 'drain', slot), change('Remove', 'remove', slot)];
}

/** @typedef {'add' | 'drain' | 'remove'} Action */

/**
 * @param {string} title
 * @param {Action} action
 * @param {string} gpu
 */
function change(title, action, gpu) {
  return h('button', {onclick: () => order(action, gpu)}, title, h('span', {class: 'sr'}, ` GPU ${gpu}`));
}

/**
 * @param {Action} action
 * @param {string} gpu
 */
function order(action, gpu) {
  const jobs = 'its running jobs continue';
  const done = {add: `GPU ${gpu} is in use`, drain: `GPU ${gpu} is drained: ${jobs}`, remove: `GPU ${gpu} is removed from the queue: ${jobs}`}[action];
  return attempt(() => post('/v1/gpus', {action, gpu}), (/** @type {any} */ answer) => answer.notice ?? done);
}

/** A field to add a GPU that has no card: a new one, or one removed from a queue without NVML. */
function adding() {
  /** @type {HTMLInputElement} */
  let field;
  const add = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (field.value.trim() && (await order('add', field.value.trim()))) field.value = '';
  };
  return h(
    'form',
    {class: 'row add-gpu', onsubmit: add},
    h('label', {for: 'new-gpu'}, 'Add a GPU to the queue'),
    h('input', {id: 'new-gpu', size: 8, autocomplete: 'off', placeholder: '2', ref: (/** @type {HTMLInputElement} */ it) => (field = it)}),
    h('button', {type: 'submit'}, 'Add'),
  );
}
