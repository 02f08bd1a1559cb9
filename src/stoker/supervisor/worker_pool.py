"""Warm workers as their supervisor sees them: started on demand, asked to fork, replaced when outdated."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from stoker.supervisor import process_tree, reports
from stoker.supervisor.signals import RESET_SIGNALS
from stoker.supervisor.slot_queues import Attempt, AttemptContext

_WORKER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "warm")
# The package under a name of its own: Stoker need not be installed where jobs run.
_BOOT = (
    "import sys, importlib.util as u; s = u.spec_from_file_location('_stoker_warm',"
    " sys.argv[1] + '/__init__.py', submodule_search_locations=[sys.argv[1]]);"
    " m = sys.modules[s.name] = u.module_from_spec(s); s.loader.exec_module(m);"
    " from _stoker_warm.worker import main; main()"
)
_PASSED_FD = 3
_IDLE_S = 600.0
_UNFIT_FOR_S = 600.0
_MOST_LOST = 3  # workers of one kind in a row, before anything was forked from them
_MOST_WORKERS = 4
_FORK_WITHIN_S = 10.0
_MOST_BYTES = 1 << 18
_WORDS_ROOM = 2048  # for the arguments of a job, as others see them
_MARK_ROOM = 512  # for what others must see in a job's environment, beside the cookie
# What a terminal, a login or a folder leaves in an environment, and no import asks for.
_PASSING = frozenset(
    b"PWD OLDPWD SHLVL _ TERM COLUMNS LINES WINDOWID TMUX TMUX_PANE STY DISPLAY SSH_TTY SSH_CLIENT"
    b" SSH_CONNECTION SSH_AUTH_SOCK XDG_SESSION_ID DBUS_SESSION_BUS_ADDRESS PS1"
    b" CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY".split()
)


class NoWarmStartError(Exception):
    """An attempt cannot be forked, and nothing of it runs; says why."""


class Worker:
    """A process that imports, then forks; and who waits for it until it can."""

    def __init__(
        self, pid: int, line: socket.socket, env: dict[bytes, bytes], used_at: float
    ) -> None:
        self.pid = pid
        self.line = line
        self.env = env
        self.used_at = used_at
        self.is_ready = False
        self.has_forked = False
        self.modules: list[str] = []
        self.stamps: list[tuple[str, int, int]] = []
        self.waiting: list[Attempt] = []

    def is_outdated(self) -> bool:
        """Whether a file that it was made of has changed since."""
        for path, mtime_ns, size in self.stamps:
            try:
                status = os.stat(path)
            except OSError:
                return True
            if status.st_mtime_ns != mtime_ns or status.st_size != size:
                return True
        return False

    def fork(self, order: dict[str, object], fds: list[int]) -> int:
        """Let it fork a job; NoWarmStartError if there is none, and none will come."""
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(_FORK_WITHIN_S)
            try:
                with theirs:
                    passed = array.array("i", [theirs.fileno(), *fds])
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]
                    self.line.sendmsg([json.dumps(order).encode()], rights)
                pid = ours.recv(32)
                if pid:
                    ours.send(b"!")  # from here on it runs
                    return int(pid)
            except OSError as error:
                raise NoWarmStartError(f"its warm worker does not answer ({error})") from error
        raise NoWarmStartError("its warm worker was killed")

    def end(self) -> None:
        """End it; what it has forked goes on."""
        self.line.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


Key = tuple[object, ...]


class WorkerPool:
    """All workers of a supervisor, by what they were made for."""

    def __init__(
        self,
        poll: select.epoll,
        tell: Callable[[str], None],
        resume: Callable[[Attempt], None],
        cookie_bytes: int,
        *,
        idle_s: float = _IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mark_room = cookie_bytes + _MARK_ROOM
        self._idle_s = idle_s
        self._clock = clock
        self._poll = poll
        self._tell = tell
        self._resume = resume
        self._workers: dict[Key, Worker] = {}
        self._unfit: dict[Key, tuple[str, float]] = {}
        self._lost: dict[Key, int] = {}
        self.by_fd: dict[int, Key] = {}

    def must_wait(self, attempt: Attempt) -> bool:
        """Whether an attempt has to wait for its worker; it will be told when that is over."""
        key = _key_of(attempt)
        if self._why_unfit(key) is not None:
            return False
        worker = self._workers.get(key)
        if worker is not None and worker.is_ready and worker.is_outdated():
            if not worker.has_forked:
                self._lose(key, "its modules change each time they are imported")
            self._let_go(key)
            if self._why_unfit(key) is not None:
                return False
            worker = None
        if worker is None:
            try:
                worker = self._start(key, attempt)
            except OSError as error:
                self._unfit[key] = (f"no warm worker could be started ({error})", self._clock())
                return False
        if worker.is_ready:
            return False
        worker.waiting.append(attempt)
        return True

    def fork(
        self, attempt: Attempt, env: dict[bytes, bytes], log_fd: int, leases: list[int]
    ) -> int:
        """The pid of a new child of this process, which runs the attempt; may raise NoWarmStartError."""
        warm = attempt.warm
        assert warm is not None
        key = _key_of(attempt)
        reason = self._why_unfit(key)
        if reason is not None:
            raise NoWarmStartError(reason)
        worker = self._workers.get(key)
        if worker is None or not worker.is_ready:
            raise NoWarmStartError("its warm worker was killed")
        worker.used_at = self._clock()
        own = {name: value for name, value in env.items() if worker.env.get(name) != value}
        shown = [
            name
            for name in (process_tree.COOKIE_BYTES, process_tree.LINGER.encode())
            if name in env
        ]
        order = {
            "words": warm.words,
            "at": warm.at,
            "cwd": attempt.context.cwd,
            "cold": attempt.argv,
            "learn": warm.learn,
            "set": _text(own),
            "unset": [os.fsdecode(name) for name in worker.env.keys() - env.keys()],
            "shown": {os.fsdecode(name): os.fsdecode(env[name]) for name in shown},
        }
        try:
            pid = worker.fork(order, [*((log_fd, log_fd) if log_fd >= 0 else (1, 2)), *leases])
        except NoWarmStartError:
            self._let_go(key)
            raise
        worker.has_forked = True
        self._lost.pop(key, None)
        return pid

    def revoke(self, key: str) -> Attempt | None:
        """Take an attempt back that waits for its worker."""
        for worker in self._workers.values():
            for attempt in worker.waiting:
                if attempt.key == key:
                    worker.waiting.remove(attempt)
                    return attempt
        return None

    def forget_waiting(self) -> None:
        """Take all attempts back that wait for a worker."""
        for worker in self._workers.values():
            worker.waiting.clear()

    def hear(self, fd: int) -> None:
        """A worker has imported everything, or cannot be used, or is gone."""
        key = self.by_fd[fd]
        worker = self._workers[key]
        try:
            data = worker.line.recv(_MOST_BYTES * 16)
        except OSError:
            data = b""
        said: list[Any] = json.loads(data) if data else ["gone"]
        if said[0] == "ready":
            worker.is_ready = True
            _word, worker.modules, worker.stamps = said
            self._tell(reports.warmed(worker.pid, worker.modules))
        else:
            if said[0] == "unfit":
                self._unfit[key] = (said[1], self._clock())
            elif not worker.is_ready:
                self._lose(key, "its warm worker was killed while it imported")
            self._let_go(key)
        waiting, worker.waiting = worker.waiting, []
        for attempt in waiting:
            self._resume(attempt)

    def retell(self) -> None:
        """Tell a new client which workers there are."""
        for worker in self._workers.values():
            if worker.is_ready:
                self._tell(reports.warmed(worker.pid, worker.modules))

    def close(self) -> None:
        """End all workers."""
        for key in list(self._workers):
            self._let_go(key)

    def _why_unfit(self, key: Key) -> str | None:
        """Why nothing can be forked for a key; forgotten after a while, for people mend things."""
        found = self._unfit.get(key)
        if found is None:
            return None
        reason, since = found
        if self._clock() - since < _UNFIT_FOR_S:
            return reason
        del self._unfit[key]
        return None

    def _lose(self, key: Key, reason: str) -> None:
        """A worker was of no use, perhaps by no fault of its own: those who wait try again, not for ever."""
        lost = self._lost.pop(key, 0) + 1
        if lost < _MOST_LOST:
            self._lost[key] = lost
        else:
            self._unfit[key] = (reason, self._clock())

    def _start(self, key: Key, attempt: Attempt) -> Worker:
        warm, context = attempt.warm, attempt.context
        assert warm is not None
        while len(self._workers) >= _MOST_WORKERS:
            idle = [(each.used_at, k) for k, each in self._workers.items() if each.is_ready]
            if not idle:
                break
            self._let_go(min(idle, key=lambda item: item[0])[1])
        given = {**context.env, **(attempt.env or {})}
        env = {name: value for name, value in given.items() if name not in _PASSING}
        mark = {process_tree.MARKER.encode(): b"warm".ljust(self._mark_room, b".")}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = warm.words[0]
        argv = [program, *warm.words[1 : warm.at], "-c", _BOOT, _WORKER, " " * _WORDS_ROOM]
        with theirs:
            actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), _PASSED_FD)]
            try:
                os.chdir(context.cwd)
                pid = os.posix_spawn(
                    program,
                    argv,
                    {**mark, **env},
                    file_actions=actions,
                    setsid=True,
                    setsigmask=[],
                    setsigdef=RESET_SIGNALS,
                )
            except OSError:
                ours.close()
                raise
            finally:
                os.chdir("/")
        plan = {
            "modules": warm.modules,
            "learned": warm.learned,
            "path": warm.path,
            "program": warm.words[warm.at],
            "idle_s": self._idle_s,
            "mark": process_tree.MARKER,
        }
        ours.send(json.dumps(plan).encode())
        ours.setblocking(False)
        worker = self._workers[key] = Worker(pid, ours, env, self._clock())
        self.by_fd[ours.fileno()] = key
        self._poll.register(ours.fileno(), select.EPOLLIN)
        return worker

    def _let_go(self, key: Key) -> None:
        worker = self._workers.pop(key)
        fd = worker.line.fileno()
        self._poll.unregister(fd)
        del self.by_fd[fd]
        worker.end()
        if worker.is_ready:
            self._tell(reports.cooled(worker.pid))


def _key_of(attempt: Attempt) -> Key:
    warm, context = attempt.warm, attempt.context
    assert warm is not None
    interpreter = tuple(warm.words[: warm.at])
    modules = (*warm.modules, warm.learned)
    own = frozenset(_matter(attempt.env or {}))
    return (interpreter, warm.path, modules, context.cwd, _relevant(context), own)


def _relevant(context: AttemptContext) -> frozenset[tuple[bytes, bytes]]:
    """What of an environment may matter to an import."""
    if context.relevant is None:
        context.relevant = frozenset(_matter(context.env))
    return context.relevant


def _matter(env: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in env.items():
        if name not in _PASSING and not name.startswith(b"STOKER_"):
            yield name, value


def _text(env: dict[bytes, bytes]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
