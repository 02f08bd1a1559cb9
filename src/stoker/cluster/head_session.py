"""Session of Ray on the head, as nodes ask for it: each start of Ray there has an id of its own.

When Ray's control service on the head dies, the Ray of a node tries to reach it for a minute before it gives
up. So the Ray supervisor of the node asks the head's Ray supervisor every second, at the port where boxes
join, and starts Ray again as soon as the session is another one.

    node  {"session": N}                     N: a random number
    head  {"session": ID, "proof": HMAC(Ray's token, "session" N ID)}     ID is empty while Ray does not run

The proof shows that the answer comes from a box of the cluster, and belongs to this question.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket

_TIMEOUT_S = 2.0
_MAX_BYTES = 4096
NONCE_BYTES = 32


def new_session() -> str:
    """Return the id of a new session."""
    return secrets.token_hex(8)


def prove_session(token: str, nonce: str, session: str) -> str:
    """Return the proof of an answer."""
    message = b"session\0" + nonce.encode() + b"\0" + session.encode()
    return hmac.digest(token.encode(), message, hashlib.sha256).hex()


def ask_session(address: str, port: int, token: str) -> str | None:
    """Return the id of the head's session, empty while Ray does not run; None without a valid answer."""
    nonce = secrets.token_hex(NONCE_BYTES)
    try:
        with socket.create_connection((address, port), timeout=_TIMEOUT_S) as connection:
            connection.sendall(json.dumps({"session": nonce}).encode() + b"\n")
            received = b""
            while not received.endswith(b"\n") and len(received) < _MAX_BYTES:
                data = connection.recv(_MAX_BYTES)
                if not data:
                    return None
                received += data
        answer = json.loads(received)
        session, proof = str(answer["session"]), str(answer["proof"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return session if hmac.compare_digest(proof, prove_session(token, nonce, session)) else None
