/** Form for a sweep, with a live preview of its runs. */

import {h} from '/lib/dom.js';
import {post} from '/lib/connection.js';
import {debounced, Form, whole} from '/lib/form.js';
import {link} from '/lib/router.js';
import {signal} from '/lib/signal.js';
import {cell, plural} from '/logic/format.js';
import {whatIf} from '/pages/submit/forecast.js';
import {folderField, keepFolder, needsFields, readFolder, readNeeds} from '/pages/submit/common.js';

const PAUSE_MS = 350;
const SHOWN = 50;
const LABELS = {words: 'Command', yaml: 'The sweep in YAML', toml: 'The sweep in TOML'};
const MOST_SAMPLES = 10_000_000;
const MOST_SEED = 2 ** 53;
const YAML = 'command: python train.py --lr {lr} --bs {bs}\nparameters:\n  lr: [1e-3, 3e-4]\n  bs: [32, 64]\nmetric: {name: val_acc, goal: maximize}\n';
const TOML = 'command = "python train.py --lr {lr} --bs {bs}"\n\n[parameters]\nlr = [1e-3, 3e-4]\nbs = [32, 64]\n';

/** @returns {HTMLElement} */
export function sweepForm() {
  const form = new Form('sweep');
  const kind = signal(/** @type {'words' | 'yaml' | 'toml'} */ ('words'));
  const preview = signal(/** @type {any} */ (null));
  const added = signal(/** @type {any} */ (null));
  const isBusy = signal(false);
  let asked = 0;

  function draft() {
    const isWords = kind.peek() === 'words';
    return {
      form: kind.peek(),
      text: form.text('text'),
      words: isWords ? form.text('words').split('\n').map((word) => word.trim()).filter(Boolean) : [],
      cwd: readFolder(form),
      name: form.text('name') || undefined,
      method: form.text('method') || undefined,
      metric: form.text('metric') || undefined,
      goal: form.text('goal') || undefined,
      samples: form.read('samples', whole(1, MOST_SAMPLES)),
      seed: form.read('seed', whole(-MOST_SEED, MOST_SEED)),
      repeats: form.read('repeats', whole(1, MOST_SAMPLES)),
      rerun: form.text('rerun') || undefined,
    };
  }

  async function look() {
    form.clear();
    added.value = null;
    if (form.text('text') === '' || form.text('cwd') === '') {
      preview.value = null;
      return;
    }
    asked += 1;
    const mine = asked;
    const body = draft();
    if (Object.keys(form.errors.peek()).length > 0) return;
    isBusy.value = true;
    try {
      const plan = await post('/v1/plan', body);
      if (mine === asked) preview.value = plan;
      forecast.look();
    } catch (error) {
      if (mine === asked) {
        preview.value = null;
        form.refuse(error);
      }
    }
    if (mine === asked) isBusy.value = false;
  }
  const lookSoon = debounced(look, PAUSE_MS);

  /** The runs to queue, for a forecast. */
  function order() {
    const plan = preview.peek();
    const [run] = plan?.runs ?? [];
    if (!plan?.todo || !run) return null;
    const before = form.errors.peek();
    const {timeout_s: _limit, retries: _retries, ...needs} = readNeeds(form);
    const isRight = form.errors.peek() === before;
    form.errors.value = before;
    return isRight ? {command: run.command, cwd: form.text('cwd'), params: run.params, runs: plan.todo, project: plan.name, ...needs} : null;
  }
  const forecast = whatIf(form, order, 'auto');

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    lookSoon.cancel();
    asked += 1; // ignores the answer of a preview that is under way
    form.clear();
    if (form.text('text') === '') form.fail('text', 'no command was given; an example: python train.py --lr {lr}');
    const {timeout_s: seconds, ...needs} = readNeeds(form);
    const body = {...draft(), ...needs, timeout: seconds === undefined ? undefined : `${seconds}s`};
    if (!form.check()) return;
    isBusy.value = true;
    try {
      const answer = await post('/v1/sweep', body);
      added.value = {...answer, cwd: body.cwd};
      keepFolder(form);
    } catch (error) {
      form.refuse(error);
      form.check();
    }
    isBusy.value = false;
  }

  /** @param {'words' | 'yaml' | 'toml'} value @param {string} label */
  const choice = (value, label) => h('label', {class: 'choice'}, h('input', {type: 'radio', name: 'kind', value, checked: () => kind.value === value, onchange: () => { kind.value = value; look(); }}), label);
  const number = {type: 'text', inputmode: 'numeric', autocomplete: 'off', oninput: lookSoon};

  return h(
    'form',
    {class: 'card fields', novalidate: true, onsubmit: submit, oninput: forecast.look},
    h('fieldset', {class: 'wide choices'}, h('legend', null, 'Written as'), choice('words', 'a command and its parameters'), choice('yaml', 'YAML (also of W&B)'), choice('toml', 'TOML')),
    form.field('text', () => LABELS[kind.value], {hint: '{lr} is the value of a parameter, {args} all of them.', wide: true, tag: 'textarea', props: {rows: () => (kind.value === 'words' ? 2 : 12), spellcheck: 'false', placeholder: () => placeholder(kind.value), oninput: lookSoon}}),
    h('div', {class: 'wide', hidden: () => kind.value !== 'words'}, form.field('words', 'Parameters', {hint: 'One per line: lr=1e-3,3e-4 · seed=range(3) · lr=loguniform(1e-5,1e-1) · a,b=zip([1,2],[3,4])', wide: true, tag: 'textarea', props: {rows: 4, spellcheck: 'false', placeholder: 'lr=1e-3,3e-4\nbs=32,64', oninput: lookSoon}})),
    h('div', {class: 'wide preview', 'aria-live': 'polite'}, () => show(preview.value, isBusy.value)),
    folderField(form, lookSoon),
    form.field('name', 'Name', {hint: "default: the program's", props: {autocomplete: 'off', oninput: lookSoon}}),
    form.field('method', 'Method', {tag: 'select', props: {onchange: look}, children: [h('option', {value: ''}, 'as written (grid)'), h('option', {value: 'grid'}, 'grid: all combinations'), h('option', {value: 'random'}, 'random: samples'), h('option', {value: 'tpe'}, 'tpe: by the results so far')]}),
    form.field('metric', 'Metric', {hint: 'compares runs; needed by tpe', props: {autocomplete: 'off', oninput: lookSoon}}),
    form.field('goal', 'Better is', {tag: 'select', props: {onchange: look}, children: [h('option', {value: ''}, 'smaller'), h('option', {value: 'maximize'}, 'greater')]}),
    form.field('samples', 'Samples', {hint: 'how many to draw', props: number}),
    form.field('seed', 'Seed', {hint: 'the same seed draws the same runs', props: number}),
    form.field('repeats', 'Repeats', {hint: 'repeats of each run, with {seed}', props: number}),
    form.field('rerun', 'Runs to queue', {tag: 'select', props: {onchange: look}, children: [h('option', {value: ''}, 'all that have not succeeded'), h('option', {value: 'failed'}, 'only failed ones'), h('option', {value: 'all'}, 'everything'), h('option', {value: 'none'}, 'only new ones')]}),
    needsFields(form),
    forecast.element,
    h('div', {class: 'wide'}, form.general(), h('div', {class: 'row'}, h('button', {class: 'primary', type: 'submit', disabled: () => isBusy.value}, () => (preview.value?.todo ? `Queue ${plural(preview.value.todo, 'run')}` : 'Queue the sweep')), () => added.value && describe(added.value))),
  );
}

/** @param {string} kind */
function placeholder(kind) {
  if (kind === 'words') return 'python train.py --lr {lr} --bs {bs}';
  return kind === 'yaml' ? YAML : TOML;
}

/** @param {any} added */
function describe(added) {
  const passed = added.passed_over > 0 ? ` ${plural(added.passed_over, 'run')} done, waiting or not selected.` : '';
  const words = added.added > 0 ? `${plural(added.added, 'run')} ${added.last === null ? 'by the results so far' : 'in the queue'}, ${jobsOf(added)}.` : 'Nothing to run.';
  return h('p', {class: 'added', role: 'status'}, words, passed, ' ', h('a', {href: link(`/sweeps/${encodeURIComponent(added.name)}`, {cwd: added.cwd})}, 'See the sweep'));
}

/** @param {any} added */
function jobsOf(added) {
  return added.last === null ? `from job ${added.first} on` : `jobs ${added.first} to ${added.last}`;
}

/**
 * @param {any} plan
 * @param {boolean} isBusy
 */
function show(plan, isBusy) {
  if (!plan) return isBusy ? h('p', {class: 'soft'}, 'counting …') : null;
  const names = plan.runs[0] ? Object.keys(plan.runs[0].params).filter((name) => plan.varied.includes(name)) : [];
  const passed = plan.count - plan.todo;
  return [
    h('p', {class: isBusy ? 'soft' : null}, h('b', {class: 'figure'}, plural(plan.count, 'run')), passed > 0 && `, ${plural(plan.todo, 'run')} to queue: the others are done, waiting or not selected`, h('span', {class: 'soft'}, ` · sweep ${plan.name} · folders in ${plan.root}`)),
    plan.notes.map((/** @type {string} */ note) => h('p', {class: 'warn'}, note)),
    plan.runs.length > 0 && h(
      'div',
      {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'The first runs'},
      h(
        'table',
        {class: 'runs'},
        h('thead', null, h('tr', null, names.map((name) => h('th', {scope: 'col', class: typeof plan.runs[0].params[name] === 'number' ? 'num' : null}, name)), h('th', {scope: 'col'}, 'command'))),
        h('tbody', null, plan.runs.slice(0, SHOWN).map((/** @type {any} */ run) => h('tr', null, names.map((name) => h('td', {class: typeof run.params[name] === 'number' ? 'num' : null}, cell(run.params[name]))), h('td', {class: 'mono'}, run.command)))),
      ),
    ),
    plan.todo > SHOWN && h('p', {class: 'soft'}, `and ${plural(plan.todo - SHOWN, 'run')} more`),
  ];
}
