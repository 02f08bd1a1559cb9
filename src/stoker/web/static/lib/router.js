/** Which page is shown: `#/jobs?states=failed`, so that links, bookmarks and the back button work. */

import {effect, onCleanup, signal} from '/lib/signal.js';

/** @typedef {{path: string, query: URLSearchParams}} Place */

/** The present page. */
export const place = signal(read());

/** The address that led here, and the newest one of each list page. */
let before = '';
/** @type {Map<string, string>} */
const lists = new Map([['/jobs', '#/jobs']]);
let shown = location.hash;

addEventListener('hashchange', moved);

function moved() {
  if (location.hash !== shown) before = shown;
  shown = location.hash;
  place.value = read();
  if (lists.has(place.peek().path)) lists.set(place.peek().path, shown);
}

/**
 * The list that the user has seen last, with its filter and page.
 * @param {string} path
 */
export function lastList(path) {
  return lists.get(path) ?? `#${path}`;
}

/**
 * Go back to that list: by the history if it is just behind, so that its scroll position comes back too.
 * @param {string} path
 */
export function backTo(path) {
  if (before === lastList(path)) history.back();
  else location.hash = lastList(path);
}

const SCROLL_PAUSE_MS = 100;

/**
 * Keep the scroll positions of the window and an element with their entry of the history, and restore them once the
 * content is there again.
 * @param {HTMLElement} element
 * @param {() => boolean} isReady followed
 */
export function keepScroll(element, isReady) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const {path} = place.peek();
  let wanted = /** @type {{scroll?: [number, number]} | null} */ (history.state)?.scroll;
  const note = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (place.peek().path === path) history.replaceState({scroll: [scrollY, element.scrollTop]}, '');
    }, SCROLL_PAUSE_MS);
  };
  element.addEventListener('scroll', note);
  addEventListener('scroll', note);
  effect(() => {
    if (!wanted || !isReady()) return;
    const [window, inner] = wanted;
    wanted = undefined;
    requestAnimationFrame(() => {
      scrollTo(0, window);
      element.scrollTop = inner;
    });
  });
  onCleanup(() => {
    clearTimeout(timer);
    removeEventListener('scroll', note);
  });
}

/**
 * The link to a page.
 * @param {string} path
 * @param {Record<string, string | number | readonly string[] | null | undefined>} [query]
 */
export function link(path, query = {}) {
  const text = toQuery(query);
  return `#${path}${text ? `?${text}` : ''}`;
}

/**
 * Go to a page; with `replace`, the present page leaves the history.
 * @param {string} path
 * @param {Record<string, string | number | readonly string[] | null | undefined>} [query]
 * @param {{replace?: boolean}} [options]
 */
export function go(path, query = {}, {replace = false} = {}) {
  const target = link(path, query);
  if (target === location.hash) return;
  if (replace) history.replaceState(null, '', target);
  else history.pushState(null, '', target);
  if (replace) shown = location.hash;
  moved();
}

/**
 * Parameters as a query string: null and empty values are left out, a list is repeated.
 * @param {Record<string, string | number | boolean | readonly string[] | null | undefined>} query
 */
export function toQuery(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) params.append(name, each);
    else if (value !== null && value !== undefined && value !== '' && value !== false) {
      params.set(name, String(value));
    }
  }
  return params.toString();
}

/**
 * Match a path with a pattern (`/jobs/:id`): the named parts, or null.
 * @param {string} pattern
 * @param {string} path
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const [wanted, given] = [pattern.split('/'), path.split('/')];
  if (wanted.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const parts = {};
  for (const [index, part] of wanted.entries()) {
    if (part.startsWith(':')) parts[part.slice(1)] = decode(given[index] ?? '');
    else if (part !== given[index]) return null;
  }
  return parts;
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {Place} */
function read() {
  const [path = '', query = ''] = location.hash.slice(1).split(/\?(.*)/s);
  return {path: path.startsWith('/') ? path : '/', query: new URLSearchParams(query)};
}
