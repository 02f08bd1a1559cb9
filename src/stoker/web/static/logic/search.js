/** Text search in the lines of a log, also in lines that are added later. */

import {textOf} from '/logic/lines.js';

/** @typedef {import('/logic/lines.js').Lines} Lines */

export class Search {
  /** @param {Lines} lines */
  constructor(lines) {
    this._lines = lines;
    this.words = '';
    /** @type {number[]} rows with the words in them */
    this.rows = [];
    this._at = -1;
  }

  /** The row of the present match; null if there is none. */
  get row() {
    return this.rows[this._at] ?? null;
  }

  /**
   * Search for another text, starting at a row.
   * @param {string} words
   * @param {number} from
   * @returns {number | null} the row of the first match
   */
  begin(words, from) {
    this.words = words.toLowerCase();
    this.rows = [];
    this._scan(0);
    const next = this.rows.findIndex((row) => row >= from);
    this._at = this.rows.length === 0 ? -1 : Math.max(0, next);
    return this.row;
  }

  /**
   * Go to the next or previous match; wraps around.
   * @param {number} by
   * @returns {number | null}
   */
  step(by) {
    const total = this.rows.length;
    if (total > 0) this._at = (this._at + by + total) % total;
    return this.row;
  }

  /**
   * Lines have changed from this row on.
   * @param {number} from
   */
  extend(from) {
    if (this.words === '') return;
    while ((this.rows[this.rows.length - 1] ?? -1) >= from) this.rows.pop();
    this._scan(from);
    if (this._at >= this.rows.length) this._at = this.rows.length - 1;
    if (this._at < 0 && this.rows.length > 0) this._at = 0;
  }

  /** The result: `3 of 12`. */
  describe() {
    if (this.words === '') return '';
    return this.rows.length === 0 ? 'not found' : `${this._at + 1} of ${this.rows.length}`;
  }

  /** @param {number} from */
  _scan(from) {
    if (this.words === '') return;
    const {rows} = this._lines;
    for (let index = from; index < rows.length; index += 1) {
      if (textOf(rows[index] ?? '').toLowerCase().includes(this.words)) this.rows.push(index);
    }
  }
}

/**
 * Pieces of a line, split at matches: [text, style, whether it is a match].
 * @param {[string, number][]} pieces
 * @param {string} words in lower case
 * @returns {[string, number, boolean][]}
 */
export function markPieces(pieces, words) {
  if (words === '') return pieces.map(([text, look]) => [text, look, false]);
  const whole = pieces.map(([text]) => text).join('').toLowerCase();
  /** @type {[number, number][]} */
  const spans = [];
  for (let at = whole.indexOf(words); at >= 0; at = whole.indexOf(words, at + words.length)) {
    spans.push([at, at + words.length]);
  }
  /** @type {[string, number, boolean][]} */
  const marked = [];
  let start = 0;
  for (const [text, look] of pieces) {
    const end = start + text.length;
    let at = start;
    for (const [from, to] of spans) {
      if (to <= at || from >= end) continue;
      if (from > at) marked.push([text.slice(at - start, from - start), look, false]);
      const [first, last] = [Math.max(from, at), Math.min(to, end)];
      marked.push([text.slice(first - start, last - start), look, true]);
      at = last;
    }
    if (at < end) marked.push([text.slice(at - start), look, false]);
    start = end;
  }
  return marked;
}
