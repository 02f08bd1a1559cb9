/** Colour ramp from the lowest value to the highest. */

export const STEPS = 16;

/**
 * A number of colours, evenly spaced between two.
 * @param {string} low as a browser tells colours: `rgb(1, 2, 3)`
 * @param {string} high
 * @returns {string[]}
 */
export function makeRamp(low, high) {
  const [from, to] = [parts(low), parts(high)];
  return Array.from({length: STEPS}, (_, step) => {
    const at = step / (STEPS - 1);
    const mixed = from.map((part, index) => Math.round(part + ((to[index] ?? 0) - part) * at));
    return `rgb(${mixed.join(', ')})`;
  });
}

/**
 * Index of the colour for a position between 0 and 1.
 * @param {number} place
 */
export function stepOf(place) {
  return Math.min(STEPS - 1, Math.max(0, Math.floor(place * STEPS)));
}

/** @param {string} colour */
function parts(colour) {
  const found = colour.match(/[\d.]+/g) ?? [];
  return [0, 1, 2].map((index) => Number(found[index] ?? 0));
}
