/**
 * Text styles of escape sequences: colours and weights.
 *
 * A style is a small number, so that a line can have thousands of them; `lookOf` returns its meaning.
 */

/**
 * A colour is 0-255 of a terminal's palette, or `#rrggbb`.
 * @typedef {object} Look
 * @property {number | string | null} fg
 * @property {number | string | null} bg
 * @property {boolean} bold
 * @property {boolean} dim
 * @property {boolean} italic
 * @property {boolean} underline
 * @property {boolean} inverse
 * @property {boolean} strike
 */

/** @type {Look} */
const PLAIN = {
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
  strike: false,
};

// Limit for hostile logs: further colours are ignored.
const MOST_LOOKS = 4096;

/** @type {Look[]} */
const looks = [PLAIN];
const numbers = new Map([[JSON.stringify(PLAIN), 0]]);
/** @type {Map<string, number>[]} for each look, what sequences make of it */
const steps = [new Map()];

/**
 * The meaning of a style number.
 * @param {number} number
 * @returns {Look}
 */
export function lookOf(number) {
  return looks[number] ?? PLAIN;
}

/**
 * The style after `ESC [ parameters m`.
 * @param {number} number the look before it
 * @param {string} parameters
 * @returns {number}
 */
export function applySgr(number, parameters) {
  // Cached, because a log repeats few sequences thousands of times.
  const known = steps[number].get(parameters);
  if (known !== undefined) return known;
  const found = readSgr(number, parameters);
  if (steps[number].size < MOST_LOOKS) steps[number].set(parameters, found);
  return found;
}

/**
 * @param {number} number
 * @param {string} parameters
 */
function readSgr(number, parameters) {
  if (!/^[0-9;:]*$/.test(parameters)) return number;
  const look = {...lookOf(number)};
  const codes = parameters.split(/[;:]/).map((word) => (word === '' ? 0 : Number(word)));
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 38 || code === 48) {
      const [colour, used] = readColour(codes, at + 1);
      look[code === 38 ? 'fg' : 'bg'] = colour;
      at += used;
    } else {
      applyCode(look, code);
    }
  }
  return intern(look);
}

/**
 * @param {Look} look changed in place
 * @param {number} code
 */
function applyCode(look, code) {
  if (code === 0) Object.assign(look, PLAIN);
  else if (code === 1) look.bold = true;
  else if (code === 2) look.dim = true;
  else if (code === 3) look.italic = true;
  else if (code === 4) look.underline = true;
  else if (code === 7) look.inverse = true;
  else if (code === 9) look.strike = true;
  else if (code === 22) look.bold = look.dim = false;
  else if (code === 23) look.italic = false;
  else if (code === 24) look.underline = false;
  else if (code === 27) look.inverse = false;
  else if (code === 29) look.strike = false;
  else if (code >= 30 && code <= 37) look.fg = code - 30;
  else if (code === 39) look.fg = null;
  else if (code >= 40 && code <= 47) look.bg = code - 40;
  else if (code === 49) look.bg = null;
  else if (code >= 90 && code <= 97) look.fg = code - 82;
  else if (code >= 100 && code <= 107) look.bg = code - 92;
}

/**
 * The colour after a 38 or 48, and the number of codes it took.
 * @param {number[]} codes
 * @param {number} at
 * @returns {[number | string | null, number]}
 */
function readColour(codes, at) {
  if (codes[at] === 5) {
    const colour = codes[at + 1];
    return [isByte(colour) ? colour : null, 2];
  }
  if (codes[at] === 2) {
    const parts = codes.slice(at + 1, at + 4);
    const known = parts.length === 3 && parts.every(isByte);
    return [known ? `#${parts.map(toHex).join('')}` : null, 4];
  }
  return [null, codes.length];
}

/** @param {number} value */
function isByte(value) {
  return Number.isInteger(value) && value >= 0 && value <= 255;
}

/** @param {number} value */
function toHex(value) {
  return value.toString(16).padStart(2, '0');
}

/** @param {Look} look */
function intern(look) {
  const key = JSON.stringify(look);
  const known = numbers.get(key);
  if (known !== undefined) return known;
  if (looks.length >= MOST_LOOKS) return 0;
  looks.push(look);
  steps.push(new Map());
  numbers.set(key, looks.length - 1);
  return looks.length - 1;
}

const CUBE = [0, 95, 135, 175, 215, 255];

/**
 * A colour of the palette above the first 16; the page's theme defines those.
 * @param {number} colour 16-255
 * @returns {string} `#rrggbb`
 */
export function paletteColour(colour) {
  if (colour >= 232) return `#${toHex(8 + 10 * (colour - 232)).repeat(3)}`;
  const place = colour - 16;
  const parts = [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6];
  return `#${parts.map((part) => toHex(CUBE[part])).join('')}`;
}
