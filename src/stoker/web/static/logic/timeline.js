/** Rows of a timeline: which job was, is or will be on which GPU, and in which lane of its row it is drawn. */

/**
 * @typedef {object} Item
 * @property {number} job
 * @property {number | null} attempt null for what is expected
 * @property {string | null} name
 * @property {string | null} project
 * @property {string} state `planned` for what is expected
 * @property {number} from seconds of the Unix epoch
 * @property {number} to
 * @property {number | null} surely until when it is no forecast: now for what runs, null for what is expected
 */
/** @typedef {{label: string, lanes: number, items: (Item & {lane: number})[]}} Row */

/**
 * The GPUs of a slot: `h1/0+1` is both `h1/0` and `h1/1`.
 * @param {string} slot
 * @returns {string[]}
 */
export function gpusOf(slot) {
  const at = slot.lastIndexOf('/') + 1;
  return slot.slice(at).split('+').map((gpu) => slot.slice(0, at) + gpu);
}

/**
 * @param {readonly any[]} attempts as GET /v1/timeline has them
 * @param {readonly any[]} planned
 * @param {number} now
 * @param {readonly string[]} labels of GPUs that have a row in any case
 * @returns {Row[]}
 */
export function timelineRows(attempts, planned, now, labels) {
  /** @type {Map<string, Item[]>} */
  const rows = new Map(labels.map((label) => [label, []]));
  /** @param {readonly string[]} slots @param {Item} item */
  const put = (slots, item) => {
    for (const label of slots.flatMap(gpusOf)) rows.set(label, [...(rows.get(label) ?? []), item]);
  };
  for (const {job, attempt, name, project, state, slots, started_at: from, ended_at: end, expected_end_at: expected} of attempts) {
    put(slots, {job, attempt, name, project, state, from, to: end ?? Math.max(now, expected ?? now), surely: end ?? now});
  }
  for (const {job, name, project, slots, start_at: from, end_at: to} of planned) {
    put(slots, {job, attempt: null, name, project, state: 'planned', from: Math.max(from, now), to: Math.max(to, now), surely: null});
  }
  return [...rows].map(([label, items]) => inLanes(label, items));
}

/**
 * Put items that overlap into lanes of their own.
 * @param {string} label
 * @param {readonly Item[]} items
 * @returns {Row}
 */
function inLanes(label, items) {
  /** @type {number[]} */
  const busyUntil = [];
  const placed = [...items].sort((one, other) => one.from - other.from).map((item) => {
    let lane = busyUntil.findIndex((until) => until <= item.from + 0.05);
    if (lane < 0) lane = busyUntil.length;
    busyUntil[lane] = item.to;
    return {...item, lane};
  });
  return {label, lanes: Math.max(1, busyUntil.length), items: placed};
}

/**
 * Round times for the axis, about this many.
 * @param {number} from
 * @param {number} to
 * @param {number} count
 * @returns {{ticks: number[], step: number}}
 */
export function timeTicks(from, to, count) {
  const steps = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800];
  const wanted = (to - from) / Math.max(1, count);
  const step = steps.find((each) => each >= wanted) ?? 604800;
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((from - zone) / step) * step + zone;
  const ticks = [];
  for (let at = first; at <= to && ticks.length < 100; at += step) ticks.push(at);
  return {ticks, step};
}
