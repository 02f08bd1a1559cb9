/** Forms that show errors beside their fields. */

import {h} from '/lib/dom.js';
import {RefusedError} from '/lib/connection.js';
import {signal} from '/lib/signal.js';

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */

/**
 * @typedef {object} FieldOptions
 * @property {string} [hint]
 * @property {string} [tag] input (default), textarea or select
 * @property {Record<string, any>} [props]
 * @property {any[]} [children] options of a select
 * @property {boolean} [wide]
 */

export class Form {
  /** @param {string} prefix of ids, so that several forms can stand on one page */
  constructor(prefix) {
    this._prefix = prefix;
    /** @type {Map<string, Control>} */
    this._controls = new Map();
    this.errors = signal(/** @type {Record<string, string>} */ ({}));
  }

  /**
   * A labelled field with a place for its error.
   * @param {string} name as the request calls it
   * @param {string | (() => string)} label
   * @param {FieldOptions} [options]
   * @returns {HTMLElement}
   */
  field(name, label, {hint, tag = 'input', props = {}, children = [], wide = false} = {}) {
    const id = `${this._prefix}-${name}`;
    const described = [hint && `${id}-hint`, `${id}-error`].filter(Boolean).join(' ');
    const control = h(tag, {id, name, 'aria-describedby': described, 'aria-invalid': () => (this.errors.value[name] ? 'true' : null), ...props}, ...children);
    this._controls.set(name, control);
    return h(
      'div',
      {class: wide ? 'field wide' : 'field'},
      h('label', {for: id}, label),
      control,
      hint && h('p', {class: 'hint', id: `${id}-hint`}, hint),
      h('p', {class: 'error', id: `${id}-error`, role: 'alert'}, () => this.errors.value[name] ?? ''),
    );
  }

  /**
   * The text of a field, without blanks around it.
   * @param {string} name
   * @returns {string}
   */
  text(name) {
    return this._controls.get(name)?.value.trim() ?? '';
  }

  /** @param {string} name */
  isChecked(name) {
    const control = this._controls.get(name);
    return control instanceof HTMLInputElement && control.checked;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  fill(name, value) {
    const control = this._controls.get(name);
    if (control) control.value = value;
  }

  /**
   * The parsed text of a field; undefined if it is empty. The parser throws the error.
   * @template T
   * @param {string} name
   * @param {(text: string) => T} read
   * @returns {T | undefined}
   */
  read(name, read) {
    const written = this.text(name);
    if (written === '') return undefined;
    try {
      return read(written);
    } catch (error) {
      this.fail(name, error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  /**
   * @param {string} name
   * @param {string} message
   */
  fail(name, message) {
    this.errors.value = {...this.errors.peek(), [name]: message};
  }

  clear() {
    this.errors.value = {};
  }

  /** Whether there is no error; otherwise the first field with one gets the focus. */
  check() {
    const [first] = Object.keys(this.errors.peek());
    if (first === undefined) return true;
    this._controls.get(first)?.focus();
    return false;
  }

  /**
   * Show an error beside its field, or above the form.
   * @param {unknown} error
   */
  refuse(error) {
    if (!(error instanceof RefusedError)) throw error;
    const {field, detail} = /** @type {{field?: string | null, detail: string}} */ (error.problem);
    this.fail(field && this._controls.has(field) ? field : 'form', detail);
  }

  /** The error that belongs to no field. */
  general() {
    return h('p', {class: 'error', role: 'alert'}, () => this.errors.value.form ?? '');
  }
}

/**
 * Parse a whole number within bounds; throws what to write.
 * @param {number} least
 * @param {number} most
 * @returns {(text: string) => number}
 */
export function whole(least, most) {
  return (text) => {
    const number = Number(text);
    if (!Number.isInteger(number) || number < least || number > most) {
      throw new Error(`write a whole number from ${least} to ${most}`);
    }
    return number;
  };
}

/** An id for a request, so that a repeated request is handled once. */
export function newRequestId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Call an action after a pause without further calls.
 * @param {() => void} action
 * @param {number} ms
 * @returns {(() => void) & {cancel: () => void}}
 */
export function debounced(action, ms) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(action, ms);
  };
  return Object.assign(soon, {cancel: () => clearTimeout(timer)});
}
