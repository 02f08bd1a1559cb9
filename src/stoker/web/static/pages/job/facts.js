/** Details of a job: command, placement, options, environment. */

import {h} from '/lib/dom.js';
import {computed} from '/lib/signal.js';
import {bothWays} from '/lib/clock.js';
import {link} from '/lib/router.js';
import {duration, text} from '/logic/format.js';

/** @typedef {string | {b64: string}} Bytes */
/**
 * @typedef {object} Attempt
 * @property {number} number
 * @property {string} state
 * @property {string | null} slots
 * @property {number | null} pid
 * @property {number | null} started_at
 * @property {number | null} ended_at
 * @property {number | null} exit_code
 * @property {number | null} signal
 * @property {string | null} reason
 * @property {number | null} cpu_s
 * @property {number | null} max_rss_bytes
 * @property {Bytes | null} log
 * @property {{mem_peak_bytes: number | null, sm_mean_pct: number | null} | null} gpu_use
 */
/**
 * @typedef {object} Detail
 * @property {number} id
 * @property {string | null} name
 * @property {string | null} project
 * @property {string} state
 * @property {string} command
 * @property {number} gpus
 * @property {number} priority
 * @property {number} attempt
 * @property {string | null} slots
 * @property {string | null} reason
 * @property {number | null} submitted_at
 * @property {number | null} ended_at
 * @property {number | null} begin_at
 * @property {number | null} ends_at
 * @property {import('/lib/badge.js').Mark | null} mark
 * @property {Bytes[] | null} argv
 * @property {Bytes | null} line
 * @property {boolean} script
 * @property {Bytes} cwd
 * @property {Bytes | null} log where the user wants the output, with placeholders
 * @property {Record<string, string>} env
 * @property {number | null} timeout_s
 * @property {number} retries
 * @property {{name: string, cwd: Bytes} | null} sweep
 * @property {string | null} last_line
 * @property {string[]} nodes
 * @property {string | null} on
 * @property {Record<string, string>} node_labels
 * @property {{commit: string, dirty: boolean} | null} git
 * @property {string | null} snapshot
 * @property {string | null} user
 * @property {string | null} host
 * @property {{id: number, state: string | null, any: boolean}[]} needs
 * @property {Attempt[]} attempts
 */

/** @param {import('/lib/signal.js').Signal<Detail>} job */
export function facts(job) {
  // Unchanged parts are not redrawn, so that a text selection stays.
  const shown = computed(() => JSON.stringify([job.value.command, job.value.priority, job.value.slots, job.value.gpus, job.value.needs, job.value.begin_at, job.value.timeout_s, job.value.retries, job.value.project, where(job.value), pidOf(job.value), outputOf(job.value)]));
  return h('div', null, () => shown.value && describe(job.peek()));
}

/** @param {Detail} job */
function describe(job) {
  const command = job.line === null ? job.command : text(job.line);
  return [
    h('pre', {class: 'command', tabindex: 0, 'aria-label': 'Command'}, command),
    h(
      'dl',
      {class: 'facts'},
      row('Folder', h('code', null, text(job.cwd))),
      row('Output', outputOf(job) && h('code', null, outputOf(job))),
      row('Project', job.project),
      row('GPU', job.slots ?? (job.gpus ? `needs ${job.gpus}` : 'none')),
      row('Where', where(job)),
      row('Process', pidOf(job)),
      row('Priority', job.priority),
      row('Retries', job.retries || null),
      row('Time limit', job.timeout_s && duration(job.timeout_s)),
      row('Not before', job.begin_at && bothWays(job.begin_at)),
      row('After', job.needs.length ? needs(job.needs) : null),
      row('Code', job.git && `${job.git.commit.slice(0, 12)}${job.git.dirty ? ' with changes' : ''}`),
      row('Snapshot', job.snapshot),
      row('Submitted by', job.user && `${job.user} on ${job.host ?? '?'}`),
    ),
    environment(job.env),
  ];
}

/**
 * The nodes and GPU models that it may run on, in the notation of the command line.
 *
 * @param {Detail} job
 */
function where(job) {
  const words = job.nodes.length ? [`--node ${job.nodes.join(',')}`] : [];
  if (job.on) words.push(`--on ${job.on}`);
  for (const [name, value] of Object.entries(job.node_labels)) words.push(`--node-label ${name}=${value}`);
  return words.join(' ') || null;
}

/**
 * The log file of the last attempt, or of the first one if the user has named it.
 *
 * @param {Detail} job
 */
function outputOf(job) {
  const file = job.attempts.at(-1)?.log ?? job.log;
  return file === null || file === undefined ? null : text(file);
}

/** @param {Detail} job */
function pidOf(job) {
  const last = job.attempts.at(-1);
  return last && last.ended_at === null ? last.pid : null;
}

/**
 * @param {string} title
 * @param {import('/lib/dom.js').Child} value
 */
function row(title, value) {
  return value === null || value === undefined || value === false ? null : [h('dt', null, title), h('dd', null, value)];
}

/** @param {Detail['needs']} all */
function needs(all) {
  return all.map(({id, state, any}) => [h('a', {href: link(`/jobs/${id}`)}, `job ${id}`), ` (${any ? 'its end' : 'its success'}; ${state ?? 'removed'}) `]);
}

/** @param {Record<string, string>} env */
function environment(env) {
  const names = Object.keys(env);
  return h(
    'details',
    null,
    h('summary', null, `Environment (${names.length}; secrets are hidden)`),
    h('pre', {tabindex: 0, 'aria-label': 'Environment'}, names.map((name) => `${name}=${env[name]}`).join('\n')),
  );
}
