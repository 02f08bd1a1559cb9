"""Connection to a machine by the system's `ssh`, which several commands share.

The user's own ssh configuration counts: keys, ProxyJump, known_hosts, ports. ssh asks for passwords only
if there is a terminal. The first command opens the connection, and the others go through it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import IO, NamedTuple

from stoker.accounts import printable
from stoker.errors import StokerError, UsageError

_FAILED = 255  # ssh's exit code if there is no connection
_CONNECT_S = 15
_KEEP_S = 60  # the shared connection ends this long after its last command
_MAX_BYTES = 1_000_000
_MAX_LINE = 300
# What ssh says, and what the user can do about it. The first that matches counts.
_REMEDIES = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {target} has changed: if you know why, ssh-keygen -R removes the old one here",
    ),
    (
        r"Host key verification failed",
        "the host key of {target} is not known here: run ssh {target} once, and check the key that it shows",
    ),
    (
        r"Permission denied",
        "{target} refuses the login ({said}): check the user, and that ssh {target} works without a password",
    ),
    (r"Could not resolve hostname", "there is no machine of that name: {said}"),
    (r"Too many authentication failures", "{target} refuses the login: {said}"),
)


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class SshConnection:
    """Connection to one machine; for a `with` block."""

    def __init__(self, target: str) -> None:
        self.target = check_target(target)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._options: list[str] = []

    def __enter__(self) -> SshConnection:  # noqa: PYI034 - Self came with Python 3.11
        # A socket's path is short; the folder has mode 0700.
        self._folder = tempfile.TemporaryDirectory(prefix="stoker-ssh-", dir="/tmp")
        path = os.path.join(self._folder.name, "socket")
        self._options = [
            *("-o", "ControlMaster=auto", "-o", f"ControlPath={path}"),
            *("-o", f"ControlPersist={_KEEP_S}", "-o", f"ConnectTimeout={_CONNECT_S}"),
            *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
            *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes"),
            *("-o", f"BatchMode={'no' if sys.stdin.isatty() else 'yes'}"),
        ]
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._folder is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["ssh", *self._options, "-O", "exit", "--", self.target],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CONNECT_S,
                check=False,
            )
        self._folder.cleanup()

    def run(self, command: str, chunks: Iterable[bytes], timeout_s: float) -> Ended:
        """Run a command of the login shell there, with these bytes as its input.

        Raises StokerError if there is no connection, or if the command takes longer than `timeout_s`.
        """
        words = ["ssh", *self._options, "-T", "--", self.target, command]
        # Files instead of pipes: the shared connection may keep its ends open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=err)
            except FileNotFoundError:
                raise StokerError("there is no ssh here: apt-get install openssh-client") from None
            with process:
                code = self._talk(process, chunks, timeout_s)
            ended = Ended(code, _read(out), _read(err))
        if code == _FAILED:
            raise StokerError(explain(self.target, ended.err))
        return ended

    def _talk(
        self, process: subprocess.Popen[bytes], chunks: Iterable[bytes], timeout_s: float
    ) -> int:
        """Write the input, and wait for the end. Both together take at most `timeout_s`."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()  # this ends a write, too

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            _feed(process, chunks)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        if is_late.is_set() and code < 0:
            raise StokerError(f"{self.target} has not answered within {timeout_s:.0f}s")
        return code


def explain(target: str, said: str) -> str:
    """Return why there is no connection, in one line, from what ssh has said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = printable(lines[-1] if lines else "no reason given", _MAX_LINE)
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, said):
            return remedy.format(target=target, said=last)
    return f"cannot connect to {target}: {last.removeprefix('ssh: ')}"


def check_target(target: str) -> str:
    """Return a machine as ssh names it; raise UsageError for text that ssh would take for an option."""
    if not target or target.startswith("-") or not target.isprintable() or " " in target:
        raise UsageError(f"{target!r} is no machine: write it as for ssh, user@host")
    return target


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its exit code says why
        for chunk in chunks:
            process.stdin.write(chunk)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_BYTES).decode(errors="replace")
