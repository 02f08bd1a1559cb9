"""Client of a private engine: starts the engine's process and talks to it over a socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from typing import NoReturn

import msgspec

from stoker.core.job import Request
from stoker.errors import StokerError, UsageError
from stoker.task import messages
from stoker.task.job import WAITING, Job
from stoker.task.options import encode_texts

_BOOTSTRAP = (
    "import sys; path = sys.argv.pop(1).split(chr(10));"
    "sys.path += [each for each in path if each not in sys.path];"
    "from stoker.task.engine_child import main; main()"
)
_DEFAULT_REQUEST = Request()
_events = msgspec.msgpack.Decoder(messages.Event)


class EngineLostError(StokerError, BrokenExecutor):
    """The private engine died; everything it ran has been ended."""


class EngineSession:
    """A private engine: submits jobs to it and reports what happens to them.

    The engine and all process trees of its jobs end with this process, however it ends. `submit`,
    `cancel`, `answer`, `refuse` and `close` may be called from any thread, `events` from one.
    """

    def __init__(self, opening: messages.Open) -> None:
        self.jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._pid = os.getpid()
        self._unpacker = messages.Unpacker()
        self._closing = False
        self._cpu_places = opening.cpu_places
        self._notices: list[messages.Event] = []
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._child = _start_child(theirs.fileno())
        _sessions.add(self)
        self._send(opening)
        ready = self._wait_until_ready()
        self.folder = os.fsdecode(ready.folder)
        self.slots = ready.slots

    @property
    def child_pid(self) -> int:
        """The engine's process."""
        return self._child.pid

    def take_number(self) -> int:
        """Return the number of the next job, for a later `submit`."""
        return next(self._numbers)

    def submit(
        self,
        command: str,
        request: Request = _DEFAULT_REQUEST,
        *,
        number: int | None = None,
        argv: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        log: str | None = None,
        folder: str | None = None,
        params: str | None = None,
        ask: bool = False,
        warm: str | None = None,
        trace: str | None = None,
    ) -> Job:
        """Queue a job; UsageError if it could never run.

        `number` comes from `take_number`; the default is the next one. The other arguments are the
        fields of `messages.Submit`.
        """
        self._check_request(request)
        number = self.take_number() if number is None else number
        with self._lock:
            job = self.jobs[number] = Job(number=number, command=command, log=log, dir=folder)
            self._send(
                messages.Submit(
                    number=number,
                    command=os.fsencode(command),
                    request=request,
                    argv=None if argv is None else [os.fsencode(word) for word in argv],
                    env=encode_texts(env or {}),
                    log=None if log is None else os.fsencode(os.path.abspath(log)),
                    folder=None if folder is None else os.fsencode(os.path.abspath(folder)),
                    params=params,
                    ask=ask,
                    warm=warm,
                    trace=None if trace is None else os.fsencode(trace),
                )
            )
        return job

    def answer(self, job: Job, env: Mapping[str, str]) -> None:
        """Start a job that was asked about, with more environment variables."""
        self._send_locked(messages.Answer(job.number, encode_texts(env)))

    def refuse(self, job: Job, reason: str) -> None:
        """Fail a job that was asked about."""
        self._send_locked(messages.Answer(job.number, error=reason))

    def cancel(self, job: Job, *, running: bool = False, reason: str = "cancelled") -> None:
        """End a job that waits, with `running` also one that runs; an `Ended` event follows."""
        self._send_locked(messages.Cancel(job.number, running, reason))

    def close(self, *, kill: bool = False) -> None:
        """Announce that no more jobs will come; `kill` ends the present ones."""
        with self._lock:
            if kill or not self._closing:
                self._closing = True
                self._send(messages.Close(kill))

    def events(self) -> Iterator[tuple[messages.Event, Job | None]]:
        """Yield events as they happen, each with its job, until all jobs have ended after `close`.

        The job is up to date when its event is yielded. EngineLostError if the engine dies.
        """
        for event in self._notices:
            yield event, None
        self._notices.clear()
        while True:
            for event in self._receive():
                if isinstance(event, messages.Over):
                    self._hang_up()
                    return
                if isinstance(event, messages.Failed):
                    self._fail(event)
                yield event, self._update_job(event)

    def abandon(self) -> None:
        """End the engine and all its jobs at once."""
        if self._pid == os.getpid():
            self._hang_up()

    def drop(self) -> None:
        """Close the socket in a forked process: the engine belongs to the parent."""
        self._socket.close()

    def check_owner(self) -> None:
        """Raise StokerError in a process that was forked from the owner of the engine."""
        if self._pid != os.getpid():
            raise StokerError(
                "this process was forked from the one that has the engine: make its own"
            )

    def _update_job(self, event: messages.Event) -> Job | None:
        number = getattr(event, "number", None)
        if number is None:
            return None
        job = self.jobs[number]
        job.update(event)
        if isinstance(event, messages.Ended | messages.Skipped) and job.state != WAITING:
            del self.jobs[number]
        return job

    def _check_request(self, request: Request) -> None:
        self.check_owner()
        slots = request.slots
        if slots > len(self.slots):
            have = "is 1" if len(self.slots) == 1 else f"are {len(self.slots)}"
            raise UsageError(f"a job that needs {slots} slots would never start: there {have}")
        if slots < 0 or (slots == 0 and not self._cpu_places):
            raise UsageError(
                "a job without GPU needs places of its own: say how many may run at once"
            )

    def _wait_until_ready(self) -> messages.Ready:
        while True:
            for event in self._receive():
                if isinstance(event, messages.Ready):
                    return event
                if isinstance(event, messages.Failed):
                    self._fail(event)
                self._notices.append(event)

    def _fail(self, event: messages.Failed) -> NoReturn:
        self._hang_up()
        raise (UsageError if event.usage else StokerError)(event.message)

    def _receive(self) -> list[messages.Event]:
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            raise EngineLostError(
                f"Stoker's engine died ({_describe_exit(self._child.returncode)});"
                " everything it ran has been ended"
            )
        return [_events.decode(body) for body in self._unpacker.feed(data)]

    def _send_locked(self, order: messages.Order) -> None:
        with self._lock:
            self._send(order)

    def _send(self, order: messages.Order) -> None:
        with contextlib.suppress(OSError):  # the engine is gone: `events` raises that
            self._socket.sendall(messages.pack(order))

    def _hang_up(self) -> None:
        self._socket.close()
        self._child.wait()


_sessions: weakref.WeakSet[EngineSession] = weakref.WeakSet()


def _drop_all() -> None:
    for session in _sessions:
        session.drop()


os.register_at_fork(after_in_child=_drop_all)


def _start_child(fd: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise StokerError("this Python does not know its own program: sys.executable is empty")
    path = "\n".join(dict.fromkeys(os.path.abspath(each) for each in sys.path))
    command = [sys.executable, "-I", "-c", _BOOTSTRAP, path, str(os.getpid()), str(fd)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True
    )


def _describe_exit(status: int | None) -> str:
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit {status}"
