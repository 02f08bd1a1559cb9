/** Choices of the palette, by what was typed. */

/** @typedef {{title: string, hint: string, act: () => void}} Choice */

/**
 * The choices that fit, the best first: those that begin with the text, then those with a word that does, then the
 * others that contain its letters in order.
 * @template {{title: string, hint: string}} T
 * @param {readonly T[]} choices
 * @param {string} text
 * @returns {T[]}
 */
export function rankChoices(choices, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [...choices];
  return choices
    .map((choice, index) => ({choice, index, cost: costOf(`${choice.title} ${choice.hint}`.toLowerCase(), wanted)}))
    .filter(({cost}) => cost < Infinity)
    .sort((one, other) => one.cost - other.cost || one.index - other.index)
    .map(({choice}) => choice);
}

/** @param {string} title @param {string} wanted */
function costOf(title, wanted) {
  if (title.startsWith(wanted)) return 0;
  if (title.includes(` ${wanted}`)) return 1;
  if (title.includes(wanted)) return 2;
  let at = -1;
  for (const letter of wanted) {
    at = title.indexOf(letter, at + 1);
    if (at < 0) return Infinity;
  }
  return 3;
}
