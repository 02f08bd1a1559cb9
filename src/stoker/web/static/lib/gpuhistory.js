/** The last minutes of every GPU: loaded once, then continued with what is watched anyway. */

import {get} from '/lib/connection.js';
import {now} from '/lib/clock.js';
import {effect, signal} from '/lib/signal.js';

/** @typedef {{at: number[], utilisation: (number | null)[], memory: (number | null)[]}} Past */

const KEPT_S = 300;

/**
 * @param {() => readonly {label: string, utilisation_pct: number | null, mem_used_bytes: number}[]} gpus followed
 * @returns {(label: string) => Past} followed: changes every second
 */
export function gpuPasts(gpus) {
  /** @type {Map<string, Past>} */
  const pasts = new Map();
  const version = signal(0);

  /** @param {Past} past @param {number} at @param {number | null} utilisation @param {number | null} memory */
  function put(past, at, utilisation, memory) {
    past.at.push(at);
    past.utilisation.push(utilisation);
    past.memory.push(memory);
    const old = past.at.findIndex((each) => each >= at - KEPT_S);
    if (old > 0) for (const list of [past.at, past.utilisation, past.memory]) list.splice(0, old);
  }

  get('/v1/gpus', {history: true}).then((/** @type {any[]} */ found) => {
    for (const {label, history} of found) {
      const newer = pasts.get(label);
      const first = newer?.at[0] ?? Infinity;
      const old = history.at.filter((/** @type {number} */ at) => at < first).length;
      pasts.set(label, {
        at: [...history.at.slice(0, old), ...(newer?.at ?? [])],
        utilisation: [...history.utilisation_pct.slice(0, old), ...(newer?.utilisation ?? [])],
        memory: [...history.mem_bytes.slice(0, old), ...(newer?.memory ?? [])],
      });
    }
    version.value += 1;
  }, () => {});

  effect(() => {
    // Values that do not change are not sent again, so that they count until now.
    const at = now.value;
    for (const gpu of gpus()) {
      const past = pasts.get(gpu.label) ?? {at: [], utilisation: [], memory: []};
      pasts.set(gpu.label, past);
      put(past, Math.max(at, Date.now() / 1000), gpu.utilisation_pct, gpu.mem_used_bytes);
    }
    version.value = version.peek() + 1;
  });
  return (label) => {
    version.value;
    return pasts.get(label) ?? {at: [], utilisation: [], memory: []};
  };
}
