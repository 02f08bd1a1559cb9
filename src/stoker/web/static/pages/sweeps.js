/** sweeps. */

import {h} from '/lib/dom.js';

/** @param {import('/pages/index.js').Context} _context */
export function page(_context) {
  return h('section', null, h('h1', null, 'sweeps'));
}
