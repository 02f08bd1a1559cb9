/** All sweeps, the newest first, with their progress. */

import {each, h} from '/lib/dom.js';
import {watch} from '/lib/connection.js';
import {progress} from '/lib/progress.js';
import {link} from '/lib/router.js';
import {count, text} from '/logic/format.js';

/** @param {import('/pages/index.js').Context} _context */
export function page(_context) {
  const sweeps = watch('/v1/sweeps', {limit: 100});
  const rows = () => /** @type {any[]} */ (sweeps.value.data ?? []);
  return h(
    'section',
    null,
    h('div', {class: 'row'}, h('h1', null, 'Sweeps'), h('span', {class: 'spacer'}), h('a', {class: 'button primary', href: link('/submit', {form: 'sweep'})}, 'New sweep')),
    () => sweeps.value.problem && h('p', {class: 'bad'}, sweeps.value.problem.detail),
    () => sweeps.value.data !== undefined && rows().length === 0 && nothing(),
    each(h('div', {class: 'sweeps'}), rows, (sweep) => `${text(sweep.cwd)}\n${sweep.name}`, (sweep) => card(sweep)),
  );
}

/** @param {import('/lib/signal.js').Signal<any>} sweep */
function card(sweep) {
  const {name, cwd} = sweep.peek();
  return h(
    'article',
    {class: 'card sweep'},
    h('div', {class: 'row'}, h('h2', null, h('a', {href: link(`/sweeps/${encodeURIComponent(name)}`, {cwd: text(cwd)})}, name)), h('span', {class: 'soft path'}, text(cwd))),
    () => progress(sweep.value.counts),
    () => sweep.value.large && h('p', {class: 'soft'}, `The counts are those of its newest runs; its jobs are ${count(sweep.value.first)} to ${count(sweep.value.last)}.`),
  );
}

function nothing() {
  return h(
    'div',
    {class: 'card empty'},
    h('p', null, 'No sweep yet. Write one ', h('a', {href: link('/submit', {form: 'sweep'})}, 'here'), ', or on the command line:'),
    h('pre', null, "stoker sweep 'python train.py --lr {lr} --bs {bs}' lr=1e-3,3e-4 bs=32,64"),
  );
}
