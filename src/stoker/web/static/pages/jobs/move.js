/** Puts waiting jobs at other places of the queue. */

import {post} from '/lib/connection.js';
import {attempt} from '/lib/toast.js';

/**
 * Move a waiting job past its neighbour.
 * @param {import('/pages/jobs.js').Desk} desk
 * @param {number} id
 * @param {-1 | 1} step up or down
 */
export function move(desk, id, step) {
  const waiting = (desk.jobs.peek()?.jobs ?? []).filter(({state}) => state === 'waiting');
  const at = waiting.findIndex((job) => job.id === id);
  const other = waiting[at + step];
  if (at >= 0 && other) put(id, other.id, step < 0 ? 'before' : 'behind');
}

/**
 * Put a waiting job just before or behind another one.
 * @param {number} id
 * @param {number} other
 * @param {'before' | 'behind'} where
 */
export function put(id, other, where) {
  return attempt(
    () => post('/v1/move', {job: String(id), [where]: String(other)}),
    (/** @type {any} */ moved) => moved.notice ?? `job ${id} is at position ${moved.position}`,
  );
}
