/** Numbers, sizes and times as people read them, and the durations they write: as the terminal does. */

/**
 * A value as a cell of a table: five digits are enough.
 * @param {unknown} value
 * @returns {string}
 */
export function formatValue(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (typeof value !== "number") return JSON.stringify(value);
  return formatNumber(value);
}

/**
 * @param {number} value
 * @returns {string}
 */
export function formatNumber(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e5) return String(Number(value.toPrecision(5)));
  return value.toExponential(4).replace(/\.?0+e/, "e").replace("e+", "e");
}

/**
 * A count with separated thousands.
 * @param {number} value
 */
export function formatCount(value) {
  return value.toLocaleString("en-US");
}

/**
 * "1 run", "4 runs".
 * @param {number} value
 * @param {string} noun
 */
export function formatPlural(value, noun) {
  return value === 1 ? `1 ${noun}` : `${formatCount(value)} ${noun}s`;
}

/**
 * Bytes as 512 B, 1.5 KiB, 22 GiB.
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    unit += 1;
  }
  const shown = value < 10 && unit > 0 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(0);
  return `${shown} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** @param {number} part of 1 */
export function formatPercent(part) {
  return `${Math.round(part * 100)} %`;
}

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, "0");
}

/**
 * 0.4 s, 12 s, 3:05, 1:02:03, 2 d 03:04.
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours}:${two(minutes % 60)}:${two(whole % 60)}`;
  return `${Math.floor(hours / 24)} d ${two(hours % 24)}:${two(minutes % 60)}`;
}

/** @type {[string, number][]} */
const SPANS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
];

/**
 * How long ago, or in how long, roughly: now, 40 s ago, in 5 min.
 * @param {number} at seconds of the epoch
 * @param {number} now likewise
 */
export function formatRelative(at, now) {
  const seconds = Math.abs(now - at);
  if (seconds < 1) return "now";
  // Two of a unit before it is used: 90 min says more than 1 h.
  const [unit, size] = SPANS.find(([, each]) => seconds >= 2 * each) ?? ["s", 1];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return at <= now ? `${text} ago` : `in ${text}`;
}

/**
 * A moment in the reader's own time: 2026-11-16 16:29:48.
 * @param {number} at seconds of the epoch
 */
export function formatMoment(at) {
  const date = new Date(at * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @type {Record<string, number>} */
const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

/**
 * Seconds in 90s, 2h, 1d12h, 1.5h or HH:MM:SS; throws what is to be written instead.
 * @param {string} text
 * @returns {number}
 */
export function parseDuration(text) {
  const clock = /^(\d{1,9}):(\d{1,2}):(\d{2})$/.exec(text);
  let seconds = 0;
  if (clock) seconds = Number(clock[1]) * 3600 + Number(clock[2]) * 60 + Number(clock[3]);
  else if (/^(\d{1,9}(\.\d{1,9})?[smhdw])+$/.test(text)) {
    for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)([smhdw])/g)) {
      seconds += Number(number) * UNITS[unit];
    }
  } else if (/^\d+(\.\d+)?$/.test(text)) {
    throw new Error(`could be seconds, minutes or hours: write ${text}s, ${text}m or ${text}h`);
  }
  if (!(seconds > 0)) throw new Error("write 90s, 2h, 1d12h or HH:MM:SS");
  return seconds;
}
