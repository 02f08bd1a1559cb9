/** Entry point: connects, and shows the page that the address names. */

import {append, h} from '/lib/dom.js';
import {start, state} from '/lib/connection.js';
import {match, place} from '/lib/router.js';
import {shell} from '/lib/shell.js';
import {computed, effect, scope, signal, untracked} from '/lib/signal.js';
import {applyTheme} from '/lib/theme.js';
import {login} from '/pages/login.js';
import {HOME, PAGES} from '/pages/index.js';

applyTheme();
start();

/** @type {() => void} */
let leave = () => {};
/** @type {string | null | undefined} */
let wanted;
let isLater = false;

const main = h('main', {id: 'main', tabindex: -1});
scope(() => {
  append(document.body, shell(main));
  const isRefused = computed(() => state.value === 'refused' || state.value === 'unproven');
  const path = computed(() => (place.value.path === '/' ? HOME : place.value.path));
  effect(() => {
    const shown = isRefused.value ? null : path.value;
    untracked(() => show(shown));
  });
});

/** @param {string | null} path null for an address without a page */
async function show(path) {
  wanted = path;
  const found = path === null ? null : find(path);
  const module = await found?.page.load();
  if (wanted !== path) return; // the user has left the page meanwhile
  leave();
  const query = signal(place.peek().query);
  const [element, end] = scope(() => {
    if (path === null) return login();
    if (!found || !module) return nowhere(path);
    effect(() => {
      if ((place.value.path === '/' ? HOME : place.value.path) === path) query.value = place.value.query;
    });
    return module.page({parts: found.parts, query});
  });
  leave = end;
  // The title names the job or sweep, to tell tabs apart.
  document.title = found ? `${[found.page.title, ...Object.values(found.parts)].join(' ')} · Stoker` : 'Stoker';
  main.replaceChildren(element);
  if (isLater) focusHeading();
  isLater = true;
}

/** Let the keyboard and a screen reader go on at the top of the new page. */
function focusHeading() {
  const heading = main.querySelector('h1');
  heading?.setAttribute('tabindex', '-1');
  heading?.focus({preventScroll: true});
}

/** @param {string} path */
function find(path) {
  for (const page of PAGES) {
    const parts = match(page.pattern, path);
    if (parts) return {page, parts};
  }
  return null;
}

/** @param {string} path */
function nowhere(path) {
  return h('section', {class: 'card narrow'}, h('h1', null, 'Nothing here'), h('p', null, `There is no page ${path}.`), h('a', {href: '#/'}, 'To the GPUs'));
}
