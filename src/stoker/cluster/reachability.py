"""Proof that the head and a joining box reach each other's ports, before the box joins.

Behind a firewall or NAT, Ray would start on the box and never work. So the box listens at its ports for a
moment and asks the head, at the port where boxes join, to connect to them. The head answers what it reached,
and listens at one of its own ports for worker processes, which the box then tries.

    box   {"reach": N, "address": A, "ports": [P, …], "proof": HMAC(Ray's token, "reach" N A P …)}
    head  {"seen": B, "open": [P, …], "ports": [Q, …], "proof": HMAC(Ray's token, "reached" N B …)}

B is the address from which the head sees the box. Only a member has Ray's token, so no other program can make
the head connect to anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from stoker.cluster.settings import PORT_COUNT, join_address
from stoker.errors import StokerError

_CONNECT_S = 3.0
_ANSWER_S = 15.0
_MAX_BYTES = 4096
_NONCE_BYTES = 32


class Reached(NamedTuple):
    """What the head reached: the address at which it sees the box, its open ports, and the head's own."""

    seen: str
    open: list[int]
    ports: list[int]


def prove_question(token: str, nonce: str, address: str, ports: Sequence[int]) -> str:
    """Return the proof of a question."""
    return _prove(token, "reach", nonce, address, *map(str, ports))


def prove_answer(token: str, nonce: str, reached: Reached) -> str:
    """Return the proof of an answer."""
    return _prove(
        token,
        "reached",
        nonce,
        reached.seen,
        *map(str, reached.open),
        "-",
        *map(str, reached.ports),
    )


def _prove(token: str, *words: str) -> str:
    message = b"\0".join(word.encode() for word in words)
    return hmac.digest(token.encode(), message, hashlib.sha256).hex()


def try_ports(address: str, ports: Sequence[int]) -> list[int]:
    """Return those of these ports to which a connection is possible."""
    with ThreadPoolExecutor(max(1, len(ports))) as threads:
        is_open = threads.map(lambda port: _can_connect(address, port), ports)
        return [port for port, answers in zip(ports, is_open, strict=True) if answers]


def _can_connect(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def listening(address: str, ports: Iterable[int], most: int = PORT_COUNT) -> Iterator[list[int]]:
    """Listen at those of these ports of an address that are free; yields them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in ports:
            if len(found) == most:
                break
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server((address, port), family=family))
                found.append(port)
        yield found


def check_reachability(
    head: tuple[str, int], join_port: int, token: str, own_address: str, first_port: int
) -> None:
    """Raise StokerError unless this box and the head reach each other's ports. `head`: its address and port.

    Nothing is checked with a head that does not know the question: one of an older Stoker, or of Ray alone.
    """
    wanted = [first_port, first_port + 1, first_port + PORT_COUNT - 1]
    with listening(own_address, wanted) as ports, contextlib.ExitStack() as stack:
        try:
            connection = socket.create_connection((head[0], join_port), timeout=_ANSWER_S)
        except OSError:
            return  # Stoker has not started this Ray
        stack.enter_context(connection)
        reached = _ask(connection, token, own_address, ports)
        if reached is None:
            return
        closed = set(reached.ports) - set(try_ports(head[0], reached.ports))
    own_range = f"{first_port}-{first_port + PORT_COUNT - 1}"
    if reached.seen != own_address:
        raise StokerError(
            f"the head sees this box at {reached.seen}, and its own address is {own_address}: NAT is between"
            " the two, and Ray needs a direct way. Connect the boxes by a VPN, such as WireGuard, and join"
            " by the addresses that they have there"
        )
    if unreached := sorted(set(ports) - set(reached.open)):
        raise StokerError(
            f"the head cannot reach this box at {_list(own_address, unreached)}: let its firewall pass TCP"
            f" from {head[0]} to {own_address}, ports {own_range}"
        )
    if closed:
        last = max(reached.ports)
        raise StokerError(
            f"this box cannot reach the head at {_list(head[0], sorted(closed))}: let its firewall pass TCP"
            f" from {own_address} to {head[0]}, ports {head[1]}-{last}"
        )


def _ask(
    connection: socket.socket, token: str, own_address: str, ports: list[int]
) -> Reached | None:
    nonce = secrets.token_hex(_NONCE_BYTES)
    question = {
        "reach": nonce,
        "address": own_address,
        "ports": ports,
        "proof": prove_question(token, nonce, own_address, ports),
    }
    try:
        connection.sendall(json.dumps(question).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n") and len(received) < _MAX_BYTES:
            data = connection.recv(_MAX_BYTES)
            if not data:
                return None
            received += data
        answer = json.loads(received)
        reached = Reached(str(answer["seen"]), [*answer["open"]], [*map(int, answer["ports"])])
        is_proven = hmac.compare_digest(str(answer["proof"]), prove_answer(token, nonce, reached))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return reached if is_proven else None


def _list(address: str, ports: Sequence[int]) -> str:
    return ", ".join(join_address(address, port) for port in ports)
