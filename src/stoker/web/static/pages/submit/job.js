/** Form for one job. */

import {h} from '/lib/dom.js';
import {post} from '/lib/connection.js';
import {Form, newRequestId} from '/lib/form.js';
import {signal} from '/lib/signal.js';
import {whatIf} from '/pages/submit/forecast.js';
import {addedNote, folderField, keepFolder, needsFields, readFolder, readNeeds, readWait, waitFields} from '/pages/submit/common.js';

/** @returns {HTMLElement} */
export function jobForm() {
  const form = new Form('job');
  const added = signal(/** @type {any} */ (null));
  let requestId = newRequestId();

  /** The job, for a forecast; null while it has no command, or a field is wrong. */
  function order() {
    const command = form.text('command');
    if (command === '') return null;
    const before = form.errors.peek();
    const {timeout_s: _limit, retries: _retries, ...needs} = readNeeds(form);
    const isRight = form.errors.peek() === before;
    form.errors.value = before;
    return isRight ? {command, cwd: form.text('cwd'), name: form.text('name') || undefined, project: form.text('project') || undefined, ...needs} : null;
  }
  const forecast = whatIf(form, order, 'never');

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    form.clear();
    const command = form.text('command');
    if (command === '') form.fail('command', 'no command was given; an example: python train.py');
    const body = {
      request_id: requestId,
      jobs: [{command, script: command.includes('\n')}],
      name: form.text('name') || undefined,
      log: form.text('log') || undefined,
      cwd: readFolder(form),
      by_page: true,
      ...readNeeds(form),
      ...readWait(form),
    };
    if (!form.check()) return;
    try {
      added.value = await post('/v1/add', body);
      requestId = newRequestId();
      keepFolder(form);
    } catch (error) {
      requestId = newRequestId();
      form.refuse(error);
      form.check();
    }
  }

  return h(
    'form',
    {class: 'card fields', novalidate: true, onsubmit: submit, oninput: forecast.look},
    form.field('command', 'Command', {hint: 'A shell line; several lines are a script.', wide: true, tag: 'textarea', props: {rows: 4, spellcheck: 'false', placeholder: 'python train.py --lr 3e-4'}}),
    folderField(form),
    form.field('name', 'Name', {hint: 'no blanks, commas or /', props: {autocomplete: 'off'}}),
    form.field('log', 'Log file', {hint: 'default: kept by Stoker', props: {autocomplete: 'off', placeholder: 'logs/{name}.{id}.log'}}),
    needsFields(form),
    waitFields(form),
    forecast.element,
    h('div', {class: 'wide'}, form.general(), h('div', {class: 'row'}, h('button', {class: 'primary', type: 'submit'}, 'Add job'), () => added.value && addedNote(added.value))),
  );
}
