/**
 * Creates elements: `h('p', {class: 'note'}, 'text', child, () => signal.value)`.
 *
 * Data only becomes text nodes, properties and attributes; nothing is parsed as HTML. A function as a child
 * or as the value of an attribute is called again whenever a signal that it has read changes.
 */

import {effect, onCleanup, scope, signal} from '/lib/signal.js';

/** @typedef {Node | string | number | bigint | null | undefined | false | Child[] | (() => Child)} Child */
/** @typedef {Record<string, any>} Props */

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'g', 'path', 'line', 'rect', 'circle', 'polyline', 'text', 'title']);
// Attributes that could run code are refused.
const PROPERTIES = new Set(['value', 'checked', 'indeterminate', 'disabled', 'selected', 'open', 'hidden']);

/**
 * An element.
 * @param {string} tag
 * @param {Props | null} [props] attributes; `on…` are listeners, `style` an object, `ref` gets the element
 * @param {...Child} children
 * @returns {any} the caller knows the type
 */
export function h(tag, props, ...children) {
  const inSvg = SVG_TAGS.has(tag) && tag !== 'title';
  const element = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (tag === 'select') append(element, children); // its value can only be one of its options
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === 'ref') value(element);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (typeof value === 'function') effect(() => set(element, name, value()));
    else set(element, name, value);
  }
  if (tag !== 'select') append(element, children);
  return element;
}

/**
 * Append children to a parent.
 * @param {Node} parent
 * @param {Child} child
 */
export function append(parent, child) {
  if (child === null || child === undefined || child === false) return;
  if (Array.isArray(child)) for (const each of child) append(parent, each);
  else if (child instanceof Node) parent.appendChild(child);
  else if (typeof child === 'function') follow(parent, child);
  else parent.appendChild(document.createTextNode(String(child)));
}

/**
 * One element for each item; it is kept, and moved, while there is an item with its key.
 * @template T
 * @param {HTMLElement} parent contains only these elements
 * @param {() => readonly T[]} items followed
 * @param {(item: T) => unknown} key
 * @param {(item: import('/lib/signal.js').Signal<T>) => HTMLElement} render
 * @returns {HTMLElement} the parent
 */
export function each(parent, items, key, render) {
  /** @type {Map<unknown, {item: import('/lib/signal.js').Signal<T>, element: HTMLElement, end: () => void}>} */
  const rows = new Map();
  effect(() => {
    const wanted = items();
    const keys = new Set(wanted.map(key));
    for (const [known, row] of rows) {
      if (!keys.has(known)) {
        row.end();
        row.element.remove();
        rows.delete(known);
      }
    }
    /** @type {ChildNode | null} */
    let next = parent.firstChild;
    for (const item of wanted) {
      const name = key(item);
      let row = rows.get(name);
      if (row) row.item.value = item;
      else {
        const own = signal(item);
        const [element, end] = scope(() => render(own));
        row = {item: own, element, end};
        rows.set(name, row);
      }
      if (row.element === next) next = next.nextSibling;
      else parent.insertBefore(row.element, next);
    }
  });
  onCleanup(() => {
    for (const row of rows.values()) row.end();
  });
  return parent;
}

/**
 * @param {Node} parent
 * @param {() => Child} ask
 */
function follow(parent, ask) {
  const end = document.createComment('');
  parent.appendChild(end);
  /** @type {ChildNode[]} */
  let shown = [];
  effect(() => {
    const fragment = document.createDocumentFragment();
    append(fragment, ask());
    const fresh = [...fragment.childNodes];
    const [only] = fresh;
    if (fresh.length === 1 && shown.length === 1 && only instanceof Text && shown[0] instanceof Text) {
      if (shown[0].data !== only.data) shown[0].data = only.data;
      return;
    }
    for (const node of shown) node.remove();
    shown = fresh;
    end.before(...fresh);
  });
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {any} value
 */
function set(element, name, value) {
  if (name === 'style') Object.assign(/** @type {HTMLElement} */ (element).style, value);
  else if (PROPERTIES.has(name) && !(element instanceof HTMLOptionElement && name === 'value')) {
    if (/** @type {any} */ (element)[name] !== value) /** @type {any} */ (element)[name] = value;
  } else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? '' : value);
}
