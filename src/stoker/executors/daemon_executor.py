"""Runs attempts on this machine through a supervisor that outlives this process, for the daemon."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence

from stoker.errors import StokerError
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import (
    Ended,
    ExecutorLostError,
    Lost,
    Report,
    Started,
    Synced,
)
from stoker.executors.protocol_client import ProtocolClient
from stoker.executors.supervisor_launcher import SupervisorLauncher, check_protocol, wait_for
from stoker.supervisor import unix_sockets
from stoker.supervisor.messages import StopSupervisor, Sync

_PATIENCE_S = 10.0
_STOP_PATIENCE_S = 20.0


class DaemonExecutor(ProtocolClient):
    """Keeps the executor contract by talking to a supervisor at a socket, which it starts if need be.

    When the supervisor dies, `observe` starts another and tells what that one has found.
    """

    def __init__(self, *, name: str, socket: str, journal: str, log: str = os.devnull) -> None:
        super().__init__()
        self._launcher = SupervisorLauncher(name=name, socket=socket, journal=journal, log=log)
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
        """The supervisor's own."""
        return [self._line.pid]

    @property
    def told(self) -> Sequence[Report]:
        """What the supervisor has told and `observe` has not returned yet."""
        return self._news

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def observe(self) -> list[Report]:
        """Read all reports that have arrived; if the supervisor is gone, find or start another."""
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

    def stop(self, kill: bool) -> list[Report]:
        """Let the supervisor go, with `kill` after every tree has ended, else if nothing runs.

        Returns what it has told until then. Whatever is not acknowledged is told to the next client.
        """
        reports = self._take_news()
        reports += _stop(self._line, kill)
        if not self._line.is_busy and not self._is_stopped:
            self._is_stopped = True  # nobody is there any more, and nobody is to be started
            self._poll.unregister(self._line.socket)
            self._line.hang_up()
        self._launcher.reap()
        return reports

    def close(self) -> None:
        """Let go; what runs goes on, and so does the supervisor while there is anything to do."""
        if not self._poll.closed:
            self._close_line()
            self._let_go()

    def _let_go(self) -> None:
        self._poll.close()
        os.close(self._bell)
        self._launcher.reap()

    def _close_line(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(self._line.socket)
        self._line.socket.close()
        self._launcher.reap()

    def _bury(self, reports: Sequence[Report]) -> None:
        """Where jobs without a supervisor become children of this process, see them off too."""
        for report in reports:
            if isinstance(report, Ended | Lost) and report.key in self._orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._orphans.pop(report.key), os.WNOHANG)

    def _take_news(self) -> list[Report]:
        if self._news:
            os.eventfd_read(self._bell)
        reports, self._news = self._news, []
        return reports

    def _open_line(self) -> SupervisorConnection:
        """Find or start a supervisor, and learn all it knows."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            line = SupervisorConnection(0, self._launcher.connect(deadline))
            try:
                is_synced = self._sync(line, deadline)
            except StokerError:
                line.socket.close()
                raise
            if is_synced:
                break
            line.socket.close()  # it died, or was just about to go
            if time.monotonic() > deadline:
                raise ExecutorLostError(
                    f"supervisors die as soon as they start: see {self._launcher.log}"
                )
        self._poll.register(line.socket, select.EPOLLIN)
        self._start_over(line)
        os.eventfd_write(self._bell, 1)
        return line

    def _sync(self, line: SupervisorConnection, deadline: float) -> bool:
        """Check the protocol and take in what the supervisor tells; False if it is gone."""
        if not _wait_for_hello(line, deadline):
            return False
        assert line.hello is not None
        check_protocol(line.hello)
        line.send(Sync())
        news: list[Report] = []
        while not any(isinstance(report, Synced) for report in news):
            if not wait_for(line.socket.fileno(), deadline):
                raise ExecutorLostError(f"the supervisor (pid {line.pid}) does not answer")
            heard = line.receive()
            if heard is None:
                return False
            news += heard
        self._news += news
        self._orphans = {report.key: report.pid for report in news if isinstance(report, Started)}
        return True


def _as_fresh(report: Report) -> Report:
    return Synced(report.keys, fresh=True) if isinstance(report, Synced) else report


def stop_supervisor(socket: str, kill: bool) -> bool | None:
    """Stop the supervisor at a socket, whatever its version is.

    Returns False if it stays, for something runs, and None if no supervisor is there.
    """
    try:
        line = SupervisorConnection(0, unix_sockets.connect(socket))
    except (FileNotFoundError, ConnectionError):
        return None
    with line.socket:
        if _wait_for_hello(line, time.monotonic() + _PATIENCE_S):
            _stop(line, kill)
        return not line.is_busy


def _stop(line: SupervisorConnection, kill: bool) -> list[Report]:
    line.is_busy = False
    line.send(StopSupervisor(kill))
    deadline = time.monotonic() + _STOP_PATIENCE_S
    reports: list[Report] = []
    while not line.is_busy and wait_for(line.socket.fileno(), deadline):
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
            wait_for(fd, deadline)
        finally:
            os.close(fd)


def _wait_for_hello(line: SupervisorConnection, deadline: float) -> bool:
    while line.hello is None:
        if not wait_for(line.socket.fileno(), deadline):
            raise ExecutorLostError(
                "the supervisor does not answer: another Stoker is connected to it"
            )
        if line.receive() is None:
            return False
    line.pid = line.hello.pid
    return True
