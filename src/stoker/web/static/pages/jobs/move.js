/** Moves waiting jobs in the queue. */

import {post} from '/lib/connection.js';
import {attempt, toast} from '/lib/toast.js';

/**
 * Move a waiting job past its neighbour; only in queue order is that its neighbour in the table.
 * @param {import('/pages/jobs.js').JobsView} view
 * @param {number} id
 * @param {-1 | 1} step up or down
 */
export function move(view, id, step) {
  if (view.query.peek().get('sort')) {
    toast('Jobs can be moved only in queue order: choose that order first.', 'refused');
    return;
  }
  const waiting = (view.jobs.peek()?.jobs ?? []).filter(({state}) => state === 'waiting');
  const at = waiting.findIndex((job) => job.id === id);
  const other = waiting[at + step];
  if (at >= 0 && other) put(id, other.id, step < 0 ? 'before' : 'behind');
}

/**
 * Move a waiting job directly before or after another one.
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
