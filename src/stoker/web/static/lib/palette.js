/** The palette: Ctrl K or ⌘ K, then a page, a sweep, a job by its number or name, or an action. */

import {h} from '/lib/dom.js';
import {get, post} from '/lib/connection.js';
import {debounced} from '/lib/form.js';
import {go, link} from '/lib/router.js';
import {computed, signal} from '/lib/signal.js';
import {attempt} from '/lib/toast.js';
import {text as textOf} from '/logic/format.js';
import {rankChoices} from '/logic/palette.js';
import {PAGES} from '/pages/index.js';

/** @typedef {import('/logic/palette.js').Choice} Choice */

const PAUSE_MS = 150;
const MOST = 12;

/**
 * @param {() => void} turnTheme
 * @returns {HTMLElement}
 */
export function palette(turnTheme) {
  const typed = signal('');
  const sweeps = signal(/** @type {Choice[]} */ ([]));
  const jobs = signal(/** @type {Choice[]} */ ([]));
  const at = signal(0);
  const own = choicesOf(turnTheme);
  const shown = computed(() => {
    const number = /^#?(\d+)$/.exec(typed.value.trim())?.[1];
    const direct = number ? [{title: `Job ${number}`, hint: 'open', act: () => go(`/jobs/${number}`)}] : [];
    return [...direct, ...rankChoices([...own, ...sweeps.value], typed.value), ...(typed.value.trim() ? jobs.value : [])].slice(0, MOST);
  });

  const search = debounced(async () => {
    const text = typed.peek().trim();
    if (!text) return;
    const found = await get('/v1/ls', {text, limit: 6}).catch(() => ({jobs: []}));
    if (text === typed.peek().trim()) jobs.value = found.jobs.map((/** @type {any} */ job) => ({title: `Job ${job.id} ${job.name ?? ''}`, hint: `${job.state} · ${job.command.slice(0, 60)}`, act: () => go(`/jobs/${job.id}`)}));
  }, PAUSE_MS);

  async function open() {
    if (dialog.open || document.querySelector('dialog[open]')) return;
    typed.value = field.value = '';
    at.value = 0;
    dialog.showModal();
    const found = await get('/v1/sweeps', {limit: 30}).catch(() => []);
    sweeps.value = found.map((/** @type {any} */ sweep) => ({title: `Sweep ${sweep.name}`, hint: textOf(sweep.cwd), act: () => (location.hash = link(`/sweeps/${encodeURIComponent(sweep.name)}`, {cwd: textOf(sweep.cwd)}))}));
  }
  /** @param {Choice | undefined} choice */
  function choose(choice) {
    if (!choice) return;
    dialog.close();
    choice.act();
  }
  /** @param {KeyboardEvent} event */
  function steer(event) {
    const last = shown.peek().length - 1;
    if (event.key === 'ArrowDown') at.value = Math.min(last, at.peek() + 1);
    else if (event.key === 'ArrowUp') at.value = Math.max(0, at.peek() - 1);
    else if (event.key === 'Enter') choose(shown.peek()[at.peek()]);
    else return;
    event.preventDefault();
  }
  addEventListener('keydown', (event) => {
    if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });

  const field = h('input', {
    type: 'text', role: 'combobox', 'aria-label': 'Go to or do', 'aria-expanded': 'true', 'aria-controls': 'palette-choices', 'aria-autocomplete': 'list', 'aria-activedescendant': () => (shown.value.length ? `choice-${at.value}` : null), autocomplete: 'off', spellcheck: 'false', placeholder: 'a page, a sweep, a job or an action', onkeydown: steer,
    oninput: () => {
      typed.value = field.value;
      at.value = 0;
      search();
    },
  });
  const list = h('ul', {id: 'palette-choices', role: 'listbox', 'aria-label': 'Choices'}, () => shown.value.map((choice, index) => h('li', {id: `choice-${index}`, role: 'option', 'aria-selected': () => String(index === at.value), onclick: () => choose(choice), onpointermove: () => (at.value = index)}, h('span', null, choice.title), ' ', h('span', {class: 'soft'}, choice.hint))));
  const dialog = h('dialog', {class: 'card palette', 'aria-label': 'Palette', onclick: (/** @type {Event} */ event) => { if (event.target === dialog) dialog.close(); }}, field, list);
  return dialog;
}

/** @param {() => void} turnTheme @returns {Choice[]} */
function choicesOf(turnTheme) {
  const pages = PAGES.filter((page) => page.nav).map((page) => ({title: page.title, hint: 'page', act: () => go(page.pattern)}));
  /** @param {string} verb @param {string} done */
  const queue = (verb, done) => () => attempt(() => post(`/v1/${verb}`, {queue: true}), () => done);
  return [
    ...pages,
    {title: 'New job', hint: 'submit', act: () => go('/submit', {form: 'job'})},
    {title: 'New sweep', hint: 'submit', act: () => go('/submit', {form: 'sweep'})},
    {title: 'Failed jobs', hint: 'filter', act: () => go('/jobs', {states: ['failed', 'lost']})},
    {title: 'Longest jobs', hint: 'order', act: () => go('/jobs', {sort: 'longest'})},
    {title: 'Pause the queue', hint: 'action', act: queue('pause', 'The queue is paused: running jobs continue.')},
    {title: 'Resume the queue', hint: 'action', act: queue('resume', 'The queue continues.')},
    {title: 'Change colours', hint: 'light, dark or as the system', act: turnTheme},
  ];
}
