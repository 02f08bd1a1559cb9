"""Runs attempts on this machine through a shepherd that outlives this process, for the daemon."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from stoker import __version__
from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.atlas import Atlas, Message
from stoker.executors.contract import (
    Ended,
    ExecutorLostError,
    Launch,
    Lost,
    Report,
    Started,
    Synced,
)
from stoker.executors.line import Hello, Line
from stoker.executors.shepherd import sockets
from stoker.executors.shepherd.spawn import start_keeper
from stoker.executors.shepherd.wire import LOWEST_PROTOCOL, PROTOCOL, WARM_PROTOCOL

_PATIENCE_S = 10.0
_START_PATIENCE_S = 5.0
_STOP_PATIENCE_S = 20.0
_CONTEXTS_HELD = 64
# Those used last are remembered for a new shepherd; callers define anew what they have not used for so long.
_CONTEXTS_KNOWN = 256
_MOST_DEATHS = 3


class KeptExecutor:
    """Keeps the executor contract by talking to a shepherd at a socket, which it starts if need be.

    When the shepherd dies, `observe` starts another and tells what that one has found.
    """

    def __init__(self, *, name: str, socket: str, journal: str, log: str = os.devnull) -> None:
        assert not {*" /:\n"} & {*name}, f"{name!r} does not do for a cookie"
        self._name = name
        self._path = socket
        self._journal = journal
        self._log = log
        self._atlas = Atlas()
        self._contexts: OrderedDict[int, Message] = OrderedDict()
        self._held_contexts: OrderedDict[int, None] = OrderedDict()
        self._children: set[int] = set()
        self._deaths = 0
        self._orphans: dict[str, int] = {}
        self._news: list[Report] = []
        self._is_stopped = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._bell, select.EPOLLIN)
        try:
            self._line = self._open_line()
        except BaseException:
            self._let_go()
            raise

    @property
    def pids(self) -> list[int]:
        """The shepherd's own."""
        return [self._line.pid]

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Tell the shepherd."""
        self._line.send(*(self._atlas.enter(slot) for slot in slots))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember it; the shepherd is told when something is launched in it."""
        if number not in self._contexts:
            self._contexts[number] = ["context", number, dict(env), cwd, shell]
            if len(self._contexts) > _CONTEXTS_KNOWN:
                self._contexts.popitem(last=False)

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        self._line.send(["hold", slot])

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._line.send(["release", slot, list(gpu_keys)])

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write, with the contexts and places they need."""
        messages: list[Message] = []
        for order in launches:
            messages += self._provide_context(order.context)
            place, definition = self._atlas.place(order.slots)
            messages += definition
            start = ["start", order.key, order.context, place, order.argv, order.log]
            forks = order.warm is not None and self._line.protocol >= WARM_PROTOCOL
            messages.append([*start, dict(order.env or {}), order.warm] if forks else start)
        if messages:
            self._line.send(*messages)

    def _provide_context(self, number: int) -> list[Message]:
        self._contexts.move_to_end(number)
        if number in self._held_contexts:
            self._held_contexts.move_to_end(number)
            return []
        messages = [self._contexts[number]]
        if len(self._held_contexts) >= _CONTEXTS_HELD:
            oldest, _ = self._held_contexts.popitem(last=False)
            messages.append(["forget", oldest])
        self._held_contexts[number] = None
        return messages

    def observe(self) -> list[Report]:
        """Read all reports that have arrived; if the shepherd is gone, find or start another."""
        reports = self._take_news()
        heard = [] if self._is_stopped else self._line.receive()
        if heard is None:
            self._close_line()
            self._line = self._open_line()
            # Whoever is there now, what this client held is held no more.
            heard = [_as_fresh(report) for report in self._take_news()]
        reports += heard
        if self._orphans:
            self._bury(reports)
        return reports

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Let the shepherd forget ends."""
        if keys:
            self._line.send(["ack", list(keys)])

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._line.send(["revoke", key])

    def signal(self, key: str, signum: int) -> None:
        """Signal a tree."""
        self._line.send(["signal", key, int(signum)])

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._line.send(["kill", key])

    def finish(self) -> None:
        """Ask to be told when nothing is left."""
        self._line.send(["finish"])

    def stop(self, kill: bool) -> list[Report]:
        """Let the shepherd go, with `kill` after every tree has ended, else if nothing runs.

        Returns what it has told until then. Whatever is not acknowledged is told to the next client.
        """
        reports = self._take_news()
        reports += _stop(self._line, kill)
        if not self._line.is_busy and not self._is_stopped:
            self._is_stopped = True  # nobody is there any more, and nobody is to be started
            self._poll.unregister(self._line.socket)
            self._line.hang_up()
        self._reap()
        return reports

    def close(self) -> None:
        """Let go; what runs goes on, and so does the shepherd while there is anything to do."""
        if not self._poll.closed:
            self._close_line()
            self._let_go()

    def _let_go(self) -> None:
        self._poll.close()
        os.close(self._bell)
        self._reap()

    def _close_line(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(self._line.socket)
        self._line.socket.close()
        self._reap()

    def _reap(self) -> None:
        """See off shepherds that were our children."""
        for pid in list(self._children):
            try:
                gone, _status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                gone = pid
            if gone:
                self._children.discard(pid)

    def _bury(self, reports: Sequence[Report]) -> None:
        """Where jobs without a shepherd become children of this process, see them off too."""
        for report in reports:
            if isinstance(report, Ended | Lost) and report.key in self._orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._orphans.pop(report.key), os.WNOHANG)

    def _take_news(self) -> list[Report]:
        if self._news:
            os.eventfd_read(self._bell)
        reports, self._news = self._news, []
        return reports

    def _open_line(self) -> Line:
        """Find or start a shepherd, and learn all it knows."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            line = self._connect(deadline)
            try:
                is_synced = self._sync(line, deadline)
            except StokerError:
                line.socket.close()
                raise
            if is_synced:
                break
            line.socket.close()  # it died, or was just about to go
            if time.monotonic() > deadline:
                raise ExecutorLostError(f"shepherds die as soon as they start: see {self._log}")
        self._poll.register(line.socket, select.EPOLLIN)
        self._held_contexts.clear()
        slots = self._atlas.start_over()
        if slots:
            line.send(*slots)
        os.eventfd_write(self._bell, 1)
        return line

    def _connect(self, deadline: float) -> Line:
        while True:
            try:
                return Line(0, sockets.connect(self._path))
            except (FileNotFoundError, ConnectionError):
                problem = self._start(max(deadline, time.monotonic() + _START_PATIENCE_S))
            except OSError as error:
                raise ExecutorLostError(f"{self._path}: {error.strerror}") from error
            if problem and time.monotonic() > deadline:
                raise ExecutorLostError(f"cannot start a shepherd: {problem}")

    def _start(self, deadline: float) -> str | None:
        """Start a shepherd; returns what prevents it for the moment, if anything does."""
        try:
            keeper = start_keeper(self._path, self._journal, self._name, self._log)
        except OSError as error:
            raise ExecutorLostError(f"cannot start a shepherd: {error}") from error
        self._children.add(keeper.pid)
        with os.fdopen(keeper.fd, "rb", buffering=0) as file:
            said = b""
            while _wait_for(file.fileno(), deadline) and (more := file.read(4096)):
                said += more
        word = said.decode("utf-8", "replace")
        if word == "ready":
            self._deaths = 0
            return None
        if not word and self._deaths < _MOST_DEATHS and time.monotonic() < deadline:
            self._deaths += 1  # somebody may have killed it
            return f"it died, see {self._log}"
        if word == "busy":
            time.sleep(0.02)  # another one is about to listen, or to go
            return f"another process has locked {self._journal}"
        raise ExecutorLostError(
            f"cannot start a shepherd: {word or f'it died or hangs, see {self._log}'}"
        )

    def _sync(self, line: Line, deadline: float) -> bool:
        """Agree on a protocol and take in what the shepherd tells; False if it is gone."""
        if not _wait_for_hello(line, deadline):
            return False
        assert line.hello is not None
        line.protocol = _agree(line.hello)
        line.send(["sync", line.protocol])
        news: list[Report] = []
        while not any(isinstance(report, Synced) for report in news):
            if not _wait_for(line.socket.fileno(), deadline):
                raise ExecutorLostError(f"the shepherd (pid {line.pid}) does not answer")
            heard = line.receive()
            if heard is None:
                return False
            news += heard
        self._news += news
        self._orphans = {report.key: report.pid for report in news if isinstance(report, Started)}
        return True


def _as_fresh(report: Report) -> Report:
    return Synced(report.keys, fresh=True) if isinstance(report, Synced) else report


def stop_shepherd(socket: str, kill: bool) -> bool:
    """Stop the shepherd at a socket, whatever its version is; False if it stays, for something runs."""
    try:
        line = Line(0, sockets.connect(socket))
    except (FileNotFoundError, ConnectionError):
        return True
    with line.socket:
        if _wait_for_hello(line, time.monotonic() + _PATIENCE_S):
            _stop(line, kill)
        return not line.is_busy


def _stop(line: Line, kill: bool) -> list[Report]:
    line.is_busy = False
    line.send(["stop", kill])
    deadline = time.monotonic() + _STOP_PATIENCE_S
    reports: list[Report] = []
    while not line.is_busy and _wait_for(line.socket.fileno(), deadline):
        heard = line.receive()
        if heard is None:
            _wait_for_end(line.pid, deadline)
            break
        reports += heard
    return reports


def _wait_for_end(pid: int, deadline: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            _wait_for(fd, deadline)
        finally:
            os.close(fd)


def _agree(hello: Hello) -> int:
    """The newest protocol that both sides speak."""
    best = min(PROTOCOL, hello.protocol)
    if best < max(LOWEST_PROTOCOL, hello.lowest):
        raise StokerError(
            f"the running jobs are in the care of a shepherd of Stoker {hello.version}, which Stoker"
            f" {__version__} cannot speak with: wait until they have ended, or end them with"
            " `stoker daemon stop --kill`"
        )
    return best


def _wait_for_hello(line: Line, deadline: float) -> bool:
    while line.hello is None:
        if not _wait_for(line.socket.fileno(), deadline):
            raise ExecutorLostError(
                "the shepherd does not answer: another Stoker is connected to it"
            )
        if line.receive() is None:
            return False
    line.pid = line.hello.pid
    return True


def _wait_for(fd: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
