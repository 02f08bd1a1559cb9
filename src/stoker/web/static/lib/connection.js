/**
 * Connection to the daemon: one WebSocket for live data, fetch for requests. docs/reference/web.md describes
 * the messages.
 *
 * The socket reconnects by itself and resumes all watches and logs. The token comes in the link's fragment,
 * which browsers do not send, and is kept in localStorage. It is never sent: first the daemon proves that it
 * knows the token, then the page does. A restart of the daemon changes the token; an open tab gets the new one
 * with the handover secret, which it keeps only in memory.
 */

import {Handshake} from '/lib/handshake.js';
import {onCleanup, signal} from '/lib/signal.js';
import {go, toQuery} from '/lib/router.js';
import {applyChange, bodyOf} from '/logic/changes.js';

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
 *   offset where it resumes after a lost connection
 * @property {(bytes: Uint8Array) => void} data
 * @property {() => void} [end] no more can come
 * @property {(problem: Problem) => void} [problem]
 */
/** @typedef {{open: () => object, message: (message: any, text: string) => void, bytes?: (bytes: Uint8Array) => void}} Thread */

/** A request that was refused, or did not reach the daemon. */
export class RefusedError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/**
 * 'connecting' (also after a lost connection), 'open', 'refused' (no token, or a wrong one), or 'unproven' (the
 * other side does not know the token, so nothing was sent to it).
 */
export const state = signal(/** @type {'connecting' | 'open' | 'refused' | 'unproven'} */ ('connecting'));
/** Whether the token that the user has entered last is wrong. */
export const isEntryWrong = signal(false);
/** Facts about the daemon. */
export const daemon = signal(/** @type {{version: string, host: string, home: string} | null} */ (null));

/** @type {WebSocket | null} */
let socket = null;
/** @type {import('/lib/handshake.js').Session | null} there once the daemon has proved itself */
let session = null;
/** @type {string | null} */
let handover = null;
/** @type {Promise<import('/lib/handshake.js').Session | null>} the session, or null if there is none to be had now */
let letIn = Promise.resolve(null);
/** @type {(session: import('/lib/handshake.js').Session | null) => void} */
let settle = () => {};
/** @typedef {{number: number, answer: import('/lib/signal.js').Signal<Answer<any>>, users: number}} Watched */

/** @type {Map<string, Watched>} what several parts of a page watch is asked for once */
const watched = new Map();
/** @type {Map<number, Thread>} */
const threads = new Map();
let lastNumber = 0;
let isEntered = false;
let pauseMs = SHORTEST_PAUSE_MS;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Take the token from the link and connect; a newer link can be opened in this tab later. */
export function start() {
  takeToken();
  addEventListener('hashchange', () => {
    if (takeToken()) connect();
  });
  addEventListener('online', hurry);
  document.addEventListener('visibilitychange', hurry);
  connect();
}

/** Store the token of the link, if it has one, and remove it from the address. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!given) return false;
  localStorage.setItem(KEY, given);
  go('/', {}, {replace: true});
  return true;
}

/**
 * Try another token that the user entered: the token, or the whole link.
 * @param {string} text
 */
export function useToken(text) {
  localStorage.setItem(KEY, text.trim().replace(/^.*#token=/, ''));
  isEntered = true;
  isEntryWrong.value = false;
  pauseMs = SHORTEST_PAUSE_MS;
  connect();
}

/**
 * The answer of a GET of this path, now and after every change, until the page is left.
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
  let known = '';
  const number = begin({
    open: () => ({type: 'watch', path, query, changes: true}),
    message(message, text) {
      if (message.type === 'problem') {
        answer.value = {data: answer.peek().data, problem: message.problem};
        return;
      }
      known = message.type === 'data' ? bodyOf(text) : applyChange(known, message.change);
      answer.value = {data: message.type === 'data' ? message.body : JSON.parse(known), problem: undefined};
    },
  });
  return {number, answer, users: 0};
}

/**
 * Follow a log until the page is left or the returned function is called.
 * @param {Query} query that of GET /v1/log: job, attempt, tail or offset
 * @param {LogReader} reader
 * @returns {() => void}
 */
export function follow(query, reader) {
  /** @type {{attempt: number, offset: number} | null} */
  let reached = null;
  const number = begin({
    // After a lost connection it resumes at the same offset of the same attempt.
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
 * Send one GET.
 * @param {string} path
 * @param {Query} [query]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}) {
  return (await request('GET', path, query)).json();
}

/**
 * The present bytes of a log.
 * @param {Query} query that of GET /v1/log
 * @returns {Promise<Blob>}
 */
export async function download(query) {
  return save('/v1/log', query);
}

/**
 * The answer of a GET as a file.
 * @param {string} path
 * @param {Query} query
 * @returns {Promise<Blob>}
 */
export async function save(path, query) {
  return (await request('GET', path, query)).blob();
}

/**
 * Send a POST; throws RefusedError with the problem.
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
  const target = text ? `${path}?${text}` : path;
  let response = await send(method, target, body);
  if (response.status === 401) {
    // The session has ended: the daemon was restarted and has not handled the request.
    connect();
    response = await send(method, target, body);
  }
  if (response.ok) return response;
  throw new RefusedError(await response.json().catch(() => noProblem(response)));
}

/**
 * @param {string} method
 * @param {string} target
 * @param {string} [body]
 */
async function send(method, target, body) {
  const now = await letIn;
  if (!now) throw noAnswer();
  /** @type {Record<string, string>} */
  const headers = {authorization: now.authorization(method, target, body ?? '')};
  if (body !== undefined) headers['content-type'] = 'application/json';
  try {
    return await fetch(target, {method, headers, body, cache: 'no-store'});
  } catch {
    throw noAnswer();
  }
}

function noAnswer() {
  const detail = 'the daemon does not answer: stoker daemon status';
  return new RefusedError({title: 'No answer', status: 0, detail});
}

/** @param {Response} response */
function noProblem(response) {
  return {title: response.statusText, status: response.status, detail: response.statusText};
}

/** @param {Thread} thread */
function begin(thread) {
  lastNumber += 1;
  threads.set(lastNumber, thread);
  if (session) say(lastNumber, thread);
  return lastNumber;
}

/** @param {number} number */
function finish(number) {
  if (threads.delete(number) && session) socket?.send(session.sign({type: 'drop', id: number}));
}

/**
 * @param {number} number
 * @param {Thread} thread
 */
function say(number, thread) {
  if (session) socket?.send(session.sign({id: number, ...thread.open()}));
}

function hurry() {
  if (document.visibilityState === 'visible' && state.peek() !== 'open' && timer !== undefined) connect();
}

function connect() {
  clearTimeout(timer);
  timer = undefined;
  lose();
  const token = localStorage.getItem(KEY);
  if (!token && !handover) {
    state.value = 'refused';
    return;
  }
  if (state.peek() !== 'unproven') state.value = 'connecting';
  letIn = new Promise((resolve) => (settle = resolve));
  const opened = new WebSocket(`ws://${location.host}/v1/live`);
  const handshake = new Handshake(token, handover);
  socket = opened;
  opened.binaryType = 'arraybuffer';
  opened.onopen = () => opened.send(JSON.stringify(handshake.hello()));
  opened.onmessage = (event) => {
    if (socket !== opened) return;
    if (session) receive(event.data);
    else prove(opened, handshake, event.data);
  };
  opened.onclose = (event) => {
    if (socket !== opened) return;
    const isRefused = event.code === WRONG_TOKEN && session;
    lose();
    if (isRefused) {
      state.value = 'refused';
      return;
    }
    if (state.peek() !== 'unproven') state.value = 'connecting';
    timer = setTimeout(connect, pauseMs);
    pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
  };
}

/** Drop a socket and its session. */
function lose() {
  const old = socket;
  socket = null;
  session = null;
  settle(null);
  old?.close();
}

/**
 * Check that the daemon answers, then send the proof. The watches follow at once, because a right proof is
 * accepted.
 * @param {WebSocket} opened
 * @param {Handshake} handshake
 * @param {string | ArrayBuffer} data
 */
function prove(opened, handshake, data) {
  const answer = handshake.answer(typeof data === 'string' ? read(data) : null);
  if (!answer) {
    state.value = 'unproven';
    isEntryWrong.value = isEntered;
    pauseMs = LONGEST_PAUSE_MS;
    opened.close();
    return;
  }
  opened.send(JSON.stringify(answer.message));
  session = answer.session;
  for (const [number, thread] of threads) say(number, thread);
}

/** @param {string} text */
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string | ArrayBuffer} data */
function receive(data) {
  if (typeof data !== 'string') {
    const number = new DataView(data).getUint32(0, true);
    threads.get(number)?.bytes?.(new Uint8Array(data, 4));
    return;
  }
  const message = JSON.parse(data);
  if (message.type === 'welcome') welcome(message);
  else threads.get(message.id)?.message(message, data);
}

/** @param {any} message */
function welcome(message) {
  if (!session) return;
  handover = session.reveal('handover', message.handover);
  if (message.token) localStorage.setItem(KEY, session.reveal('token', message.token));
  pauseMs = SHORTEST_PAUSE_MS;
  isEntered = false;
  daemon.value = message;
  state.value = 'open';
  settle(session);
}
