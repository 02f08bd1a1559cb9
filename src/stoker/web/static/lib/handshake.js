/**
 * Proves the daemon to the page, then the page to the daemon, and then signs the messages of the page.
 * The secrets themselves are never sent. docs/reference/web.md describes the messages.
 */

import {fromHex, hmac, sha256, toHex} from '/logic/hmac.js';

const NONCE_BYTES = 16;
const ID_CHARACTERS = 32;
const utf8 = new TextEncoder();

/**
 * HMAC of a label and its parts, one per line.
 * @param {Uint8Array} key
 * @param {string} label
 * @param {...string} parts
 */
function derive(key, label, ...parts) {
  return hmac(key, utf8.encode([`stoker ${label}`, ...parts].join('\n')));
}

/** The handshake that opens a session. */
export class Handshake {
  /**
   * @param {string | null} token as the link has it
   * @param {string | null} handover what the daemon before has handed over to this tab
   */
  constructor(token, handover) {
    this.token = token;
    this.handover = handover;
    this.nonce = toHex(crypto.getRandomValues(new Uint8Array(NONCE_BYTES)));
  }

  hello() {
    return {type: 'hello', nonce: this.nonce};
  }

  /**
   * The page's proof and the new session; null if the other side has not proved that it is the daemon.
   * Nothing may be sent to it then.
   * @param {any} challenge
   */
  answer(challenge) {
    const nonce = String(challenge?.nonce);
    /** @type {['token' | 'handover', string | null, unknown][]} */
    const ways = [
      ['token', this.token, challenge?.proof],
      ['handover', this.handover, challenge?.handover],
    ];
    for (const [by, secret, proof] of ways) {
      if (!secret) continue;
      const key = utf8.encode(secret);
      if (proof !== toHex(derive(key, 'server', this.nonce, nonce))) continue;
      const own = toHex(derive(key, 'page', this.nonce, nonce));
      return {message: {type: 'prove', proof: own, by}, session: new Session(derive(key, 'session', this.nonce, nonce))};
    }
    return null;
  }
}

/** A key that this tab shares with the daemon as long as its socket is open. */
export class Session {
  /** @type {Uint8Array} */
  #key;
  #messages = 0;
  #requests = 0;
  #id;

  /** @param {Uint8Array} key */
  constructor(key) {
    this.#key = key;
    this.#id = toHex(derive(key, 'id')).slice(0, ID_CHARACTERS);
  }

  /**
   * The next message for the socket, with its signature in front.
   * @param {object} message
   */
  sign(message) {
    const text = JSON.stringify(message);
    const signature = toHex(derive(this.#key, 'message', String(this.#messages), text));
    this.#messages += 1;
    return signature + text;
  }

  /**
   * The Authorization header of a request; it is valid once.
   * @param {string} method
   * @param {string} target the path and its query
   * @param {string} body
   */
  authorization(method, target, body) {
    this.#requests += 1;
    const number = String(this.#requests);
    const digest = toHex(sha256(utf8.encode(body)));
    const signature = toHex(derive(this.#key, 'request', method, target, number, digest));
    return `Stoker ${this.#id}.${number}.${digest}.${signature}`;
  }

  /**
   * Decrypt a secret that the daemon has encrypted for this session.
   * @param {string} label
   * @param {string} hidden
   */
  reveal(label, hidden) {
    const pad = [...derive(this.#key, 'hide', label, '0'), ...derive(this.#key, 'hide', label, '1')];
    return String.fromCharCode(...fromHex(hidden).map((byte, index) => byte ^ (pad[index] ?? 0)));
  }
}
