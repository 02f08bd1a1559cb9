/** What is shown to whom the daemon does not know. */

import {h} from '/lib/dom.js';
import {state, useToken} from '/lib/connection.js';

/** A field for the token, and where to get it. */
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
    h('input', {id: 'token', type: 'password', autocomplete: 'off', ref: (/** @type {HTMLInputElement} */ it) => (field = it)}),
    h('button', {class: 'primary', type: 'submit'}, 'Open'),
  );
}

function unknown() {
  return [h('h1', null, 'Who is there?'), h('p', null, 'This page opens for whoever has its link. On the machine where Stoker runs, type')];
}

/** What listens here does not know the token that this browser has. */
function unproven() {
  return [
    h('h1', null, 'This link has ended'),
    h('p', null, 'The daemon was restarted or moved: each start ends the older links. Or another program has taken this port. What answers here could not prove that it is your daemon, so this page has sent nothing to it.'),
    h('p', null, 'On the machine where Stoker runs, type'),
  ];
}
