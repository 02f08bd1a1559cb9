/** Watched answers come whole first, and then as differences of their text; see docs/reference/web.md. */

const BETWEEN = '},{';
const BODY = '"body":';

/**
 * The text of the answer in a message of type `data`.
 * @param {string} message
 */
export function bodyOf(message) {
  return message.slice(message.indexOf(BODY) + BODY.length, -1);
}

/**
 * The text of a newer answer.
 * @param {string} known the text of the one before
 * @param {[number, number, string[]] | Record<string, string>} change
 */
export function applyChange(known, change) {
  const pieces = known.split(BETWEEN);
  if (Array.isArray(change)) pieces.splice(change[0], change[1] - change[0], ...change[2]);
  else for (const [index, piece] of Object.entries(change)) pieces[Number(index)] = piece;
  return pieces.join(BETWEEN);
}
