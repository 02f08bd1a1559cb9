/** Fields that all submissions have: folder, GPUs, priority, limits. */

import {h} from '/lib/dom.js';
import {get} from '/lib/connection.js';
import {whole} from '/lib/form.js';
import {parseDuration, parseSize, text} from '/logic/format.js';

/** @typedef {import('/lib/form.js').Form} Form */

const KEY = 'stoker.folder';
const MOST_GPUS = 1024;
const MOST_CPUS = 65536;
const MOST_PRIORITY = 1_000_000;
const MOST_RETRIES = 1000;

/**
 * Where the commands run.
 * @param {Form} form
 * @param {() => void} [oninput]
 */
export function folderField(form, oninput = () => {}) {
  const field = form.field('cwd', 'Folder', {hint: 'Commands run here, on the machine of the queue.', wide: true, props: {placeholder: '/home/you/project', spellcheck: 'false', autocomplete: 'off', oninput}});
  suggestFolder(form).then(oninput);
  return field;
}

/** @param {Form} form */
async function suggestFolder(form) {
  const kept = localStorage.getItem(KEY);
  const last = kept ?? (await get('/v1/ls', {sort: 'newest', limit: 1}).then(({jobs}) => text(jobs[0]?.cwd), () => ''));
  if (form.text('cwd') === '') form.fill('cwd', last);
}

/** @param {Form} form */
export function readFolder(form) {
  const cwd = form.text('cwd');
  if (!cwd.startsWith('/')) form.fail('cwd', 'write the absolute path');
  return cwd;
}

/** @param {Form} form */
export function keepFolder(form) {
  localStorage.setItem(KEY, form.text('cwd'));
}

/**
 * GPUs, priority, time limit, retries, image.
 * @param {Form} form
 */
export function needsFields(form) {
  const number = {type: 'text', inputmode: 'numeric', autocomplete: 'off'};
  return [
    form.field('gpus', 'GPUs', {hint: '0: a job without GPU', props: {...number, placeholder: '1'}}),
    form.field('gpu_mem_bytes', 'GPU memory', {hint: 'what it needs: 10G', props: {placeholder: 'as measured', autocomplete: 'off'}}),
    form.field('cpus', 'CPUs', {hint: 'set aside for it', props: {...number, placeholder: 'any'}}),
    form.field('mem_bytes', 'RAM', {hint: '32G; with more it is ended', props: {placeholder: 'any', autocomplete: 'off'}}),
    form.field('priority', 'Priority', {hint: 'higher runs first', props: {...number, placeholder: '0'}}),
    form.field('timeout_s', 'Time limit', {hint: '90s, 2h, 1d12h', props: {placeholder: 'none', autocomplete: 'off'}}),
    form.field('retries', 'Retries', {hint: 'if it fails', props: {...number, placeholder: '0'}}),
    form.field('image', 'Container image', {hint: 'an image, a .sif file, a folder', props: {placeholder: 'none', autocomplete: 'off', spellcheck: 'false'}}),
  ];
}

/** @param {Form} form */
export function readNeeds(form) {
  return {
    gpus: form.read('gpus', whole(0, MOST_GPUS)),
    share: form.text('share') || undefined,
    gpu_mem_bytes: form.read('gpu_mem_bytes', parseSize),
    cpus: form.read('cpus', whole(1, MOST_CPUS)),
    mem_bytes: form.read('mem_bytes', parseSize),
    priority: form.read('priority', whole(-MOST_PRIORITY, MOST_PRIORITY)),
    timeout_s: form.read('timeout_s', parseDuration),
    retries: form.read('retries', whole(0, MOST_RETRIES)),
    image: form.text('image') || undefined,
  };
}

/**
 * Project, dependencies, start time, hold.
 * @param {Form} form
 */
export function waitFields(form) {
  return [
    form.field('project', 'Project', {hint: 'a name for a group of jobs', props: {autocomplete: 'off'}}),
    form.field('after', 'After jobs', {hint: 'starts when these succeed: 12,15-18', props: {autocomplete: 'off'}}),
    form.field('begin_at', 'Not before', {props: {type: 'datetime-local'}}),
    form.field('hold', 'Hold', {hint: 'wait until released', props: {type: 'checkbox'}}),
  ];
}

/** @param {Form} form */
export function readWait(form) {
  return {
    project: form.text('project') || undefined,
    after: form.text('after') || undefined,
    begin_at: form.read('begin_at', (written) => new Date(written).getTime() / 1000),
    hold: form.isChecked('hold') || undefined,
  };
}

/**
 * Message about the added jobs, with a link.
 * @param {{first: number, last: number, notice?: string | null}} added
 */
export function addedNote(added) {
  const words = added.first === added.last ? `Job ${added.first} is in the queue.` : `Jobs ${added.first} to ${added.last} are in the queue.`;
  const where = added.first === added.last ? `#/jobs/${added.first}` : '#/jobs';
  return h('p', {class: 'added', role: 'status'}, words, ' ', h('a', {href: where}, added.first === added.last ? 'See it' : 'See them'), added.notice && ` ${added.notice}`);
}
