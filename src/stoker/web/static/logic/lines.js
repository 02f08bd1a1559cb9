/**
 * Terminal emulation: converts the output of a job to the lines that a terminal would show, with `\r`, cursor
 * movements and colours. Other escape sequences are removed.
 */

import {applySgr} from '/logic/styles.js';

// Longer lines are cut, because the layout of very long lines blocks the page.
export const MOST_COLUMNS = 10_000;
const MOST_ROWS = 250_000;
const MOST_CHARACTERS = 64 * 1024 * 1024;
// Limit of upward cursor movements, like the height of a screen.
const SCREEN_ROWS = 500;
// A longer escape sequence is treated as text.
const LONGEST_SEQUENCE = 4096;

const ESC = 0x1b;

/**
 * A line with styles: `runs` are pairs of an end and the style of the text before it.
 * @typedef {object} StyledLine
 * @property {string} text
 * @property {number[]} runs
 */

/** @typedef {string | StyledLine} Line */

/**
 * The text of a line.
 * @param {Line} line
 * @returns {string}
 */
export function textOf(line) {
  return typeof line === 'string' ? line : line.text;
}

/**
 * The pieces of a line with one style each: [text, style].
 * @param {Line} line
 * @returns {[string, number][]}
 */
export function piecesOf(line) {
  if (typeof line === 'string') return line === '' ? [] : [[line, 0]];
  /** @type {[string, number][]} */
  const pieces = [];
  let start = 0;
  for (let at = 0; at < line.runs.length; at += 2) {
    if (line.runs[at] > start) pieces.push([line.text.slice(start, line.runs[at]), line.runs[at + 1]]);
    start = line.runs[at];
  }
  return pieces;
}

export class Lines {
  constructor() {
    /** @type {Line[]} */
    this.rows = [''];
    /** Number of rows dropped at the beginning. */
    this.dropped = 0;
    /** Number of characters cut from long lines. */
    this.cut = 0;
    this._row = 0;
    this._column = 0;
    this._look = 0;
    this._rest = '';
    this._characters = 0;
  }

  /** Number of lines; an empty last line does not count. */
  get length() {
    const last = this.rows.length - 1;
    return textOf(this.rows[last]) === '' ? last : last + 1;
  }

  /**
   * Add output; a chunk may end anywhere, even inside an escape sequence.
   * @param {string} text
   * @returns {number} the first row that may have changed
   */
  feed(text) {
    const data = this._rest + text;
    this._rest = '';
    let changed = this._row;
    let start = 0;
    let at = 0;
    while (at < data.length) {
      const code = data.charCodeAt(at);
      if ((code >= 0x20 && code < 0x7f) || code > 0x9f || code === 0x09) {
        at += 1;
        continue;
      }
      if (at > start) this._write(data.slice(start, at));
      if (code === ESC) {
        const end = endOfSequence(data, at);
        if (end < 0) {
          this._rest = data.slice(at);
          return this._settle(changed);
        }
        this._obey(data, at, end);
        at = end;
      } else {
        this._control(code);
        at += 1;
      }
      start = at;
      if (this._row < changed) changed = this._row;
    }
    if (at > start) this._write(data.slice(start, at));
    return this._settle(changed);
  }

  /** @param {number} changed */
  _settle(changed) {
    if (this.rows.length <= MOST_ROWS && this._characters <= MOST_CHARACTERS) return changed;
    const gone = Math.max(this.rows.length >> 1, 0);
    for (const row of this.rows.splice(0, gone)) this._characters -= textOf(row).length;
    this.dropped += gone;
    this._row = Math.max(0, this._row - gone);
    return 0;
  }

  /** @param {string} text without any control */
  _write(text) {
    const row = this.rows[this._row];
    if (typeof row !== 'string' && row.text.length === this._column) {
      if (this._column + text.length <= MOST_COLUMNS) {
        this._append(row, text);
        return;
      }
    }
    const room = MOST_COLUMNS - this._column;
    if (text.length > room) {
      this.cut += text.length - Math.max(0, room);
      text = text.slice(0, Math.max(0, room));
      if (text === '') return;
    }
    const line = this.rows[this._row];
    const before = textOf(line).length;
    const plain = typeof line === 'string' && this._look === 0;
    this.rows[this._row] = plain
      ? overwrite(line, this._column, text)
      : overwriteStyled(styled(line), this._column, text, this._look);
    this._characters += textOf(this.rows[this._row]).length - before;
    this._column += text.length;
  }

  /**
   * The most frequent case, so it changes the line in place.
   * @param {StyledLine} line
   * @param {string} text
   */
  _append(line, text) {
    line.text += text;
    this._column += text.length;
    this._characters += text.length;
    addRun(line.runs, this._column, this._look);
  }

  /** @param {number} code */
  _control(code) {
    if (code === 0x0a) {
      this._row += 1;
      this._column = 0;
      if (this._row === this.rows.length) this.rows.push('');
    } else if (code === 0x0d) {
      this._column = 0;
    } else if (code === 0x08) {
      this._column = Math.max(0, this._column - 1);
    }
  }

  /**
   * @param {string} data
   * @param {number} start where a whole sequence begins
   * @param {number} end where it ends
   */
  _obey(data, start, end) {
    if (data[start + 1] !== '[') return;
    const parameters = data.slice(start + 2, end - 1);
    const last = data[end - 1];
    if (last === 'm') {
      this._look = applySgr(this._look, parameters);
      return;
    }
    if (!/^[0-9;:]*$/.test(parameters)) return;
    const given = parameters === '' ? null : parseInt(parameters, 10);
    const count = Math.max(1, given ?? 1);
    const top = Math.max(0, this.rows.length - SCREEN_ROWS);
    if (last === 'A' || last === 'F') this._row = Math.max(top, this._row - count);
    else if (last === 'B' || last === 'E') {
      this._row = Math.min(this.rows.length - 1, this._row + count);
    } else if (last === 'C') this._column = Math.min(MOST_COLUMNS, this._column + count);
    else if (last === 'D') this._column = Math.max(0, this._column - count);
    else if (last === 'G') this._column = Math.min(MOST_COLUMNS, count - 1);
    else if (last === 'K') this._erase(given ?? 0);
    else if (last === 'J' && (given ?? 0) === 0) this._eraseBelow();
    if (last === 'E' || last === 'F') this._column = 0;
  }

  /** @param {number} which of the line: 0 what follows the cursor, 1 what precedes it, 2 all */
  _erase(which) {
    const line = this.rows[this._row];
    const length = textOf(line).length;
    if (which === 2) this.rows[this._row] = '';
    else if (which === 0) this.rows[this._row] = cutOff(line, this._column);
    else if (which === 1) {
      const blank = ' '.repeat(Math.min(length, this._column + 1));
      this.rows[this._row] = overwriteStyled(styled(line), 0, blank, 0);
    }
    this._characters += textOf(this.rows[this._row]).length - length;
  }

  _eraseBelow() {
    this._erase(0);
    for (const row of this.rows.splice(this._row + 1)) this._characters -= textOf(row).length;
  }
}

/**
 * End of the escape sequence at `at`; -1 if more output is needed.
 *
 * Titles and links can be long, but end with their line; otherwise one without an end would hide all later
 * output.
 * @param {string} data
 * @param {number} at
 */
function endOfSequence(data, at) {
  const kind = data[at + 1];
  if (kind === undefined) return -1;
  if (kind === '[') return endOfCsi(data, at + 2);
  if (']PX^_'.includes(kind)) return endOfString(data, at + 2);
  if (kind >= ' ' && kind <= '/') return at + 2 < data.length ? at + 3 : -1;
  return kind >= '0' && kind <= '~' ? at + 2 : at + 1;
}

/**
 * @param {string} data
 * @param {number} start
 */
function endOfCsi(data, start) {
  const most = Math.min(data.length, start + LONGEST_SEQUENCE);
  for (let at = start; at < most; at += 1) {
    const code = data.charCodeAt(at);
    if (code >= 0x40 && code <= 0x7e) return at + 1;
    if (code < 0x20 || code > 0x3f) return at;
  }
  return most < data.length ? most : -1;
}

/**
 * @param {string} data
 * @param {number} start
 */
function endOfString(data, start) {
  const most = Math.min(data.length, start + LONGEST_SEQUENCE);
  for (let at = start; at < most; at += 1) {
    const code = data.charCodeAt(at);
    if (code === 0x07 || code === 0x9c) return at + 1;
    if (code === 0x0a) return at;
    if (code === ESC) {
      if (at + 1 === data.length) return -1;
      return data[at + 1] === '\\' ? at + 2 : at;
    }
  }
  return most < data.length ? most : -1;
}

/**
 * @param {string} line
 * @param {number} column
 * @param {string} text
 */
function overwrite(line, column, text) {
  if (column === line.length) return line + text;
  if (column > line.length) return line.padEnd(column) + text;
  return line.slice(0, column) + text + line.slice(column + text.length);
}

/**
 * @param {Line} line
 * @returns {StyledLine}
 */
function styled(line) {
  if (typeof line !== 'string') return line;
  return {text: line, runs: line === '' ? [] : [line.length, 0]};
}

/**
 * @param {StyledLine} line
 * @param {number} column
 * @param {string} text
 * @param {number} look
 * @returns {StyledLine}
 */
function overwriteStyled(line, column, text, look) {
  const end = column + text.length;
  /** @type {number[]} */
  const runs = [];
  let start = 0;
  for (let at = 0; at < line.runs.length && start < column; at += 2) {
    addRun(runs, Math.min(line.runs[at], column), line.runs[at + 1]);
    start = line.runs[at];
  }
  if (line.text.length < column) addRun(runs, column, 0);
  addRun(runs, end, look);
  for (let at = 0; at < line.runs.length; at += 2) {
    if (line.runs[at] > end) addRun(runs, line.runs[at], line.runs[at + 1]);
  }
  return {text: overwrite(line.text, column, text), runs};
}

/**
 * @param {number[]} runs
 * @param {number} end
 * @param {number} look
 */
function addRun(runs, end, look) {
  if (runs.length > 0 && runs[runs.length - 1] === look) runs[runs.length - 2] = end;
  else runs.push(end, look);
}

/**
 * @param {Line} line
 * @param {number} column
 * @returns {Line}
 */
function cutOff(line, column) {
  if (typeof line === 'string') return line.slice(0, column);
  /** @type {number[]} */
  const runs = [];
  let start = 0;
  for (let at = 0; at < line.runs.length && start < column; at += 2) {
    addRun(runs, Math.min(line.runs[at], column), line.runs[at + 1]);
    start = line.runs[at];
  }
  return {text: line.text.slice(0, column), runs};
}
