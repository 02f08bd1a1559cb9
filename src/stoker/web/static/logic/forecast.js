/** Words for a forecast of jobs that are not in the queue. */

import {about, absolute} from '/logic/format.js';

/**
 * @typedef {object} Prediction
 * @property {number | null} run_s
 * @property {'given' | 'kind' | 'program' | 'any' | null} like
 * @property {number | null} start_at
 * @property {number | null} end_at
 * @property {{project: string | null, delay_s: number}[]} delays
 * @property {any[]} planned
 * @property {string | null} paused
 * @property {string | null} problem
 */

const SOON_S = 2;
const LEAST_DELAY_S = 10;
const DAY_S = 20 * 3600;
const BASES = {given: '', kind: ', as runs like it took', program: ', as runs of this program took', any: ', as other jobs took; such a job has not run yet'};

/**
 * `starts in ~4m, done ~22:40, delays project vision by 9m`.
 * @param {Prediction} found
 * @param {number} now
 * @returns {string}
 */
export function foretell({start_at: start, end_at: end, delays, paused, problem}, now) {
  if (start === null || end === null) return problem ?? '';
  const [day = '', time = ''] = absolute(end).split(' ');
  const done = `${end - now > DAY_S ? `${day.slice(5)} ` : ''}${time.slice(0, 5)}`;
  const late = delays.filter(({delay_s: seconds}) => seconds >= LEAST_DELAY_S);
  const told = late.slice(0, 3).map(({project, delay_s: seconds}) => `delays ${project === null ? 'jobs without a project' : `project ${project}`} by ${about(seconds)}`);
  const begins = start - now < SOON_S ? 'starts now' : `starts in ~${about(start - now)}`;
  return [paused === null ? begins : `${paused}; once it is resumed, ${begins}`, `done ~${done}`, ...told, ...(late.length > 3 ? [`and ${late.length - 3} more projects`] : [])].join(', ');
}

/**
 * How long a run is taken to need, and why.
 * @param {Prediction} found
 */
export function basis({run_s: seconds, like}) {
  return seconds === null || like === null ? '' : `${about(seconds)} each${BASES[like]}`;
}
