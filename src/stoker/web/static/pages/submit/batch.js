/** Form for several jobs as one text; all are added, or none. */

import {h} from '/lib/dom.js';
import {post} from '/lib/connection.js';
import {debounced, Form, newRequestId} from '/lib/form.js';
import {signal} from '/lib/signal.js';
import {plural, text} from '/logic/format.js';
import {addedNote, folderField, keepFolder, needsFields, readFolder, readNeeds, readWait, waitFields} from '/pages/submit/common.js';

const PAUSE_MS = 250;
const SHOWN = 20;
const LINES = 'python train.py --lr 1e-3\npython train.py --lr 3e-4';
const EXAMPLES = /** @type {Record<string, string>} */ ({
  auto: LINES,
  lines: LINES,
  gpupeasy: 'first;;logs/first.log;;python train.py --lr 1e-3;;;\nsecond;;logs/second.log;;python train.py --lr 3e-4;;;',
});

/** @returns {HTMLElement} */
export function batchForm() {
  const form = new Form('batch');
  const preview = signal(/** @type {any} */ (null));
  const added = signal(/** @type {any} */ (null));
  const kind = signal('auto');
  let requestId = newRequestId();
  let asked = 0;

  /** @returns {Promise<any>} what the text means now; null if that is unknown */
  async function look() {
    form.clear();
    if (form.text('text') === '' || !form.text('cwd').startsWith('/')) {
      preview.value = null;
      return null;
    }
    asked += 1;
    const mine = asked;
    try {
      const found = await post('/v1/batch', {text: form.text('text'), cwd: form.text('cwd'), form: kind.peek()});
      if (mine === asked) preview.value = found;
      return found;
    } catch (error) {
      if (mine === asked) form.refuse(error);
      return null;
    }
  }
  const lookSoon = debounced(look, PAUSE_MS);

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    const found = await look();
    if (form.text('text') === '') form.fail('text', 'no job found: write one command per line');
    else if (found?.errors.length > 0) form.fail('text', `${found.errors[0]}; nothing was added`);
    const body = {request_id: requestId, jobs: found?.jobs ?? [], cwd: readFolder(form), by_page: true, ...readNeeds(form), ...readWait(form)};
    if (!form.check()) return;
    try {
      added.value = await post('/v1/add', body);
      keepFolder(form);
    } catch (error) {
      form.refuse(error);
      form.check();
    }
    requestId = newRequestId();
  }

  /** @param {string} value @param {string} label */
  const choice = (value, label) => h('label', {class: 'choice'}, h('input', {type: 'radio', name: 'kind', value, checked: () => kind.value === value, onchange: () => { kind.value = value; look(); }}), label);

  return h(
    'form',
    {class: 'card fields', novalidate: true, onsubmit: submit},
    h('fieldset', {class: 'wide choices'}, h('legend', null, 'Written as'), choice('auto', 'detected automatically'), choice('lines', 'one command per line'), choice('gpupeasy', 'NAME;;OUTFILE;;COMMAND;;; (GPUPeasy)')),
    form.field('text', 'Jobs', {wide: true, tag: 'textarea', props: {rows: 10, spellcheck: 'false', placeholder: () => EXAMPLES[kind.value] ?? '', oninput: lookSoon}}),
    h('div', {class: 'wide preview', 'aria-live': 'polite'}, () => show(preview.value)),
    folderField(form, lookSoon),
    needsFields(form),
    waitFields(form),
    h('div', {class: 'wide'}, form.general(), h('div', {class: 'row'}, h('button', {class: 'primary', type: 'submit'}, () => (preview.value?.jobs.length && !preview.value.errors.length ? `Add ${plural(preview.value.jobs.length, 'job')}` : 'Add jobs')), () => added.value && addedNote(added.value))),
  );
}

/** @param {any} preview */
function show(preview) {
  if (!preview) return null;
  const more = preview.jobs.length - SHOWN;
  return [
    preview.errors.length > 0 && h('ul', {class: 'bad'}, preview.errors.slice(0, SHOWN).map((/** @type {string} */ error) => h('li', null, error))),
    preview.jobs.length > 0 && h('p', null, h('b', null, plural(preview.jobs.length, 'job'))),
    h('ol', {class: 'mono'}, preview.jobs.slice(0, SHOWN).map((/** @type {any} */ job) => h('li', null, job.name && h('b', null, `${job.name} `), text(job.command)))),
    more > 0 && h('p', {class: 'soft'}, `and ${more} more`),
  ];
}
