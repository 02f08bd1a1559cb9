/** What is where in the memory of a GPU: blocks of jobs, of other processes, and what is kept. */

/**
 * @typedef {object} Tenant
 * @property {number} job
 * @property {string | null} name
 * @property {string | null} project
 * @property {number | null} mem_used_bytes
 * @property {number} mem_reserved_bytes
 * @property {number | null} utilisation_pct
 */
/**
 * A part of the memory, from one share of it to another; `filled` is the share of the part that is in use.
 * @typedef {{kind: 'job' | 'other' | 'kept', job: number | null, from: number, to: number, filled: number}} Block
 */

/**
 * @param {object} gpu
 * @param {number} gpu.mem_total_bytes
 * @param {readonly Tenant[]} gpu.tenants
 * @param {readonly {mem_bytes: number | null}[]} gpu.users
 * @param {number | null} gpu.kept_for
 * @returns {Block[]} jobs first, without gaps between them
 */
export function packBlocks({mem_total_bytes: total, tenants, users, kept_for: kept}) {
  if (!(total > 0)) return [];
  const others = users.reduce((sum, {mem_bytes: bytes}) => sum + (bytes ?? 0), 0);
  const used = tenants.reduce((sum, {mem_used_bytes: bytes}) => sum + (bytes ?? 0), 0);
  // What others use is not there for jobs, whatever is set aside for them.
  let spare = Math.max(0, total - others - used);
  let at = 0;
  /** @type {Block[]} */
  const blocks = [];
  /** @param {Block['kind']} kind @param {number | null} job @param {number} bytes @param {number} filled */
  const add = (kind, job, bytes, filled) => {
    const to = Math.min(1, at + bytes / total);
    if (to > at) blocks.push({kind, job, from: at, to, filled: bytes > 0 ? Math.min(1, filled / bytes) : 0});
    at = to;
  };
  for (const {job, mem_used_bytes: known, mem_reserved_bytes: aside} of tenants) {
    const own = known ?? 0;
    const more = Math.min(spare, Math.max(0, aside - own));
    spare -= more;
    add('job', job, own + more, own);
  }
  add('other', null, others, others);
  if (kept !== null && tenants.length === 0) add('kept', kept, total - at * total, 0);
  return blocks;
}

const COLOURS = 8;

/**
 * Number of the colour of a family of jobs: runs of one sweep, or jobs whose names differ in their numbers only.
 * @param {string | null} name
 * @param {string | null} project
 */
export function familyColour(name, project) {
  const family = `${project ?? ''} ${(name ?? '').replace(/[-_ ]?\d+$/, '')}`;
  let hash = 2166136261;
  for (const char of family) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 16777619) >>> 0;
  return ((hash ^ (hash >>> 13)) >>> 0) % COLOURS;
}
