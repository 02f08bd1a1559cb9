"""Starts the daemon where none runs, in a session of its own, and waits until it is up."""

from __future__ import annotations

import os

from stoker.client.transport import Connection, NoDaemonError
from stoker.detached import start_and_hear
from stoker.errors import StokerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DAEMON = ("-m", "stoker.daemon")

_PATIENCE_S = 60.0
_STEP_S = 0.02
# What belongs to a job must not belong to a daemon that a job happened to start.
_OF_JOBS = (
    "STOKER_COOKIE",
    "STOKER_JOB_ID",
    "STOKER_ATTEMPT",
    "STOKER_LINGER",
    "STOKER_CHECKPOINTS",
    "STOKER_CHECKPOINT_DIR",
    "STOKER_RUN_DIR",
)


def ensure_daemon(home: str) -> Connection:
    """A connection to the home's daemon, which is started if need be. However many ask, it is one."""
    try:
        return Connection(home)
    except NoDaemonError:
        pass
    with _Turn(home):
        try:
            return Connection(home)
        except NoDaemonError:
            _start(home, ())
        return Connection(home)


def start_daemon(home: str, arguments: Sequence[str] = ()) -> None:
    """Start a daemon with these arguments; raises StokerError where one runs, or it cannot start."""
    with _Turn(home):
        try:
            Connection(home).close()
        except NoDaemonError:
            _start(home, arguments)
            return
    raise StokerError(f"a daemon runs already for {home}: see stoker daemon status")


class _Turn:
    """Held while starting, so that of two who start the second finds the first one's daemon."""

    def __init__(self, home: str) -> None:
        self._path = f"{home}/start.lock"
        self._fd = -1

    def __enter__(self) -> None:
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StokerError(f"cannot start a daemon: {self._path}: {error.strerror}") from None
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_details: object) -> None:
        os.close(self._fd)


def _start(home: str, arguments: Sequence[str]) -> None:
    said = start_and_hear(
        "a daemon",
        [*DAEMON, *arguments],
        daemon_log(home),
        daemon_environment(home),
        _PATIENCE_S,
    )
    if said == "ready":
        return
    if _is_up(home):
        return  # somebody else's was faster: the one that a service manager started, say
    reason = said.removeprefix("error: ") if said else "it ended before it was up"
    raise StokerError(f"the daemon could not start: {reason} (its log: {daemon_log(home)})")


def daemon_environment(home: str) -> dict[str, str]:
    """The environment that the daemon of a home is to have."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_JOBS}
    return {**environment, "STOKER_HOME": home, "STOKER_PART": "daemon"}


def daemon_log(home: str) -> str:
    """Where the daemon of a home says what it does."""
    return f"{home}/daemon.log"


def _is_up(home: str) -> bool:
    """Whether there is another daemon; one that holds the home but does not listen yet is waited for."""
    import time

    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            Connection(home).close()
        except NoDaemonError:
            if not _is_held(home):
                return False
            time.sleep(_STEP_S)
        else:
            return True
    return False


def _is_held(home: str) -> bool:
    import fcntl

    try:
        fd = os.open(f"{home}/daemon.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
