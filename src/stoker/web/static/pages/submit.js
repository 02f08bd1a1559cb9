/** Submits one job, a batch, or a sweep. */

import {h} from '/lib/dom.js';
import {link} from '/lib/router.js';
import {computed} from '/lib/signal.js';
import {batchForm} from '/pages/submit/batch.js';
import {jobForm} from '/pages/submit/job.js';
import {sweepForm} from '/pages/submit/sweep.js';

/** @type {[string, string, () => HTMLElement][]} */
const FORMS = [
  ['job', 'One job', jobForm],
  ['batch', 'A batch', batchForm],
  ['sweep', 'A sweep', sweepForm],
];

/** @param {import('/pages/index.js').Context} context */
export function page({query}) {
  const chosen = computed(() => FORMS.find(([name]) => name === query.value.get('form')) ?? FORMS[0]);
  return h(
    'section',
    {class: 'submit'},
    h('h1', null, 'Submit'),
    h('nav', {class: 'tabs', 'aria-label': 'What to submit'}, FORMS.map(([name, label]) => h('a', {href: link('/submit', {form: name}), 'aria-current': () => (chosen.value?.[0] === name ? 'page' : null)}, label))),
    () => chosen.value?.[2](),
  );
}
