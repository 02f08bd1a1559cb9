"""The client's end of a private engine: no database, no loop and no signal handler, only a socket."""

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

from stoker.errors import StokerError, UsageError
from stoker.task import messages
from stoker.task.job import Job

Gpus = str | Sequence["str | int | Sequence[str | int]"]
"""GPUs as for `stoker run --gpus`, or a list of them, in which a list is one slot with several."""

_BOOTSTRAP = (
    "import sys; path = sys.argv.pop(1).split(chr(10));"
    "sys.path += [each for each in path if each not in sys.path];"
    "from stoker.task.engine_child import main; main()"
)
_events = msgspec.msgpack.Decoder(messages.Event)


class EngineLostError(StokerError, BrokenExecutor):
    """The private engine died; everything it ran has been ended."""


class EngineSession:
    """Starts a private engine, gives it jobs and hears what becomes of them.

    The engine and all trees of its jobs end with this process, however it ends. `submit`, `cancel`,
    `answer`, `refuse` and `close` may be called from any thread; `events` is for one.
    """

    def __init__(
        self,
        *,
        gpus: Gpus | None = None,
        jobs_per_gpu: int = 1,
        cpu_places: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        shell: str | None = None,
        record: Mapping[str, str] | None = None,
        resume: bool = False,
        max_failures: int | None = None,
        in_advance: bool = True,
        last_freed_first: bool = False,
        gpu_mem: int | None = None,
    ) -> None:
        spelled = None if gpus is None else spell_gpus(gpus)
        if not (cpu_places or spelled is None or spelled.strip(", +")):
            raise UsageError("no GPU is named: gpus='0,1', or gpus_per_job=0 for work without one")
        self.jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._pid = os.getpid()
        self._unpacker = messages.Unpacker()
        self._closing = False
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._child = _start_child(theirs.fileno())
        _sessions.add(self)
        self._send(
            messages.Open(
                env=encode_env(os.environ if env is None else env),
                cwd=os.fsencode(_find_cwd() if cwd is None else os.path.abspath(cwd)),
                gpus=spelled,
                jobs_per_gpu=jobs_per_gpu,
                cpu_places=cpu_places,
                shell=shell,
                record=None
                if record is None
                else {name: os.fsencode(value) for name, value in record.items()},
                resume=resume,
                max_failures=max_failures,
                in_advance=in_advance,
                last_freed_first=last_freed_first,
                gpu_mem=gpu_mem,
            )
        )
        self._cpu_places = cpu_places
        self._notices: list[messages.Event] = []
        ready = self._wait_until_ready()
        self.folder = os.fsdecode(ready.folder)
        self.slots = ready.slots

    @property
    def child_pid(self) -> int:
        """The engine's process."""
        return self._child.pid

    def take_number(self) -> int:
        """A number for a job that is to be submitted."""
        return next(self._numbers)

    def submit(
        self,
        command: str | bytes,
        *,
        number: int | None = None,
        argv: Sequence[str | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        log: str | None = None,
        folder: str | None = None,
        params: str | None = None,
        slots: int = 1,
        priority: int = 0,
        timeout_s: float | None = None,
        retries: int = 0,
        ask: bool = False,
        warm: str | None = None,
        share: str | None = None,
        trace: str | None = None,
    ) -> Job:
        """Let a job wait for its slots; UsageError if it could never run.

        `number` is one that `take_number` gave, by default the next.
        `command` is a shell line, or with `argv` only how the job is called. `env` is added to the
        session's environment. With `ask`, an `Asked` event comes once the job has its slots, and it
        starts after `answer`. `folder` is made when it starts, with `params` in params.json, gets
        its output in log.txt, and is told to it in STOKER_RUN_DIR. With `warm` a python command
        finds imported what the first job of that name has imported. It shares its
        GPU as `share` says, with others that do. In the file `trace` it tells what it raised.
        """
        self._check_room(slots)
        text = os.fsdecode(command)
        number = self.take_number() if number is None else number
        with self._lock:
            job = Job(number=number, command=text, log=log, dir=folder)
            self.jobs[job.number] = job
            self._send(
                messages.Submit(
                    number=job.number,
                    command=os.fsencode(command),
                    argv=None if argv is None else [os.fsencode(word) for word in argv],
                    env=encode_env(env or {}),
                    cwd=None if cwd is None else os.fsencode(os.path.abspath(cwd)),
                    log=None if log is None else os.fsencode(os.path.abspath(log)),
                    folder=None if folder is None else os.fsencode(os.path.abspath(folder)),
                    params=params,
                    slots=slots,
                    priority=priority,
                    timeout_s=timeout_s,
                    retries=retries,
                    ask=ask,
                    warm=warm,
                    share=share,
                    trace=None if trace is None else os.fsencode(trace),
                )
            )
        return job

    def answer(self, job: Job, env: Mapping[str, str]) -> None:
        """Say what a job that was asked about has in its environment besides."""
        self._send_locked(messages.Answer(job.number, encode_env(env)))

    def refuse(self, job: Job, reason: str) -> None:
        """Say why a job that was asked about cannot start: it has failed."""
        self._send_locked(messages.Answer(job.number, error=reason))

    def cancel(self, job: Job, *, running: bool = False, reason: str = "cancelled") -> None:
        """End a job: one that waits, with `running` also one that runs; an `Ended` tells of it."""
        self._send_locked(messages.Cancel(job.number, running, reason))

    def close(self, *, kill: bool = False) -> None:
        """Say that no more jobs will come; with `kill` end those that are there."""
        with self._lock:
            if kill or not self._closing:
                self._closing = True
                self._send(messages.Close(kill))

    def events(self) -> Iterator[tuple[messages.Event, Job | None]]:
        """What happens, and to which job, as it happens; ends after `close`, when all is over.

        A job has learned of an event when it comes. EngineLostError if the engine dies.
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
                number = getattr(event, "number", None)
                job = None if number is None else self.jobs[number]
                if job is not None:
                    job.learn(event)
                    if (
                        isinstance(event, messages.Ended | messages.Passed)
                        and job.state != "waiting"
                    ):
                        del self.jobs[job.number]
                yield event, job

    def abandon(self) -> None:
        """End everything at once, without another word."""
        if self._pid == os.getpid():
            self._hang_up()

    def drop(self) -> None:
        """Let go in a process that was forked: the engine is the other's."""
        self._ours.close()

    def check_owner(self) -> None:
        """Raise StokerError in a process that was forked from the one whose engine it is."""
        if self._pid != os.getpid():
            raise StokerError(
                "this process was forked from the one that has the engine: make its own"
            )

    def _check_room(self, slots: int) -> None:
        self.check_owner()
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
            data = self._ours.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            raise EngineLostError(
                f"Stoker's engine died ({_describe(self._child.returncode)});"
                " everything it ran has been ended"
            )
        return [_events.decode(body) for body in self._unpacker.feed(data)]

    def _send_locked(self, order: messages.Order) -> None:
        with self._lock:
            self._send(order)

    def _send(self, order: messages.Order) -> None:
        with contextlib.suppress(OSError):  # the engine is gone: `events` tells
            self._ours.sendall(messages.pack(order))

    def _hang_up(self) -> None:
        self._ours.close()
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


def spell_gpus(gpus: Gpus) -> str:
    """GPUs as one text, as `--gpus` takes it."""
    if isinstance(gpus, str):
        return gpus
    slots = ["+".join(map(str, [each] if isinstance(each, str | int) else each)) for each in gpus]
    if not all(slots):
        raise UsageError("a slot without a GPU: name at least one in each")
    return ",".join(slots)


def encode_env(env: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment as bytes; TypeError if it holds anything but texts."""
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def _find_cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise StokerError("the folder you are in is gone: chdir to one that exists") from None


def _describe(status: int | None) -> str:
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit {status}"
