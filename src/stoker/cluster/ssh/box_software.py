"""Private environment of Stoker on a machine that is reached over ssh: copied, run and removed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stoker.accounts import printable
from stoker.cluster.ssh.box_records import Box
from stoker.cluster.ssh.bundle import Bundle
from stoker.cluster.ssh.connection import SshConnection
from stoker.cluster.ssh.remote_program import call
from stoker.errors import StokerError

_COPY_S = 3600.0  # over a slow network
_RUN_S = 360.0
_MAX_LINE = 500
MIB = 1 << 20

Say = Callable[[str], None]


class BoxSoftware:
    """An environment, named by its digest, and the interpreter that was on the machine before."""

    def __init__(self, connection: SshConnection, python: str, digest: str, say: Say) -> None:
        self._connection = connection
        self._python = python
        self._digest = digest
        self._say = say

    def record(self, address: str | None) -> Box:
        """Return what the head remembers of it; `address`: at which a tunnel leads to the machine."""
        return Box(
            target=self._connection.target,
            python=self._python,
            digest=self._digest,
            address=address,
        )

    def look(self) -> dict[str, Any]:
        """Look at the machine."""
        return call(self._connection, self._python, "look")

    def prune(self) -> None:
        """Remove the other environments there, except those whose programs still run."""
        call(self._connection, self._python, "prune", {"digest": self._digest})

    def copy(self, bundle: Bundle, home: str) -> None:
        """Copy the head's files there, to a new environment in this home."""
        began = time.monotonic()
        request = {"digest": self._digest}
        call(self._connection, self._python, "unpack", request, bundle.chunks(), _COPY_S)
        self._say(
            f"{bundle.label} copied to {home}/software ({bundle.size_bytes // MIB} MiB,"
            f" {time.monotonic() - began:.0f}s)"
        )

    def run(self, *words: str, env: dict[str, str] | None = None, is_login: bool = False) -> str:
        """Run its interpreter. Returns the last line of output, and says what is on standard error.

        Raises StokerError if it fails. With `is_login`, it has the environment of a login shell.
        """
        request = {"digest": self._digest, "words": words, "env": env or {}, "is_login": is_login}
        answer = call(self._connection, self._python, "run", request, timeout_s=_RUN_S)
        notes = answer["err"].splitlines()
        if answer["code"]:
            last = _plain((notes or ["no reason given"])[-1])
            raise StokerError(f"{self._connection.target}: {last}")
        for line in notes:
            self._say(_plain(line))
        return _plain((answer["out"].splitlines() or [""])[-1])

    def clear(self) -> None:
        """Remove what `add` and `join` have made there, and the Stoker home if nothing else is in it."""
        kept = call(self._connection, self._python, "clear")["kept"]
        if kept is not None:
            self._say(f"{kept} stays: it has other files")


def _plain(line: str) -> str:
    return printable(line.removeprefix("stoker: "), _MAX_LINE)
