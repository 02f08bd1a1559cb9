/** Words for nodes of the cluster. */

/** @typedef {{name: string, labels: Record<string, string>, away: string | null, drained: string | null, lacks: string | null, is_head: boolean}} Node */

/**
 * Why no job starts on a node; empty if jobs do.
 * @param {Node} node
 */
export function describeNode({away, drained, lacks}) {
  if (away) return `away: ${away}`;
  if (drained !== null) return drained ? `drained: ${drained}` : 'drained';
  return lacks ?? '';
}
