/**
 * Signals: values that notify their effects when they change.
 *
 * An effect runs once when it is created, and again soon after a value that it has read changes; all changes
 * of one turn of the event loop cause one run. Everything created inside `scope` ends with it.
 */

/**
 * @template T
 * @typedef {{value: T, peek: () => T}} Signal
 */

/** @typedef {{run: () => void, sources: Set<Set<Effect>>}} Effect */

/** @type {Effect | null} */
let current = null;
/** @type {Array<() => void> | null} */
let cleanups = null;
/** @type {Set<Effect>} */
const due = new Set();

/**
 * A value that can be set.
 * @template T
 * @param {T} initial
 * @returns {Signal<T>}
 */
export function signal(initial) {
  let now = initial;
  /** @type {Set<Effect>} */
  const readers = new Set();
  return {
    get value() {
      if (current) {
        readers.add(current);
        current.sources.add(readers);
      }
      return now;
    },
    set value(next) {
      if (Object.is(next, now)) return;
      now = next;
      for (const reader of readers) plan(reader);
    },
    peek: () => now,
  };
}

/**
 * A value computed from others; it notifies only if the result differs.
 * @template T
 * @param {() => T} derive
 * @returns {Signal<T>}
 */
export function computed(derive) {
  /** @type {Signal<T>} */
  const result = signal(/** @type {any} */ (undefined));
  effect(() => {
    result.value = derive();
  });
  return result;
}

/**
 * Run an action now, and again whenever a value that it has read changes.
 * @param {() => void} action
 * @returns {() => void} a function that ends it
 */
export function effect(action) {
  /** @type {Array<() => void>} */
  let inner = [];
  /** @type {Effect} */
  const self = {
    sources: new Set(),
    run() {
      forget(self);
      dispose(inner);
      inner = [];
      const [outerEffect, outerCleanups] = [current, cleanups];
      [current, cleanups] = [self, inner];
      try {
        action();
      } finally {
        [current, cleanups] = [outerEffect, outerCleanups];
      }
    },
  };
  const end = () => {
    due.delete(self);
    forget(self);
    dispose(inner);
  };
  onCleanup(end);
  self.run();
  return end;
}

/**
 * Read signals without following them.
 * @template T
 * @param {() => T} action
 * @returns {T}
 */
export function untracked(action) {
  const outer = current;
  current = null;
  try {
    return action();
  } finally {
    current = outer;
  }
}

/**
 * Create something whose effects end together.
 * @template T
 * @param {() => T} make
 * @returns {[T, () => void]} what was made, and a function that ends it
 */
export function scope(make) {
  /** @type {Array<() => void>} */
  const inner = [];
  const [outerEffect, outerCleanups] = [current, cleanups];
  [current, cleanups] = [null, inner];
  try {
    return [make(), () => dispose(inner)];
  } finally {
    [current, cleanups] = [outerEffect, outerCleanups];
  }
}

/**
 * Run an action when the present scope or effect ends.
 * @param {() => void} action
 */
export function onCleanup(action) {
  cleanups?.push(action);
}

/** @param {Effect} effect */
function plan(effect) {
  if (!due.size) queueMicrotask(flush);
  due.add(effect);
}

function flush() {
  // A set keeps its order; effects that become due meanwhile run in the same pass.
  for (const effect of due) {
    due.delete(effect);
    try {
      effect.run();
    } catch (error) {
      reportError(error); // the others run: else no effect would ever run again
    }
  }
}

/** @param {Effect} effect */
function forget(effect) {
  for (const readers of effect.sources) readers.delete(effect);
  effect.sources.clear();
}

/** @param {Array<() => void>} actions */
function dispose(actions) {
  for (const action of actions.splice(0).reverse()) action();
}
