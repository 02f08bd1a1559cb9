/**
 * All pages. Each is a module with `page(context)`, which returns its element. Its watches end when the page is
 * left.
 *
 * @typedef {object} Context
 * @property {Record<string, string>} parts what the pattern names, as `id` of `/jobs/:id`
 * @property {import('/lib/signal.js').Signal<URLSearchParams>} query behind the `?`, also when it changes
 *
 * @typedef {object} Page
 * @property {string} pattern
 * @property {string} title
 * @property {string} [nav] its word in the navigation, if it has one
 * @property {string} [key] the key that leads there, behind `g`
 * @property {() => Promise<{page: (context: Context) => HTMLElement}>} load
 */

/** @type {Page[]} */
export const PAGES = [
  {pattern: '/gpus', title: 'GPUs', nav: 'GPUs', key: 'g', load: () => import('/pages/gpus.js')},
  {pattern: '/timeline', title: 'Timeline', nav: 'Timeline', key: 'l', load: () => import('/pages/timeline.js')},
  {pattern: '/jobs', title: 'Jobs', nav: 'Jobs', key: 'j', load: () => import('/pages/jobs.js')},
  {pattern: '/jobs/:id', title: 'Job', load: () => import('/pages/job.js')},
  {pattern: '/submit', title: 'Submit', nav: 'Submit', key: 'n', load: () => import('/pages/submit.js')},
  {pattern: '/sweeps', title: 'Sweeps', nav: 'Sweeps', key: 's', load: () => import('/pages/sweeps.js')},
  {pattern: '/sweeps/:name', title: 'Sweep', load: () => import('/pages/sweep.js')},
];

/** The page without a path. */
export const HOME = '/gpus';
