"""Start of a supervisor. Imports little, so that its start-up and its client's can overlap."""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

from stoker.open_files import with_original_limit
from stoker.supervisor.claimed_ahead import Tickets

_BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1));from stoker.supervisor.{} import main; main()"
)
_PASSED_FD = 3
# Variables of a job, which a daemon that was started by a job must not pass on.
_JOB_VARIABLES = (
    *("STOKER_COOKIE", "STOKER_JOB_ID", "STOKER_ATTEMPT", "STOKER_LINGER"),
    "STOKER_ON_CUT",
)
# The shell ends at once, so that the supervisor becomes a child of init.
_ORPHAN = ["/bin/sh", "-c", '"$@" &', "sh"]


class SupervisorProcess(NamedTuple):
    """A running supervisor: the pid of its clean-up process, our socket, and its tickets."""

    pid: int
    socket: socket.socket
    tickets: Tickets


class DaemonSupervisorProcess(NamedTuple):
    """A supervisor that starts up, and the descriptor on which it reports whether that succeeded."""

    pid: int
    fd: int


def start_supervisor(tickets: Tickets | None = None) -> SupervisorProcess:
    """Start a supervisor that ends with this process.

    With `tickets` it shares the queue of attempts launched ahead with another supervisor of this process.
    """
    ours, theirs = socket.socketpair()
    tickets = tickets or Tickets(*os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    argv = [*_command("foreground_mode"), str(os.getpid())]
    with theirs, open(os.devnull, "rb") as null:
        actions = [
            (os.POSIX_SPAWN_DUP2, null.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), _PASSED_FD),
            (os.POSIX_SPAWN_DUP2, tickets.reader, _PASSED_FD + 1),
        ]
        pid = os.posix_spawn(
            argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigmask=[]
        )
    return SupervisorProcess(pid, ours, tickets)


def start_daemon_supervisor(
    socket_path: str,
    journal: str,
    name: str,
    log: str = os.devnull,
    *,
    lease_file: str | None = None,
    without: str | None = None,
) -> DaemonSupervisorProcess:
    """Start a supervisor that outlives this process, and serves the clients that connect to its socket.

    With a lease file it is no child of this process, whose children may be killed with it. Variables with the
    prefix `without` are not passed on.
    """
    argv = [*_command("daemon_mode"), socket_path, journal, name]
    if lease_file is not None:
        argv = [*_ORPHAN, *argv, lease_file]
    argv = with_original_limit(argv)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _JOB_VARIABLES and not (without and name.startswith(without))
    }
    env["STOKER_PART"] = "supervisor"
    reader, writer = os.pipe()
    try:
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        actions = [
            (os.POSIX_SPAWN_DUP2, writer, _PASSED_FD),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=[])
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return DaemonSupervisorProcess(pid, reader)


def start_lease_watchdog(lease_file: str, name: str) -> None:
    """Start the lease watchdog of this supervisor, which outlives it as long as jobs do."""
    argv = [*_command("lease_watchdog"), lease_file, name, str(os.getpid())]
    env = {**os.environ, "STOKER_PART": "guard"}
    os.posix_spawn(argv[0], argv, env, setsid=True, setsigmask=[])


def _command(module: str) -> list[str]:
    root = os.path.dirname(__file__)
    for _ in __name__.split(".")[:-1]:
        root = os.path.dirname(root)
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP.format(module), root]
