"""Handshake of tab and daemon: both prove that they know a secret; then messages are signed.

The secret itself is never sent. The daemon proves itself first. A session belongs to one WebSocket: its
key comes from the secret and from both sides' nonces. docs/reference/web.md describes the messages;
static/lib/handshake.js is the other side.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

_NONCE_BYTES = 16
_ID_CHARACTERS = 32
_MAC_CHARACTERS = 64
_MAX_HIDDEN = 64
_WINDOW = 1024


def new_nonce() -> str:
    """Return a random number that is used once, as 32 hexadecimal digits."""
    return secrets.token_hex(_NONCE_BYTES)


def derive(key: str | bytes, label: str, *parts: str) -> bytes:
    """Return the HMAC-SHA-256 of a label and parts, one per line; each use has its own label."""
    key = key.encode("utf-8") if isinstance(key, str) else key
    return hmac.digest(key, "\n".join((f"stoker {label}", *parts)).encode("utf-8"), "sha256")


def server_proof(secret: str, page_nonce: str, server_nonce: str) -> str:
    """Return the daemon's proof that it knows a secret."""
    return derive(secret, "server", page_nonce, server_nonce).hex()


def page_proof(secret: str, page_nonce: str, server_nonce: str) -> str:
    """Return the tab's proof that it knows a secret."""
    return derive(secret, "page", page_nonce, server_nonce).hex()


def is_same(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("ascii"))


class Session:
    """Key of one tab's session, and the request numbers that were used with it.

    A repeated message or request is refused, and so is one of another session.
    """

    def __init__(self, secret: str, page_nonce: str, server_nonce: str) -> None:
        self._key = derive(secret, "session", page_nonce, server_nonce)
        self.id = derive(self._key, "id").hex()[:_ID_CHARACTERS]
        self._messages = 0
        self._requests: set[int] = set()
        self._last_request = 0

    def sign_message(self, text: str) -> str:
        """Return the next message of a tab with its signature in front."""
        signature = derive(self._key, "message", str(self._messages), text).hex()
        self._messages += 1
        return signature + text

    def read_message(self, signed: str) -> str | None:
        """Return the next message without its signature; None if the signature is wrong."""
        given, text = signed[:_MAC_CHARACTERS], signed[_MAC_CHARACTERS:]
        wanted = derive(self._key, "message", str(self._messages), text).hex()
        if not is_same(given, wanted):
            return None
        self._messages += 1
        return text

    def sign_request(self, method: str, target: str, body: bytes, number: int) -> str:
        """Return the Authorization header of a request."""
        digest = hashlib.sha256(body).hexdigest()
        signature = derive(self._key, "request", method, target, str(number), digest).hex()
        return f"Stoker {self.id}.{number}.{digest}.{signature}"

    def accept_request(self, method: str, target: str, given: Authorization) -> bool:
        """Whether the signature is right and the number new; if so, the number is used up."""
        wanted = derive(self._key, "request", method, target, str(given.number), given.digest)
        is_new = given.number > self._last_request - _WINDOW and given.number not in self._requests
        if not is_same(given.signature, wanted.hex()) or not is_new:
            return False
        self._requests.add(given.number)
        self._last_request = max(self._last_request, given.number)
        if len(self._requests) > 2 * _WINDOW:
            oldest = self._last_request - _WINDOW
            self._requests = {number for number in self._requests if number > oldest}
        return True

    def hide(self, label: str, secret: str) -> str:
        """Encrypt a secret for the other side of this session; each label is used once."""
        plain = secret.encode("ascii")
        assert len(plain) <= _MAX_HIDDEN
        pad = derive(self._key, "hide", label, "0") + derive(self._key, "hide", label, "1")
        return bytes(a ^ b for a, b in zip(plain, pad, strict=False)).hex()


class Authorization:
    """A parsed Authorization header: `Stoker SESSION.NUMBER.DIGEST.SIGNATURE`."""

    def __init__(self, header: str) -> None:
        kind, _, rest = header.partition(" ")
        parts = rest.strip().split(".")
        if kind.lower() != "stoker" or len(parts) != 4 or not _is_number(parts[1]):
            raise ValueError("not an Authorization header of a session")
        self.session, number, self.digest, self.signature = parts
        self.number = int(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16
