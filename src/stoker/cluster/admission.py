"""Exchange of a join token for Ray's token and a certificate, between a joining box and the head.

    box   {"join": ID, "nonce": C}
    head  {"nonce": S, "proof": HMAC(secret, "head" C S)}                or {"refused": REASON}
    box   {"request": R, "proof": HMAC(secret, "box" C S R)}             R: certificate request, or ""
    head  {"sealed": X, "proof": HMAC(secret, "pass" C S X)}             X: Pass XOR HMAC(secret, "pad" C S …)

Neither side sends the secret. The head proves first that it knows the secret, so a process that has
taken the head's port learns nothing. A listener on the network does not learn Ray's token here.
Each message is one line of JSON. A peer that has proven nothing yet has five seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.cluster.authority import find_authority, sign_request
from stoker.cluster.join_tokens import JoinToken, find_join_token
from stoker.cluster.settings import join_address, load_token
from stoker.errors import StokerError

_MAX_LINE_BYTES = 16384
_TIMEOUT_S, _TIMEOUT_OF_KNOWN_PEER_S = 5.0, 60.0
_MAX_CONNECTIONS, _MAX_PER_ADDRESS = 256, 8
_RETRY_S = 5.0
_NONCE_BYTES = 32
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,8192}")
EXPIRED, UNKNOWN = "expired", "unknown"


class AdmissionError(Exception):
    """The other side does not follow the protocol, or does not know the secret."""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What a box needs to join a cluster: Ray's token, and certificates if the head makes them."""

    token: str
    authority: str | None = None
    certificate: str | None = None


class AdmissionServer:
    """Server of the head that admits boxes at one address and port, in its own threads, until closed."""

    def __init__(self, home: str, address: str, port: int, log: Callable[[str], None]) -> None:
        self._home = home
        self._place = (address, port)
        self._log = log
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._open_by_address: Counter[str] = Counter()

    def start(self) -> None:
        """Start listening. If the port is taken, listen as soon as it is free."""
        threading.Thread(target=self._listen, name="admission", daemon=True).start()

    def close(self) -> None:
        """Admit no more boxes."""
        self._is_closed.set()

    def _listen(self) -> None:
        said = ""
        while not self._is_closed.is_set():
            try:
                family = socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET
                with socket.create_server(self._place, family=family) as listener:
                    said = ""
                    self._accept(listener)
            except OSError as error:
                reason = f"cannot let boxes join at {join_address(*self._place)}: {error}"
                if reason != said:
                    self._log(reason)
                said = reason
                self._is_closed.wait(_RETRY_S)

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(1.0)
        while not self._is_closed.is_set():
            try:
                connection, peer = listener.accept()
            except TimeoutError:
                continue
            if not self._take_place(peer[0]):
                connection.close()
                continue
            work = threading.Thread(target=self._serve, args=(connection, peer[0]), daemon=True)
            try:
                work.start()
            except RuntimeError:  # no more threads
                self._leave_place(peer[0])
                connection.close()

    def _take_place(self, address: str) -> bool:
        """Whether one more connection from an address is served: one box must not block the others."""
        with self._lock:
            if (
                self._open_by_address.total() >= _MAX_CONNECTIONS
                or self._open_by_address[address] >= _MAX_PER_ADDRESS
            ):
                return False
            self._open_by_address[address] += 1
            return True

    def _leave_place(self, address: str) -> None:
        with self._lock:
            self._open_by_address[address] -= 1
            self._open_by_address += Counter()  # forget addresses without connections

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            with connection:
                self._admit(_Lines(connection), address)
        except (AdmissionError, OSError):
            pass  # the peer was told nothing
        except (StokerError, ValueError) as error:
            self._log(f"cannot let {address} join: {error}")
        finally:
            self._leave_place(address)

    def _admit(self, lines: _Lines, address: str) -> None:
        hello = lines.receive()
        token_id, box_nonce = _text(hello, "join"), _nonce(hello)
        known = self._find(token_id)
        if not isinstance(known, JoinToken):
            lines.send({"refused": known})
            return
        head_nonce = secrets.token_bytes(_NONCE_BYTES)
        nonces = box_nonce + head_nonce
        lines.send({"nonce": head_nonce.hex(), "proof": _prove(known, b"head", nonces).hex()})
        answer = lines.receive()
        request = _text(answer, "request")
        _check_proof(answer, known, b"box", nonces + request.encode())
        lines.trust()
        made = self._make_pass(request, address)
        if made is None or self._find(token_id) != known:  # revoked meanwhile
            lines.send({"refused": UNKNOWN})
            return
        sealed = _cipher(known, nonces, msgspec.json.encode(made))
        proof = _prove(known, b"pass", nonces + sealed)
        lines.send({"sealed": sealed.hex(), "proof": proof.hex()})

    def _make_pass(self, request: str, address: str) -> Pass | None:
        """Return the pass for the box at an address; None if the cluster has just ended."""
        token, authority = load_token(self._home), find_authority(self._home)
        if token is None:
            return None
        if authority is None or not request:
            return Pass(token=token, authority=authority)
        certificate = sign_request(self._home, request, address)
        return Pass(token=token, authority=authority, certificate=certificate)

    def _find(self, token_id: str) -> JoinToken | str:
        """Return the join token with this id, or the reason why it does not admit a box."""
        known = find_join_token(self._home, token_id)
        if known is None:
            return UNKNOWN
        return EXPIRED if known.is_expired(time.time()) else known


def exchange_join_token(address: str, port: int, given: JoinToken, request: str = "") -> Pass:
    """Exchange a join token, and optionally a certificate request, for a pass of the head.

    Raises StokerError with the reason if the head refuses.
    """
    place = join_address(address, port)
    try:
        with socket.create_connection((address, port), timeout=_TIMEOUT_S) as connection:
            return _ask(_Lines(connection), given, request)
    except AdmissionError:
        raise StokerError(
            f"what answers at {place} does not know this join token, and was told nothing: is {address}"
            " the first box of your cluster?"
        ) from None
    except OSError as error:
        raise StokerError(
            f"the cluster does not answer at {place}, where boxes join ({error.strerror or error}): is it up"
            " (stoker cluster status there), and does every firewall let this box through?"
        ) from None


def _ask(lines: _Lines, given: JoinToken, request: str) -> Pass:
    box_nonce = secrets.token_bytes(_NONCE_BYTES)
    lines.send({"join": given.id, "nonce": box_nonce.hex()})
    answer = lines.receive()
    _raise_refusal(answer)
    nonces = box_nonce + _nonce(answer)
    _check_proof(answer, given, b"head", nonces)
    lines.trust()
    proof = _prove(given, b"box", nonces + request.encode())
    lines.send({"request": request, "proof": proof.hex()})
    answer = lines.receive()
    _raise_refusal(answer)
    sealed = _bytes(answer, "sealed")
    _check_proof(answer, given, b"pass", nonces + sealed)
    return msgspec.json.decode(_cipher(given, nonces, sealed), type=Pass)


def _raise_refusal(answer: dict[str, Any]) -> None:
    reason = answer.get("refused")
    if reason is None:
        return
    why = "has expired" if reason == EXPIRED else "was revoked, or is one of another cluster"
    raise StokerError(
        f"the join token {why}: stoker cluster token on the first box prints a new line"
    )


class _Lines:
    """Messages over a connection, with one time limit for all of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + _TIMEOUT_S
        self._received = b""

    def send(self, message: dict[str, str]) -> None:
        self._limit()
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._received:
            self._limit()
            data = self._connection.recv(_MAX_LINE_BYTES)
            if not data:
                raise ConnectionError("it closed the connection")
            if len(self._received) + len(data) > _MAX_LINE_BYTES:
                raise AdmissionError
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise AdmissionError from None
        if not isinstance(message, dict):
            raise AdmissionError
        return message

    def trust(self) -> None:
        """Extend the time limit for a peer that knows the secret: openssl may take a while."""
        self._deadline = time.monotonic() + _TIMEOUT_OF_KNOWN_PEER_S

    def _limit(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)


def _prove(token: JoinToken, role: bytes, message: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(token.secret), role + b"\0" + message, hashlib.sha256)


def _check_proof(message: dict[str, Any], token: JoinToken, role: bytes, proven: bytes) -> None:
    if not hmac.compare_digest(_bytes(message, "proof"), _prove(token, role, proven)):
        raise AdmissionError


def _cipher(token: JoinToken, nonces: bytes, data: bytes) -> bytes:
    """XOR data with a pad that only the two sides know. The same call encrypts and decrypts."""
    pad = b""
    while len(pad) < len(data):
        pad += _prove(token, b"pad", nonces + len(pad).to_bytes(4, "big"))
    return bytes(left ^ right for left, right in zip(data, pad, strict=False))


def _nonce(message: dict[str, Any]) -> bytes:
    found = _bytes(message, "nonce")
    if len(found) != _NONCE_BYTES:
        raise AdmissionError
    return found


def _text(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str) or not value.isascii():
        raise AdmissionError
    return value


def _bytes(message: dict[str, Any], name: str) -> bytes:
    value = _text(message, name)
    if not _HEX.fullmatch(value):
        raise AdmissionError
    return bytes.fromhex(value)
