/** Keeps what a user has chosen on a page in its address, so that a reload, a bookmark and Back show it again. */

import {go, place} from '/lib/router.js';
import {effect, onCleanup} from '/lib/signal.js';

// Browsers refuse addresses that change at each move of a pointer.
const PAUSE_MS = 200;

/**
 * @param {import('/lib/signal.js').Signal<URLSearchParams>} query of the page
 * @param {(query: URLSearchParams) => void} read takes the choices from the address: now, and when it changes
 * @param {() => Record<string, string | number | readonly string[] | null>} write the choices; what it reads of signals is
 *   followed, and parameters that it does not name stay
 */
export function followAddress(query, read, write) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let own = query.peek().toString();
  const path = place.peek().path;
  read(query.peek());

  /** @param {ReturnType<typeof write>} chosen */
  function put(chosen) {
    const kept = Object.fromEntries([...new Set(query.peek().keys())].filter((key) => !(key in chosen)).map((key) => [key, query.peek().getAll(key)]));
    if (place.peek().path !== path) return;
    go(path, {...kept, ...chosen}, {replace: true});
    own = place.peek().query.toString();
  }

  effect(() => {
    const given = query.value;
    if (given.toString() === own) return;
    own = given.toString();
    clearTimeout(timer);
    read(given);
  });
  let isFirst = true;
  effect(() => {
    const chosen = write();
    if (!isFirst) {
      clearTimeout(timer);
      timer = setTimeout(() => put(chosen), PAUSE_MS);
    }
    isFirst = false;
  });
  onCleanup(() => clearTimeout(timer));
}
