"""Exchange of a join token for Ray's token, between a joining box and the head.

    box   {"join": ID, "nonce": C}
    head  {"nonce": S, "proof": HMAC(secret, "head" C S)}        or {"refused": REASON}
    box   {"proof": HMAC(secret, "box" C S)}
    head  {"token": Ray's token XOR HMAC(secret, "pad" C S …), "proof": HMAC(secret, "token" C S …)}

Neither side sends the secret. The head proves first that it knows the secret, so a process that has
taken the head's port learns nothing. A listener on the network does not learn Ray's token here.
Each message is one line of JSON of at most 1 KiB. The head gives a connection five seconds.
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

from stoker.cluster.join_tokens import JoinToken, find_join_token
from stoker.cluster.settings import join_address, load_token
from stoker.errors import StokerError

_MAX_LINE_BYTES = 1024
_TIMEOUT_S = 5.0
_MAX_CONNECTIONS, _MAX_PER_ADDRESS = 64, 8
_RETRY_S = 5.0
_NONCE_BYTES = 32
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,512}")
EXPIRED, UNKNOWN = "expired", "unknown"


class AdmissionError(Exception):
    """The other side does not follow the protocol, or does not know the secret."""


class AdmissionServer:
    """Lets boxes in at one address and port, in threads of its own, until it is closed."""

    def __init__(self, home: str, address: str, port: int, log: Callable[[str], None]) -> None:
        self._home = home
        self._place = (address, port)
        self._log = log
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._open_by_address: Counter[str] = Counter()

    def start(self) -> None:
        """Listen from now on; if the port is taken, as soon as it is free."""
        threading.Thread(target=self._listen, name="admission", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
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
        """Whether one more connection from an address is served: one box must not keep others out."""
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
                self._admit(_Lines(connection))
        except (AdmissionError, OSError):
            pass  # whoever it was has been told nothing
        except StokerError as error:
            self._log(f"cannot let {address} join: {error}")
        finally:
            self._leave_place(address)

    def _admit(self, lines: _Lines) -> None:
        hello = lines.receive()
        token_id, box_nonce = _text(hello, "join"), _nonce(hello)
        known = self._find(token_id)
        if not isinstance(known, JoinToken):
            lines.send({"refused": known})
            return
        head_nonce = secrets.token_bytes(_NONCE_BYTES)
        nonces = box_nonce + head_nonce
        lines.send({"nonce": head_nonce.hex(), "proof": _prove(known, b"head", nonces).hex()})
        _check_proof(lines.receive(), known, b"box", nonces)
        ray_token = load_token(self._home)
        if ray_token is None or self._find(token_id) != known:  # revoked meanwhile
            lines.send({"refused": UNKNOWN})
            return
        sealed = _cipher(known, nonces, ray_token.encode())
        proof = _prove(known, b"token", nonces + sealed)
        lines.send({"token": sealed.hex(), "proof": proof.hex()})

    def _find(self, token_id: str) -> JoinToken | str:
        """The join token that a box speaks of, or why it does not let the box in."""
        known = find_join_token(self._home, token_id)
        if known is None:
            return UNKNOWN
        return EXPIRED if known.is_expired(time.time()) else known


def exchange_join_token(address: str, port: int, given: JoinToken) -> str:
    """Ray's token, from the head, for a join token; raises StokerError with the reason if it gives none."""
    place = join_address(address, port)
    try:
        with socket.create_connection((address, port), timeout=_TIMEOUT_S) as connection:
            return _ask(_Lines(connection), given)
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


def _ask(lines: _Lines, given: JoinToken) -> str:
    box_nonce = secrets.token_bytes(_NONCE_BYTES)
    lines.send({"join": given.id, "nonce": box_nonce.hex()})
    answer = lines.receive()
    _raise_refusal(answer)
    nonces = box_nonce + _nonce(answer)
    _check_proof(answer, given, b"head", nonces)
    lines.send({"proof": _prove(given, b"box", nonces).hex()})
    answer = lines.receive()
    _raise_refusal(answer)
    sealed = _bytes(answer, "token")
    _check_proof(answer, given, b"token", nonces + sealed)
    return _cipher(given, nonces, sealed).decode("ascii")


def _raise_refusal(answer: dict[str, Any]) -> None:
    reason = answer.get("refused")
    if reason is None:
        return
    why = "has expired" if reason == EXPIRED else "was revoked, or is one of another cluster"
    raise StokerError(
        f"the join token {why}: stoker cluster token on the first box prints a new line"
    )


class _Lines:
    """Messages over a connection, all within one time limit."""

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
    """Data XOR a pad that only the two sides know; the same call reads what it wrote."""
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
    if not isinstance(value, str):
        raise AdmissionError
    return value


def _bytes(message: dict[str, Any], name: str) -> bytes:
    value = _text(message, name)
    if not _HEX.fullmatch(value):
        raise AdmissionError
    return bytes.fromhex(value)
