/**
 * The way to the daemon: one WebSocket for all that is live, fetch for orders. docs/reference/web.md
 * tells what is said.
 *
 * The socket comes back by itself, and whatever was watched or followed goes on. The token comes in the
 * link's fragment, which browsers send nobody, is kept in localStorage and goes out as a header.
 */

import {onCleanup, signal} from '/lib/signal.js';
import {toQuery} from '/lib/router.js';

const KEY = 'stoker.token';
const WRONG_TOKEN = 4401;
const SHORTEST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;

/** @typedef {Record<string, string | number | boolean | readonly string[] | null | undefined>} Query */
/** @typedef {{title: string, status: number, detail: string}} Problem */
/**
 * @template T
 * @typedef {{data: T | undefined, problem: Problem | undefined}} Answer
 */
/**
 * @typedef {object} LogReader
 * @property {(about: {job: number, attempt: number, offset: number}) => void} [begin] called again, with the
 *   offset where it goes on, after a lost connection
 * @property {(bytes: Uint8Array) => void} data
 * @property {() => void} [end] no more can come
 * @property {(problem: Problem) => void} [problem]
 */
/** @typedef {{open: () => object, message: (message: any) => void, bytes?: (bytes: Uint8Array) => void}} Thread */

/** An order that was refused, or did not reach the daemon. */
export class RefusedError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** 'connecting' (also after a loss), 'open', or 'refused': the token is wrong, or there is none. */
export const state = signal(/** @type {'connecting' | 'open' | 'refused'} */ ('connecting'));
/** What the daemon says of itself. */
export const daemon = signal(/** @type {{version: string, host: string, home: string} | null} */ (null));

/** @type {WebSocket | null} */
let socket = null;
/** Whether the socket takes messages: it is open, and the token was said. */
let isHeard = false;
/** @typedef {{number: number, answer: import('/lib/signal.js').Signal<Answer<any>>, users: number}} Watched */

/** @type {Map<string, Watched>} what several parts of a page watch is asked for once */
const watched = new Map();
/** @type {Map<number, Thread>} */
const threads = new Map();
let lastNumber = 0;
let pauseMs = SHORTEST_PAUSE_MS;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Take the token out of the link, and connect. */
export function start() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, '', location.pathname);
  }
  addEventListener('online', hurry);
  document.addEventListener('visibilitychange', hurry);
  connect();
}

/**
 * Try another token, as a person has typed or pasted it: the token, or the whole link.
 * @param {string} text
 */
export function useToken(text) {
  localStorage.setItem(KEY, text.trim().replace(/^.*#token=/, ''));
  pauseMs = SHORTEST_PAUSE_MS;
  connect();
}

/**
 * What a GET of this path answers, now and after every change, until the page is left.
 * @template T
 * @param {string} path
 * @param {Query} [query]
 * @returns {import('/lib/signal.js').Signal<Answer<T>>}
 */
export function watch(path, query = {}) {
  const text = toQuery(query);
  const key = `${path}?${text}`;
  const shared = watched.get(key) ?? beginWatch(path, text);
  watched.set(key, shared);
  shared.users += 1;
  onCleanup(() => {
    shared.users -= 1;
    if (shared.users) return;
    watched.delete(key);
    finish(shared.number);
  });
  return shared.answer;
}

/**
 * @param {string} path
 * @param {string} query
 * @returns {Watched}
 */
function beginWatch(path, query) {
  /** @type {Watched['answer']} */
  const answer = signal({data: undefined, problem: undefined});
  const number = begin({
    open: () => ({type: 'watch', path, query}),
    message(message) {
      answer.value =
        message.type === 'data'
          ? {data: message.body, problem: undefined}
          : {data: answer.peek().data, problem: message.problem};
    },
  });
  return {number, answer, users: 0};
}

/**
 * A log, and what is added to it, until the page is left or the function that is returned is called.
 * @param {Query} query that of GET /v1/log: job, attempt, tail or offset
 * @param {LogReader} reader
 * @returns {() => void}
 */
export function follow(query, reader) {
  /** @type {{attempt: number, offset: number} | null} */
  let reached = null;
  const number = begin({
    // After a loss it goes on where it was, in the attempt that it was.
    open: () => ({type: 'follow', query: toQuery(reached ? {job: query.job, ...reached} : query)}),
    message(message) {
      if (message.type === 'begin') {
        reached = {attempt: message.attempt, offset: message.offset};
        reader.begin?.({job: message.job, ...reached});
      } else if (message.type === 'end') {
        finish(number);
        reader.end?.();
      } else reader.problem?.(message.problem);
    },
    bytes(bytes) {
      if (reached) reached.offset += bytes.length;
      reader.data(bytes);
    },
  });
  const stop = () => finish(number);
  onCleanup(stop);
  return stop;
}

/**
 * Ask once.
 * @param {string} path
 * @param {Query} [query]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}) {
  return (await request('GET', path, query)).json();
}

/**
 * The bytes of a log as it is now.
 * @param {Query} query that of GET /v1/log
 * @returns {Promise<Blob>}
 */
export async function download(query) {
  return save('/v1/log', query);
}

/**
 * What a GET answers, as a file.
 * @param {string} path
 * @param {Query} query
 * @returns {Promise<Blob>}
 */
export async function save(path, query) {
  return (await request('GET', path, query)).blob();
}

/**
 * Give an order; raises RefusedError with what is wrong.
 * @param {string} path
 * @param {object} body
 * @param {string} [method]
 * @returns {Promise<any>}
 */
export async function post(path, body, method = 'POST') {
  const response = await request(method, path, {}, JSON.stringify(body));
  return response.status === 204 ? null : response.json();
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Query} query
 * @param {string} [body]
 */
async function request(method, path, query, body) {
  const text = toQuery(query);
  /** @type {Record<string, string>} */
  const headers = {authorization: `Bearer ${localStorage.getItem(KEY) ?? ''}`};
  if (body !== undefined) headers['content-type'] = 'application/json';
  /** @type {Response} */
  let response;
  try {
    response = await fetch(text ? `${path}?${text}` : path, {method, headers, body, cache: 'no-store'});
  } catch {
    const detail = 'the daemon does not answer: stoker daemon status';
    throw new RefusedError({title: 'No answer', status: 0, detail});
  }
  if (response.ok) return response;
  if (response.status === 401) state.value = 'refused';
  throw new RefusedError(await response.json().catch(() => noProblem(response)));
}

/** @param {Response} response */
function noProblem(response) {
  return {title: response.statusText, status: response.status, detail: response.statusText};
}

/** @param {Thread} thread */
function begin(thread) {
  lastNumber += 1;
  threads.set(lastNumber, thread);
  if (isHeard) say(lastNumber, thread);
  return lastNumber;
}

/** @param {number} number */
function finish(number) {
  if (threads.delete(number) && isHeard) {
    socket?.send(JSON.stringify({type: 'drop', id: number}));
  }
}

/**
 * @param {number} number
 * @param {Thread} thread
 */
function say(number, thread) {
  socket?.send(JSON.stringify({id: number, ...thread.open()}));
}

function hurry() {
  if (document.visibilityState === 'visible' && state.peek() === 'connecting' && timer !== undefined) connect();
}

function connect() {
  clearTimeout(timer);
  timer = undefined;
  const token = localStorage.getItem(KEY);
  if (!token) {
    state.value = 'refused';
    return;
  }
  state.value = 'connecting';
  isHeard = false;
  socket?.close();
  const opened = new WebSocket(`ws://${location.host}/v1/live`);
  socket = opened;
  opened.binaryType = 'arraybuffer';
  // Who has the token is let in, so what is wanted is said in the same breath.
  opened.onopen = () => {
    opened.send(JSON.stringify({type: 'hello', token}));
    isHeard = true;
    for (const [number, thread] of threads) say(number, thread);
  };
  opened.onmessage = (event) => {
    if (socket === opened) receive(event.data);
  };
  opened.onclose = (event) => {
    if (socket !== opened) return;
    isHeard = false;
    if (event.code === WRONG_TOKEN) {
      state.value = 'refused';
      return;
    }
    state.value = 'connecting';
    timer = setTimeout(connect, pauseMs);
    pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
  };
}

/** @param {string | ArrayBuffer} data */
function receive(data) {
  if (typeof data !== 'string') {
    const number = new DataView(data).getUint32(0, true);
    threads.get(number)?.bytes?.(new Uint8Array(data, 4));
    return;
  }
  const message = JSON.parse(data);
  if (message.type === 'welcome') {
    pauseMs = SHORTEST_PAUSE_MS;
    daemon.value = message;
    state.value = 'open';
  } else threads.get(message.id)?.message(message);
}
