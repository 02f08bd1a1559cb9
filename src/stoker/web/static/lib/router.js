/** Which page is shown: `#/jobs?states=failed`, so that links, bookmarks and the back button work. */

import {signal} from '/lib/signal.js';

/** @typedef {{path: string, query: URLSearchParams}} Place */

/** The present page. */
export const place = signal(read());

addEventListener('hashchange', () => {
  place.value = read();
});

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
  place.value = read();
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
