"""A queue of a test's own: the real program, the real daemon, real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from patience import PATIENCE_S
from stoker.cli.arguments import Args
from stoker.cli.verbs import daemon

if TYPE_CHECKING:
    from conftest import Ended, Stoker

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def state_of(pid: int) -> str:
    """The letter that /proc shows for a process: T is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def free_port() -> str:
    """A port that nobody listens at, and that no daemon of another test would choose by itself."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


class Queue:
    """`stoker VERB …` in a home of the test's own, on the fake GPUs 0 and 1."""

    def __init__(self, stoker: Stoker) -> None:
        self.stoker = stoker
        self.home = stoker.home
        self.work = stoker.work
        self.env = stoker.env

    def start(self, gpus: str | None = "0,1") -> None:
        """Start the daemon, on these GPUs; None for all."""
        self._daemon("start", gpus=gpus)

    def __call__(
        self,
        *words: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run `stoker WORDS` to its end."""
        return self.stoker.end(self.stoker.start(*words, env=env), stdin)

    def ok(self, *words: str | bytes, stdin: str | bytes = b"") -> str:
        """The output of `stoker WORDS`, which must succeed."""
        ended = self(*words, stdin=stdin)
        assert ended.code == 0, (words, ended)
        return ended.out

    def add(self, *words: str | bytes) -> int:
        """The id of a job that is added."""
        return int(self.ok("add", "-q", *words))

    def show(self, job: int | str = "@") -> dict[str, Any]:
        """Everything about a job."""
        found = json.loads(self.ok("show", "--json", "--env", str(job)))
        assert isinstance(found, dict)
        return found

    def ls(self, *words: str) -> dict[int, dict[str, Any]]:
        """The jobs that are listed."""
        return {job["id"]: job for job in json.loads(self.ok("ls", "--json", *words))}

    def states(self) -> dict[int, str]:
        """The states of all jobs."""
        return {number: job["state"] for number, job in sorted(self.ls().items())}

    def until_running(self, job: int) -> int:
        """Wait until a job runs; its pid."""

        def pid() -> int:
            found = self.show(job)
            return found["attempts"][-1]["pid"] or 0 if found["state"] == "running" else 0

        return self.stoker.until(pid, f"job {job} runs")

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL; the next verb starts another."""
        pid = json.loads(self.ok("status", "--json"))["pid"]
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.stoker.is_alive(pid), "the daemon is gone")

    def until(self, fact: Callable[[], object], what: str = "") -> None:
        """Wait until something is so."""
        self.stoker.until(fact, what)

    @contextlib.contextmanager
    def terminal(self, *words: str, columns: int = 100, lines: int = 30) -> Iterator[Terminal]:
        """Run `stoker WORDS` on a terminal."""
        terminal = Terminal(self, words, columns, lines)
        try:
            yield terminal
        finally:
            terminal.close()

    def shown(self, *words: str, columns: int = 100, lines: int = 30) -> str:
        """What `stoker WORDS` shows on a terminal, without its colours."""
        with self.terminal(*words, columns=columns, lines=lines) as terminal:
            terminal.read_all()
            return terminal.plain()

    def close(self) -> None:
        """End the daemon and all it runs."""
        if (self.home / "stoker.sock").exists():
            self._daemon("stop", kill=True)

    def _daemon(self, action: str, *, gpus: str | None = None, kill: bool = False) -> None:
        """Do what `stoker daemon` does, without an interpreter of its own: most tests need that twice."""
        args = Args(action=action, gpus=gpus, kill=kill, json=False)
        with patch.dict(os.environ, self.env, clear=True):
            assert daemon.run(args) == 0


class Terminal:
    """A stoker on a terminal, and all that was ever shown there."""

    def __init__(self, queue: Queue, words: tuple[str, ...], columns: int, lines: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = queue.stoker.adopt(
            subprocess.Popen(
                [sys.executable, "-m", "stoker", *words],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env={**queue.env, "TERM": "xterm-256color"},
                cwd=queue.work,
                start_new_session=True,
            )
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, fact: Callable[[str], object], deadline_s: float = PATIENCE_S) -> None:
        """Read until what was shown, without its colours, is as it should be."""
        deadline = time.monotonic() + deadline_s
        while not fact(self.plain()):
            assert time.monotonic() < deadline, self.plain()
            assert self._read(), self.plain()

    def read_all(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(timeout=PATIENCE_S)

    def plain(self) -> str:
        """What was shown, without colours and cursor movements."""
        return COLOURS.sub("", self.text).replace("\r\n", "\n")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        """Hang up."""
        os.close(self._ours)

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other end of a terminal is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
