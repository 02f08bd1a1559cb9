"""Variables by which the processes of a job on several GPUs find each other: MASTER_ADDR and MASTER_PORT.

torchrun, accelerate and Lightning let the processes of a job meet at a port. Two jobs that use the default
of their launcher want the same one, so each attempt gets a port of its own.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Container

_LOCAL = b"127.0.0.1"
_PORT_OF_TORCHRUN = b"PET_MASTER_PORT"  # torchrun does not read MASTER_PORT
_OURS = (b"MASTER_ADDR", b"MASTER_PORT", _PORT_OF_TORCHRUN)
_FIRST_PORT, _PORTS = 20000, 12768  # below 32768, where the kernel's own choice begins
_TRIES = 200
# What a launcher sets for the processes that it starts: with these, a job takes itself for one of them.
_OF_A_WORKER = frozenset(
    (b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"LOCAL_WORLD_SIZE", b"GROUP_RANK", b"GROUP_WORLD_SIZE")
)
_OF_TORCHRUN = b"TORCHELASTIC_"
_TORCHRUN_MARK = b"TORCHELASTIC_RUN_ID"  # every worker of torchrun has it


class RendezvousPorts:
    """The ports of running attempts. Each attempt gets another one, at which no process listens."""

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}

    def set_variables(
        self, env: dict[bytes, bytes], key: str, running: Container[str], gpus: int
    ) -> None:
        """Change the environment of an attempt that has so many GPUs. `running` are the attempts that run."""
        if gpus > 1 or _TORCHRUN_MARK in env:
            _drop_worker_variables(env)
        if gpus > 1:
            port = self._choose(key, running)
            if port is not None:
                env[b"MASTER_ADDR"] = _LOCAL
                env[b"MASTER_PORT"] = env[_PORT_OF_TORCHRUN] = b"%d" % port
        elif _PORT_OF_TORCHRUN in env and env[_PORT_OF_TORCHRUN] == env.get(b"MASTER_PORT"):
            for name in _OURS:  # those of the job that has added this one
                env.pop(name, None)

    def _choose(self, key: str, running: Container[str]) -> int | None:
        """Return a port for an attempt; None if none was found, then its launcher's default is as good."""
        self._ports = {other: port for other, port in self._ports.items() if other in running}
        used = set(self._ports.values())
        for _ in range(_TRIES):
            port = _FIRST_PORT + int.from_bytes(os.urandom(4), "big") % _PORTS
            if port not in used and _is_free(port):
                self._ports[key] = port
                return port
        return None


def _drop_worker_variables(env: dict[bytes, bytes]) -> None:
    for name in [each for each in env if each in _OF_A_WORKER or each.startswith(_OF_TORCHRUN)]:
        del env[name]


def _is_free(port: int) -> bool:
    """Whether a process could listen at a port, on all addresses as torch does."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - no listener
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True
