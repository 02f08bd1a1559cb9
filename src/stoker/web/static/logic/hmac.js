/**
 * SHA-256 (FIPS 180-4) and HMAC (RFC 2104). The browser's own `crypto.subtle` exists only in secure contexts,
 * and `http://lab1:20000` is not one.
 */

const BLOCK = 64;
const PRIMES = firstPrimes(64);
/** The first 32 bits of the fractions of the cube roots of the first primes. */
const ROUND = Uint32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
/** The same of the square roots of the first eight primes. */
const START = Uint32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));

/** @param {number} count */
function firstPrimes(count) {
  /** @type {number[]} */
  const primes = [];
  for (let each = 2; primes.length < count; each += 1) {
    if (primes.every((prime) => each % prime)) primes.push(each);
  }
  return primes;
}

/** @param {number} root */
function fraction(root) {
  return Math.floor((root - Math.floor(root)) * 2 ** 32);
}

/**
 * The SHA-256 digest of some bytes.
 * @param {Uint8Array} bytes
 * @returns {Uint8Array}
 */
export function sha256(bytes) {
  const state = START.slice();
  const words = new Uint32Array(64);
  const whole = bytes.length - (bytes.length % BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < whole; at += BLOCK) mix(state, words, view, at);
  const end = pad(bytes.subarray(whole), bytes.length);
  for (let at = 0; at < end.byteLength; at += BLOCK) mix(state, words, end, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, index) => digest.setUint32(4 * index, word));
  return new Uint8Array(digest.buffer);
}

/**
 * The last bytes with padding and the total length in bits.
 * @param {Uint8Array} rest
 * @param {number} length
 */
function pad(rest, length) {
  const bytes = new Uint8Array(rest.length < BLOCK - 8 ? BLOCK : 2 * BLOCK);
  bytes.set(rest);
  bytes[rest.length] = 0x80;
  const view = new DataView(bytes.buffer);
  view.setUint32(bytes.length - 8, Math.floor(length / 2 ** 29));
  view.setUint32(bytes.length - 4, (length * 8) >>> 0);
  return view;
}

/**
 * Add one block to the state.
 * @param {Uint32Array} state
 * @param {Uint32Array} words
 * @param {DataView} view
 * @param {number} at
 */
function mix(state, words, view, at) {
  for (let index = 0; index < 16; index += 1) words[index] = view.getUint32(at + 4 * index);
  for (let index = 16; index < 64; index += 1) {
    const near = word(words, index - 2);
    const far = word(words, index - 15);
    const low = (turn(far, 7) ^ turn(far, 18) ^ (far >>> 3)) >>> 0;
    const high = (turn(near, 17) ^ turn(near, 19) ^ (near >>> 10)) >>> 0;
    words[index] = word(words, index - 16) + low + word(words, index - 7) + high;
  }
  let [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = state;
  for (let index = 0; index < 64; index += 1) {
    const choice = (e & f) ^ (~e & g);
    const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choice + word(ROUND, index) + word(words, index)) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((value, index) => (state[index] = word(state, index) + value));
}

/**
 * @param {Uint32Array} words
 * @param {number} index
 */
function word(words, index) {
  return words[index] ?? 0;
}

/**
 * @param {number} value
 * @param {number} bits
 */
function turn(value, bits) {
  return (value >>> bits) | (value << (32 - bits));
}

/**
 * HMAC-SHA-256.
 * @param {Uint8Array} key
 * @param {Uint8Array} message
 * @returns {Uint8Array}
 */
export function hmac(key, message) {
  const block = new Uint8Array(BLOCK);
  block.set(key.length > BLOCK ? sha256(key) : key);
  const inner = sha256(join(block.map((byte) => byte ^ 0x36), message));
  return sha256(join(block.map((byte) => byte ^ 0x5c), inner));
}

/**
 * @param {Uint8Array} first
 * @param {Uint8Array} second
 */
function join(first, second) {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

/**
 * Bytes as hexadecimal digits.
 * @param {Uint8Array} bytes
 */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Hexadecimal digits as bytes.
 * @param {string} text
 */
export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}
