/** Scales of charts: convert values to positions and back, and choose round tick values. */

/**
 * Linear scale between two ends.
 * @typedef {object} Scale
 * @property {(value: number) => number} place
 * @property {(place: number) => number} value
 * @property {number[]} ticks
 */

/**
 * The smallest and the largest number; null if there is none.
 * @param {Iterable<unknown>} values
 * @returns {[number, number] | null}
 */
export function extentOf(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (typeof value === 'number' && Number.isFinite(value)) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

/**
 * @param {[number, number]} domain
 * @param {[number, number]} range
 * @param {number} [count] about how many ticks
 * @returns {Scale}
 */
export function linearScale(domain, range, count = 5) {
  const [low, high] = widen(domain);
  const factor = (range[1] - range[0]) / (high - low);
  return {
    place: (value) => range[0] + (value - low) * factor,
    value: (place) => low + (place - range[0]) / factor,
    ticks: roundTicks(low, high, count),
  };
}

/**
 * Logarithmic scale; positive values only.
 * @param {[number, number]} domain
 * @param {[number, number]} range
 * @param {number} [count] about how many ticks at most
 * @returns {Scale}
 */
export function logScale(domain, range, count = 6) {
  const [low, high] = widen([Math.log10(domain[0]), Math.log10(domain[1])]);
  const factor = (range[1] - range[0]) / (high - low);
  return {
    place: (value) => range[0] + (Math.log10(value) - low) * factor,
    value: (place) => 10 ** (low + (place - range[0]) / factor),
    ticks: powerTicks(low, high, count),
  };
}

/**
 * Scale of texts, evenly spaced.
 * @param {string[]} words
 * @param {[number, number]} range
 */
export function pointScale(words, range) {
  const order = new Map(words.map((word, index) => [word, index]));
  const last = Math.max(1, words.length - 1);
  const middle = words.length === 1 ? 0.5 : 0;
  return {
    /** @param {string} word */
    place: (word) => range[0] + ((order.get(word) ?? 0) / last + middle) * (range[1] - range[0]),
    ticks: words,
  };
}

/**
 * About this many round values between two ends.
 * @param {number} low
 * @param {number} high
 * @param {number} count
 * @returns {number[]}
 */
export function roundTicks(low, high, count) {
  const step = roundStep((high - low) / Math.max(1, count));
  if (!(step > 0) || !Number.isFinite(step)) return [low];
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const digits = Math.max(0, -Math.floor(Math.log10(step)) + 1);
  const ticks = [];
  for (let at = first; at <= last && ticks.length < 1000; at += 1) {
    const tick = at * step;
    ticks.push(digits <= 15 ? Number(tick.toFixed(digits)) : tick);
  }
  return ticks;
}

/** @param {number} step */
function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  const part = step / power;
  if (part <= 1) return power;
  if (part <= 2) return 2 * power;
  return part <= 5 ? 5 * power : 10 * power;
}

/**
 * @param {number} low
 * @param {number} high exponents of 10
 * @param {number} count
 */
function powerTicks(low, high, count) {
  const first = Math.ceil(low - 1e-9);
  const last = Math.floor(high + 1e-9);
  if (last - first < 1) return roundTicks(10 ** low, 10 ** high, count);
  const step = Math.max(1, Math.ceil((last - first) / count));
  const ticks = [];
  for (let at = first; at <= last; at += step) ticks.push(Number(`1e${at}`));
  return ticks;
}

/** @param {[number, number]} domain */
function widen([low, high]) {
  if (low < high) return [low, high];
  const by = Math.abs(low) > 0 ? Math.abs(low) / 2 : 1;
  return [low - by, high + by];
}

/**
 * Whether a logarithmic axis suits the values: all positive, over more than two decades.
 * @param {Iterable<unknown>} values
 */
export function spansDecades(values) {
  const extent = extentOf(values);
  return extent !== null && extent[0] > 0 && extent[1] / extent[0] > 100;
}
