/** The GPUs: a strip for each, with its memory and the jobs in it as blocks, its load, and other processes. */

import {each, h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {post, watch} from '/lib/connection.js';
import {gpuPasts} from '/lib/gpuhistory.js';
import {link} from '/lib/router.js';
import {spark} from '/lib/spark.js';
import {attempt} from '/lib/toast.js';
import {nodeHead} from '/pages/gpus/node.js';
import {size} from '/logic/format.js';
import {familyColour, packBlocks} from '/logic/packing.js';

/** @typedef {import('/logic/packing.js').Tenant} Tenant */
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
 * @property {Tenant[]} tenants
 * @property {number | null} kept_for
 * @property {number | null} kept_needs
 * @property {string | null} held_by
 */
/** @typedef {import('/lib/signal.js').Signal<Gpu>} GpuSignal */
/** @typedef {(label: string) => import('/lib/gpuhistory.js').Past} Pasts */

/** @param {import('/pages/index.js').Context} _context */
export function page(_context) {
  const answer = watch('/v1/gpus');
  const gpus = computed(() => /** @type {Gpu[]} */ (answer.value.data ?? []));
  const isEmpty = computed(() => answer.value.data !== undefined && !gpus.value.length);
  const pasts = gpuPasts(() => gpus.value);
  const nodes = computed(() => groupByNode(gpus.value));
  return h(
    'section',
    {class: 'gpus'},
    h('div', {class: 'row'}, h('h1', null, 'GPUs'), h('span', {class: 'soft'}, () => summary(gpus.value)), h('span', {class: 'spacer'}), legend()),
    () => isEmpty.value && empty(),
    each(h('div', {class: 'nodes'}), () => nodes.value, ({node}) => node, (group) => h(
      'section',
      {class: 'node'},
      group.peek().node && nodeHead(group.peek().node, () => summary(group.value.gpus)),
      each(h('div', {class: 'strips'}), () => group.value.gpus, (gpu) => gpu.label, (gpu) => strip(gpu, pasts)),
    )),
    adding(),
  );
}

/** @param {readonly Gpu[]} gpus */
function groupByNode(gpus) {
  /** @type {Map<string, Gpu[]>} */
  const groups = new Map();
  for (const gpu of gpus) {
    const node = gpu.label.includes('/') ? gpu.label.slice(0, gpu.label.lastIndexOf('/')) : '';
    groups.set(node, [...(groups.get(node) ?? []), gpu]);
  }
  return [...groups].map(([node, members]) => ({node, gpus: members}));
}

/** @param {readonly Gpu[]} gpus */
function summary(gpus) {
  const total = gpus.reduce((sum, gpu) => sum + gpu.mem_total_bytes, 0);
  if (!total) return '';
  const used = gpus.reduce((sum, gpu) => sum + gpu.mem_used_bytes, 0);
  const known = gpus.filter((gpu) => gpu.utilisation_pct !== null);
  const load = known.reduce((sum, gpu) => sum + (gpu.utilisation_pct ?? 0), 0) / (known.length || 1);
  const jobs = new Set(gpus.flatMap((gpu) => gpu.jobs)).size;
  return `${jobs} ${jobs === 1 ? 'job' : 'jobs'}, ${size(used)} of ${size(total)}, ${Math.round(load)} % busy`;
}

/** What the patterns of a strip mean. */
function legend() {
  const kinds = [['used', 'in use'], ['aside', 'set aside'], ['other', 'other people'], ['kept', 'kept for a job']];
  return h('ul', {class: 'row legend', 'aria-label': 'Meaning of the patterns'}, kinds.map(([kind, words]) => h('li', null, h('span', {class: `swatch ${kind}`}), words)));
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
 * @param {Pasts} pasts
 */
function strip(gpu, pasts) {
  const {label} = gpu.peek();
  const state = computed(() => describeState(gpu.value));
  const people = computed(() => JSON.stringify(gpu.value.users));
  return h(
    'article',
    {class: 'card strip', 'aria-labelledby': `gpu-${label}`, 'data-gpu': label},
    h(
      'div',
      {class: 'strip-head'},
      h(label.includes('/') ? 'h3' : 'h2', {id: `gpu-${label}`}, `GPU ${label.slice(label.lastIndexOf('/') + 1)}`),
      h('span', {class: 'soft model', title: () => gpu.value.name}, () => gpu.value.name ?? ''),
      h('span', {class: () => `strip-state ${state.value.kind}`}, () => state.value.words),
    ),
    h('div', {class: 'track'}, lane(gpu, pasts), blocks(gpu)),
    h(
      'div',
      {class: 'strip-figures'},
      figure('Load', () => percent(gpu.value.utilisation_pct)),
      figure('Memory', () => memory(gpu.value)),
      figure('Heat', () => (gpu.value.temperature_c === null ? '–' : `${gpu.value.temperature_c} °C`)),
      figure('Power', () => (gpu.value.power_w === null ? '–' : `${Math.round(gpu.value.power_w)} W`)),
    ),
    h('div', {class: 'row acts'}, () => buttons(gpu.value.label, gpu.value.slot, gpu.value.drained)),
    () => people.value !== '[]' && users(gpu.peek()),
  );
}

/**
 * Load and memory over the last minutes, above the blocks.
 * @param {GpuSignal} gpu
 * @param {Pasts} pasts
 */
function lane(gpu, pasts) {
  const {label} = gpu.peek();
  const load = () => ({at: pasts(label).at, values: pasts(label).utilisation, most: 100});
  const held = () => ({at: pasts(label).at, values: pasts(label).memory, most: gpu.value.mem_total_bytes});
  return h('div', {class: 'lane'}, spark(`Utilisation of GPU ${label} over the last minutes`, load, '--accent'), spark(`Memory of GPU ${label} over the last minutes`, held, '--calm', {fill: false}));
}

/** @param {GpuSignal} gpu */
function blocks(gpu) {
  const shown = computed(() => packBlocks(gpu.value).map((block) => ({...block, tenant: gpu.value.tenants.find(({job}) => job === block.job) ?? null})));
  const key = (/** @type {{kind: string, job: number | null}} */ {kind, job}) => `${kind} ${job}`;
  return h(
    'div',
    {class: 'pack'},
    each(h('ul', {class: 'blocks', 'aria-label': `Memory of GPU ${gpu.peek().label}`}), () => shown.value, key, (block) => h('li', {style: () => placeOf(block.value)}, drawBlock(block, gpu))),
    () => (shown.value.length === 0 ? h('span', {class: 'soft nothing'}, () => unpacked(gpu.value)) : null),
  );
}

/** @typedef {import('/logic/packing.js').Block & {tenant: Tenant | null}} Shown */

/** @param {Shown} block */
function placeOf({from, to}) {
  return {left: `${from * 100}%`, width: `${(to - from) * 100}%`};
}

/**
 * @param {import('/lib/signal.js').Signal<Shown>} block
 * @param {GpuSignal} gpu
 */
function drawBlock(block, gpu) {
  const {kind, job, tenant} = block.peek();
  const fill = h('span', {class: 'fill', style: () => ({width: `${block.value.filled * 100}%`})});
  const words = () => describeBlock(block.value, gpu.value);
  if (kind === 'other') return h('span', {class: 'block other', title: words}, h('span', {class: 'label'}, () => otherNames(gpu.value)));
  if (kind === 'kept') return h('a', {class: 'block kept', href: link(`/jobs/${job}`), title: words}, h('span', {class: 'label'}, () => keptWords(gpu.value)));
  return h('a', {class: `block hue-${familyColour(tenant?.name ?? null, tenant?.project ?? null)}`, href: link(`/jobs/${job}`), title: words, 'aria-label': words}, fill, h('span', {class: 'label'}, h('b', null, job), ' ', tenant?.name ?? ''));
}

/**
 * @param {Shown} block
 * @param {Gpu} gpu
 */
function describeBlock({kind, job, tenant}, gpu) {
  if (kind === 'other') return gpu.users.map(({user, pid, mem_bytes: bytes}) => `${user ?? 'outside this container'}, pid ${pid}: ${size(bytes)}`).join('; ');
  if (kind === 'kept') return keptWords(gpu);
  const used = tenant?.mem_used_bytes;
  const load = tenant?.utilisation_pct;
  const parts = [`job ${job}${tenant?.name ? ` ${tenant.name}` : ''}${tenant?.project ? ` (${tenant.project})` : ''}`];
  parts.push(`${used === null || used === undefined ? 'unknown' : size(used)} of ${size(tenant?.mem_reserved_bytes ?? 0)} set aside`);
  if (load !== null && load !== undefined) parts.push(`${Math.round(load)} % of the GPU's time`);
  return parts.join(', ');
}

/** @param {Gpu} gpu */
function keptWords({kept_for: job, kept_needs: needs}) {
  return `kept for job ${job}${needs !== null && needs > 1 ? `, which needs ${needs}` : ''}`;
}

/** @param {Gpu} gpu */
function otherNames({users}) {
  return [...new Set(users.map(({user}) => user ?? 'others'))].join(', ');
}

/** @param {Gpu} gpu what stands where no block can be drawn */
function unpacked({tenants, slot, drained}) {
  if (tenants.length) return '';
  return slot === null ? 'not in this queue' : drained ? 'no job starts here' : 'free';
}

/** @param {Gpu} gpu */
function describeState({lost, closed, drained, tenants, kept_for: kept}) {
  if (lost || closed) return {kind: 'bad', words: closed ?? 'lost: the driver cannot reach it'};
  if (drained) return {kind: 'warn', words: drained};
  if (kept !== null && tenants.length > 0) return {kind: 'soft', words: `next: job ${kept}`};
  return {kind: 'soft', words: tenants.length ? `${tenants.length} ${tenants.length === 1 ? 'job' : 'jobs'}` : ''};
}

/**
 * @param {string} title
 * @param {() => string} read
 */
function figure(title, read) {
  return h('span', {class: `number ${title.toLowerCase()}`, title}, h('span', {class: 'sr'}, `${title} `), read);
}

/** @param {number | null} value */
function percent(value) {
  return value === null ? '–' : `${value} %`;
}

/** @param {Gpu} gpu */
function memory({mem_total_bytes: total, mem_used_bytes: used}) {
  return total ? `${size(used)} of ${size(total)}` : '–';
}

/** @param {Gpu} gpu */
function users({users}) {
  return h(
    'p',
    {class: 'users soft'},
    'Other processes: ',
    users.map(({pid, user, mem_bytes: bytes}, index) => [index > 0 && '; ', h('b', null, user ?? 'a process outside this container'), ` pid ${pid}, ${size(bytes)}`]),
  );
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
  return h('button', {class: 'small-button', onclick: () => order(action, gpu)}, title, h('span', {class: 'sr'}, ` GPU ${gpu}`));
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

/** A field to add a GPU that has no strip: a new one, or one removed from a queue without NVML. */
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
