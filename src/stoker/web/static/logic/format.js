/** Formatting of numbers, sizes and times. Uses no DOM and no clock: `now` is an argument. */

const UNITS = /** @type {const} */ ([['d', 86400], ['h', 3600], ['m', 60], ['s', 1]]);

/**
 * A length of time in its two largest units: `2h 05m`, `45s`.
 * @param {number} seconds
 */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const at = UNITS.findIndex(([, size]) => whole >= size);
  if (at < 0) return seconds > 0 && seconds < 1 ? `${seconds.toFixed(1)}s` : '0s';
  const [unit, size] = UNITS[at] ?? UNITS[3];
  const next = UNITS[at + 1];
  if (!next) return `${whole}s`;
  const rest = Math.floor((whole % size) / next[1]);
  return `${Math.floor(whole / size)}${unit} ${String(rest).padStart(2, '0')}${next[0]}`;
}

/**
 * An estimated length of time, without false precision: `2h 05m`, `18m`, `20s`.
 * @param {number} seconds
 */
export function about(seconds) {
  if (seconds >= 3600) return duration(seconds);
  return seconds >= 60 ? `${Math.round(seconds / 60)}m` : `${Math.max(1, Math.round(seconds))}s`;
}

/**
 * A time relative to another: `3m 10s ago`, `in 2h 00m`.
 * @param {number} at seconds of the Unix epoch
 * @param {number} now
 */
export function relative(at, now) {
  const seconds = now - at;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

/**
 * A time in the local format.
 * @param {number} at seconds of the Unix epoch
 */
export function absolute(at) {
  const date = new Date(at * 1000);
  /** @param {number} number */
  const two = (number) => String(number).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/**
 * An amount of memory: `512 MiB`, `23.5 GiB`.
 * @param {number | null | undefined} bytes
 */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return '?';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let [amount, unit] = [bytes, 0];
  while (amount >= 1024 && unit < units.length - 1) [amount, unit] = [amount / 1024, unit + 1];
  return `${unit && amount < 100 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

/**
 * A whole number with thousands separators.
 * @param {number} number
 */
export function count(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

/**
 * Bytes of the wire (text, or base64 if they are not text) as text.
 * @param {string | {b64: string} | null | undefined} value
 */
export function text(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  const bytes = Uint8Array.from(atob(value.b64), (each) => each.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

/**
 * `1 run`, `4 runs`.
 * @param {number} number
 * @param {string} noun
 */
export function plural(number, noun) {
  return number === 1 ? `1 ${noun}` : `${count(number)} ${noun}s`;
}

/**
 * A table value with five digits.
 * @param {unknown} value
 * @returns {string}
 */
export function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return decimal(value);
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * A number in at most five digits: `0.001`, `1e-5`, `123.46`.
 * @param {number} value
 */
export function decimal(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  const amount = Math.abs(value);
  if (amount >= 1e-4 && amount < 1e5) return String(Number(value.toPrecision(5)));
  return value.toExponential(4).replace(/\.?0+e/, 'e').replace('e+', 'e');
}

const SECONDS = /** @type {Record<string, number>} */ ({s: 1, m: 60, h: 3600, d: 86400, w: 604800});

/**
 * Seconds in `90s`, `2h`, `1d12h`, `1.5h` or `HH:MM:SS`; throws what to write instead.
 * @param {string} written
 * @returns {number}
 */
export function parseDuration(written) {
  const clock = /^(\d{1,9}):(\d{1,2}):(\d{2})$/.exec(written);
  let seconds = 0;
  if (clock) seconds = Number(clock[1]) * 3600 + Number(clock[2]) * 60 + Number(clock[3]);
  else if (/^(\d{1,9}(\.\d{1,9})?[smhdw])+$/.test(written)) {
    for (const [, number = '', unit = ''] of written.matchAll(/(\d+(?:\.\d+)?)([smhdw])/g)) {
      seconds += Number(number) * (SECONDS[unit] ?? 0);
    }
  } else if (/^\d+(\.\d+)?$/.test(written)) {
    throw new Error(`could be seconds, minutes or hours: write ${written}s, ${written}m or ${written}h`);
  }
  if (!(seconds > 0)) throw new Error('write 90s, 2h, 1d12h or HH:MM:SS');
  return seconds;
}

const POWERS = ['', 'K', 'M', 'G', 'T'];

/**
 * Bytes in `10G`, `1.5GiB` or `800M`; throws what to write instead.
 * @param {string} written
 * @returns {number}
 */
export function parseSize(written) {
  const found = /^(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?)(?:i?B)?$/i.exec(written);
  const bytes = found ? Math.floor(Number(found[1]) * 1024 ** POWERS.indexOf((found[2] ?? '').toUpperCase())) : 0;
  if (bytes < 2 ** 20) throw new Error('write 10G, 1.5G or 800M');
  return bytes;
}
