"""Executor of the daemon: runs attempts on this machine through a supervisor that outlives the daemon."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence

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
    """Implements the executor contract with a supervisor at a socket, which is started if there is none.

    When the supervisor dies, `observe` starts another one and returns what that one reports.
    """

    def __init__(
        self,
        *,
        name: str,
        socket: str,
        journal: str,
        log: str = os.devnull,
        cpus_of: Callable[[Sequence[str]], str] = lambda _keys: "",
    ) -> None:
        super().__init__(cpus_of)
        self._launcher = SupervisorLauncher(name=name, socket=socket, journal=journal, log=log)
        self._orphans: dict[str, int] = {}
        self.pending: list[Report] = []  # what `observe` has not returned yet
        self._is_stopped = False
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._wakeup, select.EPOLLIN)
        try:
            self._connection = self._connect()
        except BaseException:
            self._release()
            raise

    @property
    def pids(self) -> list[int]:
        """The pid of the supervisor."""
        return [self._connection.pid]

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def observe(self) -> list[Report]:
        """Read all reports that have arrived; if the supervisor is gone, find or start another."""
        reports = self._take_pending()
        received = [] if self._is_stopped else self._connection.receive()
        if received is None:
            self._disconnect()
            self._connection = self._connect()
            # With the old supervisor this client has lost its leases.
            received = [_as_fresh(report) for report in self._take_pending()]
        reports += received
        if self._orphans:
            self._reap_orphans(reports)
        return reports

    def stop(self, kill: bool) -> list[Report]:
        """Stop the supervisor: with `kill` after it has ended every tree, else only if nothing runs.

        Returns its last reports. Ends that are not acknowledged are reported to the next client.
        """
        reports = self._take_pending()
        reports += _stop(self._connection, kill)
        if not self._connection.is_busy and not self._is_stopped:
            self._is_stopped = True  # `observe` must not start another one
            self._poll.unregister(self._connection.socket)
            self._connection.hang_up()
        self._launcher.reap()
        return reports

    def close(self) -> None:
        """Disconnect. Jobs go on, and the supervisor too as long as it has work."""
        if not self._poll.closed:
            self._disconnect()
            self._release()

    def _release(self) -> None:
        self._poll.close()
        os.close(self._wakeup)
        self._launcher.reap()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._poll.unregister(self._connection.socket)
        self._connection.socket.close()
        self._launcher.reap()

    def _reap_orphans(self, reports: Sequence[Report]) -> None:
        """Reap ended jobs whose supervisor died: they became children of this process."""
        for report in reports:
            if isinstance(report, Ended | Lost) and report.key in self._orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._orphans.pop(report.key), os.WNOHANG)

    def _take_pending(self) -> list[Report]:
        if self.pending:
            os.eventfd_read(self._wakeup)
        reports, self.pending = self.pending, []
        return reports

    def _connect(self) -> SupervisorConnection:
        """Connect to the supervisor, which is started if there is none, and receive all it knows."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            connection = SupervisorConnection(0, self._launcher.connect(deadline))
            try:
                is_synced = self._sync(connection, deadline)
            except StokerError:
                connection.socket.close()
                raise
            if is_synced:
                break
            connection.socket.close()  # it died, or was about to end
            if time.monotonic() > deadline:
                raise ExecutorLostError(
                    f"supervisors die as soon as they start: see {self._launcher.log}"
                )
        self._poll.register(connection.socket, select.EPOLLIN)
        self._start_over(connection)
        os.eventfd_write(self._wakeup, 1)
        return connection

    def _sync(self, connection: SupervisorConnection, deadline: float) -> bool:
        """Check the protocol and receive the first reports; False if the supervisor is gone."""
        if not _wait_for_hello(connection, deadline):
            return False
        assert connection.hello is not None
        check_protocol(connection.hello)
        connection.send(Sync())
        reports: list[Report] = []
        while not any(isinstance(report, Synced) for report in reports):
            if not wait_for(connection.socket.fileno(), deadline):
                raise ExecutorLostError(f"the supervisor (pid {connection.pid}) does not answer")
            received = connection.receive()
            if received is None:
                return False
            reports += received
        self.pending += reports
        self._orphans = {
            report.key: report.pid for report in reports if isinstance(report, Started)
        }
        return True


def _as_fresh(report: Report) -> Report:
    return Synced(report.keys, fresh=True) if isinstance(report, Synced) else report


def stop_supervisor(socket: str, kill: bool) -> bool | None:
    """Stop the supervisor at a socket, whatever its version.

    Returns False if it goes on because jobs run, and None if there is no supervisor.
    """
    try:
        connection = SupervisorConnection(0, unix_sockets.connect(socket))
    except (FileNotFoundError, ConnectionError):
        return None
    with connection.socket:
        if _wait_for_hello(connection, time.monotonic() + _PATIENCE_S):
            _stop(connection, kill)
        return not connection.is_busy


def _stop(connection: SupervisorConnection, kill: bool) -> list[Report]:
    connection.is_busy = False
    connection.send(StopSupervisor(kill))
    deadline = time.monotonic() + _STOP_PATIENCE_S
    reports: list[Report] = []
    while not connection.is_busy and wait_for(connection.socket.fileno(), deadline):
        received = connection.receive()
        if received is None:
            _wait_for_end(connection.pid, deadline)
            break
        reports += received
    return reports


def _wait_for_end(pid: int, deadline: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            wait_for(fd, deadline)
        finally:
            os.close(fd)


def _wait_for_hello(connection: SupervisorConnection, deadline: float) -> bool:
    while connection.hello is None:
        if not wait_for(connection.socket.fileno(), deadline):
            raise ExecutorLostError(
                "the supervisor does not answer: another Stoker is connected to it"
            )
        if connection.receive() is None:
            return False
    connection.pid = connection.hello.pid
    return True
