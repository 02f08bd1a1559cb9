/** The frame around every page: navigation, state of the queue, connection to the daemon. */

import {h} from '/lib/dom.js';
import {daemon, post, state, watch} from '/lib/connection.js';
import {listShortcuts, shortcut} from '/lib/keys.js';
import {palette} from '/lib/palette.js';
import {link, place} from '/lib/router.js';
import {nextTheme, theme} from '/lib/theme.js';
import {attempt, toastBox} from '/lib/toast.js';
import {signal} from '/lib/signal.js';
import {HOME, PAGES} from '/pages/index.js';
import {about, count} from '/logic/format.js';

/**
 * The frame, with a page in it.
 * @param {HTMLElement} main
 */
export function shell(main) {
  const status = watch('/v1/status');
  const chosen = signal(theme());
  const dialog = help();
  shortcut('?', 'show these shortcuts', () => showHelp(dialog));
  const turnTheme = () => (chosen.value = nextTheme());
  shortcut('t', 'light, dark, or system theme', turnTheme);
  shortcut('Ctrl+K', 'go to a page, sweep or job, or do something (⌘K)', () => {}); // the palette listens itself
  for (const page of PAGES) {
    if (page.key) shortcut(`g ${page.key}`, `go to ${page.title}`, () => (location.hash = page.pattern));
  }
  return [
    h('a', {class: 'skip', href: '#main', onclick: (/** @type {Event} */ event) => { event.preventDefault(); main.focus(); }}, 'Skip to the page'),
    h(
      'header',
      {class: 'top'},
      h('a', {class: 'brand', href: link('/')}, h('img', {src: '/icon.svg', alt: '', width: 24, height: 24}), 'Stoker'),
      h(
        'nav',
        {'aria-label': 'Pages'},
        PAGES.filter((page) => page.nav).map((page) =>
          h('a', {href: link(page.pattern), 'aria-current': () => (isIn(page.pattern) ? 'page' : null)}, page.nav),
        ),
      ),
      h('span', {class: 'counts', 'aria-label': 'Jobs in the queue'}, () => counts(status.value.data)),
      h('span', {class: 'spacer'}),
      () => pauseButton(status.value.data),
      h('button', {class: 'plain', title: () => `Colours: ${chosen.value} (t)`, 'aria-label': () => `Colours: ${chosen.value}`, onclick: turnTheme}, '◐'),
      h('button', {class: 'plain', title: 'Shortcuts (?)', 'aria-label': 'Keyboard shortcuts', onclick: () => showHelp(dialog)}, '?'),
      h('span', {class: () => `link ${state.value}`, role: 'status'}, () => connectionText()),
    ),
    h('aside', {class: 'notices', 'aria-label': 'Notices'}, () => notices(status.value.data)),
    main,
    toastBox(),
    dialog,
    palette(turnTheme),
  ];
}

/** @param {string} pattern */
function isIn(pattern) {
  const path = place.value.path === '/' ? HOME : place.value.path;
  return path === pattern || path.startsWith(`${pattern}/`);
}

function connectionText() {
  if (state.value === 'open') return daemon.value?.host ?? '';
  return state.value === 'connecting' ? 'connecting …' : 'not signed in';
}

/** @param {any} status */
function counts(status) {
  if (!status) return '';
  /** @param {...string} states */
  const sum = (...states) => states.reduce((total, each) => total + (status.counts[each] ?? 0), 0);
  return [
    h('a', {href: link('/jobs', {states: ['running', 'starting']})}, `${count(sum('running', 'starting'))} running`),
    h('a', {href: link('/jobs', {states: ['waiting']})}, `${count(sum('waiting'))} waiting`),
    h('a', {href: link('/jobs', {states: ['failed', 'lost']})}, `${count(sum('failed', 'lost'))} failed`),
    status.eta_s > 0 && h('span', {class: 'eta', title: 'Estimated time until all jobs have ended'}, `~${about(status.eta_s)} left`),
  ];
}

/** @param {any} status */
function pauseButton(status) {
  if (!status) return null;
  const paused = status.queue_paused !== null || status.no_project_paused !== null;
  const verb = paused ? 'resume' : 'pause';
  const done = paused ? 'The queue continues.' : 'The queue is paused: running jobs continue.';
  return h('button', {onclick: () => attempt(() => post(`/v1/${verb}`, {queue: true}), () => done)}, paused ? 'Resume queue' : 'Pause queue');
}

/** @param {any} status */
function notices(status) {
  if (state.value === 'connecting' && daemon.value) {
    return h('p', {class: 'notice warn'}, 'Cannot reach the daemon: this page may show old values. It reconnects by itself, so do not reload it. If the daemon was stopped, start it: ', h('code', null, 'stoker daemon start'));
  }
  if (!status) return null;
  return [
    status.queue_paused !== null && h('p', {class: 'notice warn'}, `The queue is paused: ${status.queue_paused}. Running jobs continue.`),
    status.no_project_paused !== null && paused('Jobs without a project are', status.no_project_paused, {}),
    status.notices.map((/** @type {string} */ each) => h('p', {class: 'notice warn'}, each)),
    Object.entries(status.projects_paused).map(([project, why]) => paused(`Project ${project} is`, String(why), {project})),
  ];
}

/**
 * @param {string} which
 * @param {string} why
 * @param {{project?: string}} order
 */
function paused(which, why, order) {
  const resume = () => attempt(() => post('/v1/resume', {queue: true, ...order}), () => 'Jobs start again.');
  return h(
    'div',
    {class: 'notice warn row'},
    h('span', null, `${which} paused: ${why}.`),
    h('button', {onclick: resume}, 'Resume', h('span', {class: 'sr'}, order.project ? ` project ${order.project}` : ' jobs without a project')),
  );
}

function help() {
  return h('dialog', {class: 'card', 'aria-labelledby': 'help-title'});
}

/** @param {HTMLDialogElement} dialog */
function showHelp(dialog) {
  dialog.replaceChildren(
    h('h2', {id: 'help-title'}, 'Keyboard'),
    h('dl', {class: 'keys'}, listShortcuts().map(({keys, meaning}) => [h('dt', null, keys.split(' ').map((key) => h('kbd', null, key))), h('dd', null, meaning)])),
    h('form', {method: 'dialog'}, h('button', {class: 'primary', onclick: (/** @type {Event} */ event) => { event.preventDefault(); dialog.close(); }}, 'Close')),
  );
  dialog.showModal();
}
