/** Sign-in page, for a browser without a valid token. */

import {h} from '/lib/dom.js';
import {isEntryWrong, state, useToken} from '/lib/connection.js';

/** A field for the token, with instructions. */
export function login() {
  /** @type {HTMLInputElement} */
  let field;
  return h(
    'form',
    {
      class: 'card narrow',
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (field.value.trim()) useToken(field.value);
      },
    },
    () => (state.value === 'unproven' ? unproven() : unknown()),
    h('pre', null, 'stoker web'),
    h('p', null, 'and open the link that it prints, or paste the link here.'),
    h('label', {for: 'token'}, 'Link or token'),
    h('p', {id: 'token-error', class: 'error', role: 'alert'}, () => isEntryWrong.value && 'This daemon has another token. Copy the whole link that stoker web prints now.'),
    h('input', {id: 'token', type: 'password', autocomplete: 'off', 'aria-describedby': 'token-error', 'aria-invalid': () => (isEntryWrong.value ? 'true' : null), ref: (/** @type {HTMLInputElement} */ it) => (field = it)}),
    h('button', {class: 'primary', type: 'submit'}, 'Open'),
  );
}

function unknown() {
  return [h('h1', null, 'Sign in'), h('p', null, 'This page needs its link. On the machine where Stoker runs, type')];
}

/** The other side does not know the token of this browser. */
function unproven() {
  return [
    h('h1', null, 'This link is no longer valid'),
    h('p', null, 'The daemon was restarted or moved, which invalidates older links, or another program uses this port. The other side could not prove that it is your daemon, so this page has sent nothing to it.'),
    h('p', null, 'On the machine where Stoker runs, type'),
  ];
}
