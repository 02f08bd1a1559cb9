"""Checks that the daemon listens on the page's port, before `stoker web` prints the link."""

from __future__ import annotations

import http.client

import msgspec

from stoker.errors import StokerError
from stoker.web.handshake import is_same, new_nonce, server_proof
from stoker.web.messages import Challenge
from stoker.web.port import holder_of

_TIMEOUT_S = 10.0
_MAX_BYTES = 4096


def check_listener(host: str, port: int, token: str) -> None:
    """Raise StokerError unless the listener proves that it knows the token. The token is not sent."""
    nonce = new_nonce()
    challenge = _ask(host, port, nonce)
    if challenge is not None:
        wanted = server_proof(token, nonce, challenge.nonce)
        if is_same(challenge.proof, wanted):
            return
    holder = holder_of(port)
    who = "another program" if holder is None else f"a process of user {holder}"
    raise StokerError(
        f"{who} answers at {host}:{port}, not the daemon: stoker web --port N opens the page at"
        " another port"
    )


def _ask(host: str, port: int, nonce: str) -> Challenge | None:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"/prove?nonce={nonce}")
        return msgspec.json.decode(connection.getresponse().read(_MAX_BYTES), type=Challenge)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeError):
        return None
    finally:
        connection.close()
