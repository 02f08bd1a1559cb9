/** Puts waiting jobs at other places of the queue. */

import {post} from '/lib/connection.js';
import {attempt, toast} from '/lib/toast.js';

/**
 * Move a waiting job past its neighbour in the queue, which is that of the table only as jobs run.
 * @param {import('/pages/jobs.js').Desk} desk
 * @param {number} id
 * @param {-1 | 1} step up or down
 */
export function move(desk, id, step) {
  if (desk.query.peek().get('sort')) {
    toast('Sorted otherwise, jobs cannot be moved: order them as they run.', 'refused');
    return;
  }
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
