"""Connects to the supervisor at a socket, which is started if there is none."""

from __future__ import annotations

import os
import select
import socket
import time

from stoker import __version__
from stoker.errors import StokerError
from stoker.executors.connection import Hello
from stoker.executors.contract import ExecutorLostError
from stoker.supervisor import process_tree, unix_sockets
from stoker.supervisor.launcher import start_daemon_supervisor
from stoker.supervisor.messages import PROTOCOL

_START_PATIENCE_S = 5.0
_MOST_DEATHS = 3


class SupervisorLauncher:
    """Socket, journal and log of a supervisor.

    With a lease file, the supervisor is not started as a child of this process, and it does not inherit
    variables that begin with `without`.
    """

    def __init__(
        self,
        *,
        name: str,
        socket: str,
        journal: str,
        log: str,
        lease_file: str | None = None,
        without: str | None = None,
    ) -> None:
        assert not {*" /:\n"} & {*name}, f"{name!r} cannot be part of a cookie"
        self.log = log
        self._name = name
        self._path = socket
        self._journal = journal
        self._lease_file = lease_file
        self._without = without
        self._deaths = 0
        self._children: set[int] = set()

    def connect(self, deadline: float) -> socket.socket:
        """Return a connection to the supervisor, which is started if there is none."""
        while True:
            try:
                return unix_sockets.connect(self._path)
            except (FileNotFoundError, ConnectionError):
                problem = self._start(max(deadline, time.monotonic() + _START_PATIENCE_S))
            except OSError as error:
                raise ExecutorLostError(f"{self._path}: {error.strerror}") from error
            if problem and time.monotonic() > deadline:
                raise ExecutorLostError(f"cannot start a supervisor: {problem}")

    def reap(self) -> None:
        """Reap ended supervisors that are children of this process."""
        process_tree.reap_ended(self._children)

    def _start(self, deadline: float) -> str | None:
        """Start a supervisor. Returns a temporary problem, or None."""
        try:
            supervisor = start_daemon_supervisor(
                self._path,
                self._journal,
                self._name,
                self.log,
                lease_file=self._lease_file,
                without=self._without,
            )
        except OSError as error:
            raise ExecutorLostError(f"cannot start a supervisor: {error}") from error
        self._children.add(supervisor.pid)
        with os.fdopen(supervisor.fd, "rb", buffering=0) as file:
            output = b""
            while wait_for(file.fileno(), deadline) and (more := file.read(4096)):
                output += more
        message = output.decode("utf-8", "replace")
        if message == "ready":
            self._deaths = 0
            return None
        if not message and self._deaths < _MOST_DEATHS and time.monotonic() < deadline:
            self._deaths += 1  # it may have been killed
            return f"it died, see {self.log}"
        if message == "busy":
            time.sleep(0.02)  # another supervisor is starting or ending
            return f"another process has locked {self._journal}"
        raise ExecutorLostError(
            f"cannot start a supervisor: {message or f'it died or hangs, see {self.log}'}"
        )


def check_protocol(hello: Hello) -> None:
    """Raise StokerError if the supervisor uses another version of the protocol."""
    if hello.protocol != PROTOCOL:
        raise StokerError(
            f"the running jobs have a supervisor of Stoker {hello.version}, which Stoker {__version__}"
            " cannot use: wait until they have ended, or end them with `stoker daemon stop --kill`"
        )


def wait_for(fd: int, deadline: float) -> bool:
    """Wait until a descriptor is readable. Returns False if the deadline has passed."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
