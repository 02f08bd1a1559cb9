"""Exchange of a join token for Ray's token and a certificate, between a joining box and the head.

    box   {"join": ID, "nonce": C}
    head  {"nonce": S, "proof": HMAC(secret, "head" C S)}                or {"refused": REASON}
    box   {"request": R, "proof": HMAC(secret, "box" C S R)}             R: certificate request, or ""
    head  {"sealed": X, "proof": HMAC(secret, "pass" C S X)}             X: Pass XOR HMAC(secret, "pad" C S …)

At the same port members ask for the session of Ray on the head, and whether the head reaches their ports:
see `head_session` and `reachability`.

Neither side sends the secret. The head proves first that it knows the secret, so a process that has
taken the head's port learns nothing. A listener on the network does not learn Ray's token here.
Each message is one line of JSON. A peer that has proven nothing yet has five seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

from stoker.cluster.authority import find_authority, sign_request
from stoker.cluster.head_session import prove_session
from stoker.cluster.join_tokens import JoinToken, find_join_token
from stoker.cluster.reachability import (
    Reached,
    listening,
    prove_answer,
    prove_question,
    try_ports,
)
from stoker.cluster.settings import join_address, load_settings, load_token
from stoker.errors import StokerError

_MAX_LINE_BYTES = 16384
_TIMEOUT_S, _TIMEOUT_OF_KNOWN_PEER_S = 5.0, 60.0
_MAX_CONNECTIONS, _MAX_PER_ADDRESS = 256, 8
_RETRY_S = 5.0
_NONCE_BYTES = 32
EXPIRED, UNKNOWN = "expired", "unknown"


_Ascii = Annotated[str, msgspec.Meta(pattern=r"\A[\x00-\x7f]*\Z")]
_Hex = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{2}){1,8192}\Z")]
_Nonce = Annotated[str, msgspec.Meta(pattern=rf"\A[0-9a-f]{{{2 * _NONCE_BYTES}}}\Z")]
_T = TypeVar("_T")


class _Hello(msgspec.Struct, frozen=True):
    join: _Ascii
    nonce: _Nonce


class _SessionQuestion(msgspec.Struct, frozen=True):
    session: _Nonce


class _ReachQuestion(msgspec.Struct, frozen=True):
    reach: _Nonce
    address: _Ascii
    ports: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=65535)]], msgspec.Meta(max_length=8)]
    proof: _Hex


class _ReachAnswer(msgspec.Struct, frozen=True):
    seen: str
    open: list[int]
    ports: list[int]
    proof: str


class _SessionAnswer(msgspec.Struct, frozen=True):
    session: str
    proof: str


class _Challenge(msgspec.Struct, frozen=True):
    nonce: _Nonce
    proof: _Hex


class _Request(msgspec.Struct, frozen=True):
    request: _Ascii
    proof: _Hex


class _Answer(msgspec.Struct, frozen=True):
    sealed: _Hex
    proof: _Hex


class _Refusal(msgspec.Struct, frozen=True):
    refused: str | None = None


class AdmissionError(Exception):
    """The other side does not follow the protocol, or does not know the secret."""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What a box needs to join a cluster: Ray's token, and certificates if the head makes them."""

    token: str
    authority: str | None = None
    certificate: str | None = None


class AdmissionServer:
    """Server of the head that admits boxes at one address and port, in its own threads, until closed.

    `session` returns the id of Ray's session; empty while Ray does not run.
    """

    def __init__(
        self,
        home: str,
        address: str,
        port: int,
        log: Callable[[str], None],
        session: Callable[[], str] = str,
    ) -> None:
        self._home = home
        self._address = (address, port)
        self._log = log
        self._session = session
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
                family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
                with socket.create_server(self._address, family=family) as listener:
                    said = ""
                    self._accept(listener)
            except OSError as error:
                reason = f"cannot let boxes join at {join_address(*self._address)}: {error}"
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
            if not self._admit_connection(peer[0]):
                connection.close()
                continue
            work = threading.Thread(target=self._serve, args=(connection, peer[0]), daemon=True)
            try:
                work.start()
            except RuntimeError:  # no more threads
                self._end_connection(peer[0])
                connection.close()

    def _admit_connection(self, address: str) -> bool:
        """Whether one more connection from an address is served: one box must not block the others."""
        with self._lock:
            if (
                self._open_by_address.total() >= _MAX_CONNECTIONS
                or self._open_by_address[address] >= _MAX_PER_ADDRESS
            ):
                return False
            self._open_by_address[address] += 1
            return True

    def _end_connection(self, address: str) -> None:
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
            self._end_connection(address)

    def _admit(self, lines: _Lines, address: str) -> None:
        hello = lines.receive_one_of(_Hello, _SessionQuestion, _ReachQuestion)
        if isinstance(hello, _SessionQuestion | _ReachQuestion):
            self._answer_member(lines, hello, address)
            return
        assert isinstance(hello, _Hello)
        known = self._find(hello.join)
        if not isinstance(known, JoinToken):
            lines.send(_Refusal(known))
            return
        head_nonce = secrets.token_bytes(_NONCE_BYTES)
        nonces = bytes.fromhex(hello.nonce) + head_nonce
        lines.send(_Challenge(head_nonce.hex(), _prove(known, b"head", nonces)))
        asked = lines.receive(_Request)
        _check_proof(asked.proof, known, b"box", nonces + asked.request.encode())
        lines.trust()
        made = self._make_pass(asked.request, known.address or address)
        if made is None or self._find(hello.join) != known:  # revoked meanwhile
            lines.send(_Refusal(UNKNOWN))
            return
        sealed = _cipher(known, nonces, msgspec.json.encode(made))
        lines.send(_Answer(sealed.hex(), _prove(known, b"pass", nonces + sealed)))

    def _answer_member(
        self, lines: _Lines, question: _SessionQuestion | _ReachQuestion, address: str
    ) -> None:
        token = load_token(self._home)
        if token is None:
            return
        if isinstance(question, _ReachQuestion):
            self._try_ports(lines, question, address, token)
            return
        session = self._session()
        lines.send(_SessionAnswer(session, prove_session(token, question.session, session)))

    def _try_ports(self, lines: _Lines, question: _ReachQuestion, address: str, token: str) -> None:
        """Connect to the ports of a joining box, and listen at one for it to try."""
        proof = prove_question(token, question.reach, question.address, question.ports)
        if not hmac.compare_digest(question.proof, proof):
            raise AdmissionError
        lines.trust()
        settings = load_settings(self._home)
        own = None if settings is None else settings.ray_ports
        workers = [] if own is None else range(own.last_worker, own.first_worker - 1, -1)
        fixed = [] if own is None else [own.node_manager, own.object_manager]
        with listening(self._address[0], workers, most=1) as worker:
            reached = Reached(address, try_ports(address, question.ports), [*fixed, *worker])
            lines.send(_ReachAnswer(*reached, prove_answer(token, question.reach, reached)))
            with contextlib.suppress(ConnectionError):  # it closes when it has tried
                lines.receive(_Hello)

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
    lines.send(_Hello(given.id, box_nonce.hex()))
    challenge = lines.receive_answer(_Challenge)
    nonces = box_nonce + bytes.fromhex(challenge.nonce)
    _check_proof(challenge.proof, given, b"head", nonces)
    lines.trust()
    lines.send(_Request(request, _prove(given, b"box", nonces + request.encode())))
    answer = lines.receive_answer(_Answer)
    sealed = bytes.fromhex(answer.sealed)
    _check_proof(answer.proof, given, b"pass", nonces + sealed)
    return msgspec.json.decode(_cipher(given, nonces, sealed), type=Pass)


class _Lines:
    """Messages over a connection, with one time limit for all of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + _TIMEOUT_S
        self._received = b""

    def send(self, message: msgspec.Struct) -> None:
        self._limit()
        self._connection.sendall(msgspec.json.encode(message) + b"\n")

    def receive_answer(self, kind: type[_T]) -> _T:
        """Receive a message of the head; raise StokerError with the reason if the head refuses."""
        line = self._receive_line()
        reason = _decode(line, _Refusal).refused
        if reason is None:
            return _decode(line, kind)
        why = "has expired" if reason == EXPIRED else "was revoked, or is one of another cluster"
        raise StokerError(
            f"the join token {why}: stoker cluster token on the first box prints a new line"
        )

    def receive(self, kind: type[_T]) -> _T:
        return _decode(self._receive_line(), kind)

    def receive_one_of(self, *kinds: type[msgspec.Struct]) -> msgspec.Struct:
        line = self._receive_line()
        for kind in kinds:
            with contextlib.suppress(AdmissionError):
                return _decode(line, kind)
        raise AdmissionError

    def _receive_line(self) -> bytes:
        while b"\n" not in self._received:
            self._limit()
            data = self._connection.recv(_MAX_LINE_BYTES)
            if not data:
                raise ConnectionError("it closed the connection")
            if len(self._received) + len(data) > _MAX_LINE_BYTES:
                raise AdmissionError
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def trust(self) -> None:
        """Extend the time limit for a peer that knows the secret: openssl may take a while."""
        self._deadline = time.monotonic() + _TIMEOUT_OF_KNOWN_PEER_S

    def _limit(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)


def _decode(line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (ValueError, RecursionError):
        raise AdmissionError from None


def _prove(token: JoinToken, role: bytes, message: bytes) -> str:
    return _digest(token, role, message).hex()


def _digest(token: JoinToken, role: bytes, message: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(token.secret), role + b"\0" + message, hashlib.sha256)


def _check_proof(proof: str, token: JoinToken, role: bytes, proven: bytes) -> None:
    if not hmac.compare_digest(proof, _prove(token, role, proven)):
        raise AdmissionError


def _cipher(token: JoinToken, nonces: bytes, data: bytes) -> bytes:
    """XOR data with a pad that only the two sides know. The same call encrypts and decrypts."""
    pad = b""
    while len(pad) < len(data):
        pad += _digest(token, b"pad", nonces + len(pad).to_bytes(4, "big"))
    return bytes(left ^ right for left, right in zip(data, pad, strict=False))
