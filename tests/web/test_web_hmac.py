"""SHA-256 and HMAC of the page, against Python's own; also where the browser has none."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TYPE_CHECKING

import pytest

from stoker.web.handshake import Session, server_proof

if TYPE_CHECKING:
    from web.modules import Modules

LENGTHS = [0, 1, 3, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000, 100_003]


def test_the_browser_has_no_crypto_subtle_here(modules: Modules) -> None:
    assert modules.run("() => [isSecureContext, crypto.subtle === undefined]") == [False, True]


@pytest.mark.parametrize("length", LENGTHS)
def test_digests_equal_those_of_python(modules: Modules, length: int) -> None:
    data, key = os.urandom(length), os.urandom(1 + length % 100)
    found = modules.run(
        """async (data, key) => {
          const {sha256, hmac, fromHex, toHex} = await import('/logic/hmac.js');
          return [toHex(sha256(fromHex(data))), toHex(hmac(fromHex(key), fromHex(data)))];
        }""",
        data.hex(),
        key.hex(),
    )
    assert found == [hashlib.sha256(data).hexdigest(), hmac.digest(key, data, "sha256").hex()]


def test_a_part_of_a_buffer_is_hashed_alone(modules: Modules) -> None:
    found = modules.run(
        """async () => {
          const {sha256, toHex} = await import('/logic/hmac.js');
          return toHex(sha256(new Uint8Array(100).fill(7).subarray(10, 90)));
        }"""
    )
    assert found == hashlib.sha256(bytes([7] * 80)).hexdigest()


def test_both_sides_of_a_session_sign_and_encrypt_equally(modules: Modules) -> None:
    nonces = ("a" * 32, "b" * 32)
    ours = Session("sécret", *nonces)
    hidden = ours.hide("token", "t" * 43)
    found = modules.run(
        """async (nonce, proof, hidden) => {
          const {Handshake} = await import('/lib/handshake.js');
          const handshake = new Handshake(null, 'sécret');
          handshake.nonce = 'a'.repeat(32);
          const {message, session} = handshake.answer({nonce, proof: 'no', handover: proof});
          return [message.by, session.sign({a: 'é'}), session.sign({}),
            session.authorization('POST', '/v1/add?x=1', '{"é":1}'), session.reveal('token', hidden)];
        }""",
        nonces[1],
        server_proof("sécret", *nonces),
        hidden,
    )
    body = '{"é":1}'.encode()
    assert found == [
        "handover",
        ours.sign_message('{"a":"é"}'),
        ours.sign_message("{}"),
        ours.sign_request("POST", "/v1/add?x=1", body, 1),
        "t" * 43,
    ]


def test_a_page_sends_nothing_to_an_unproven_server(modules: Modules) -> None:
    challenges = [
        None,
        {},
        {"nonce": "b" * 32, "proof": "0" * 64},
        {"nonce": "b" * 32, "proof": None, "handover": None},
        {"nonce": ["b" * 32], "proof": ""},
    ]
    found = modules.run(
        """async (challenges) => {
          const {Handshake} = await import('/lib/handshake.js');
          return [new Handshake('token', 'handover'), new Handshake('token', null), new Handshake('', '')]
            .flatMap((each) => challenges.map((challenge) => each.answer(challenge)));
        }""",
        challenges,
    )
    assert found == [None] * 15
