"""Starts the daemon in its own session if none runs, and waits until it is up."""

from __future__ import annotations

import os

from stoker.client.daemon_process import age_s, daemon_pid
from stoker.client.node_role import describe_head, head_of
from stoker.client.transport import Connection, NoDaemonError, unreachable
from stoker.detached import start_and_wait
from stoker.errors import StokerError
from stoker.interpreter import module_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DAEMON = "stoker.daemon"

_TIMEOUT_S = 60.0
_SHORT_TIMEOUT_S = 10.0  # for a daemon that has long been up: it ends, or makes its socket again
_STEP_S = 0.02
# Variables of a job: a daemon that a job starts must not inherit them.
_JOB_VARIABLES = (
    "STOKER_COOKIE",
    "STOKER_JOB_ID",
    "STOKER_ATTEMPT",
    "STOKER_LINGER",
    "STOKER_ON_CUT",
    "STOKER_CHECKPOINTS",
    "STOKER_CHECKPOINT_DIR",
    "STOKER_RUN_DIR",
    "STOKER_WANDB_GROUPS",
)


def ensure_daemon(home: str, arguments: Sequence[str] = ()) -> Connection:
    """Connect to the home's daemon; start it with `arguments` if none runs, except on a node of a cluster.

    Only one daemon is started, however many processes call this at once.
    """
    try:
        return Connection(home)
    except NoDaemonError as error:
        has_died = error.died
    with _StartLock(home):
        found = _await_listener(home)
        if found is not None:
            return found
        if not has_died and (head := head_of(home)) is not None:
            raise NoDaemonError(describe_head(head), died=False)
        _start(home, arguments)
        return Connection(home)


def start_daemon(home: str, arguments: Sequence[str] = ()) -> None:
    """Start a daemon with arguments; raises StokerError if one runs already, or it cannot start."""
    with _StartLock(home):
        found = _await_listener(home)
        if found is None:
            _start(home, arguments)
            return
        found.close()
    raise StokerError(f"a daemon runs already for {home}: see stoker daemon status")


class _StartLock:
    """Held while a daemon starts, so that a second process finds the first one's daemon."""

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
    answer = start_and_wait(
        "a daemon",
        module_words(DAEMON, *arguments),
        daemon_log(home),
        daemon_environment(home),
        _TIMEOUT_S,
    )
    if answer == "ready":
        return
    if (found := _await_listener(home)) is not None:
        found.close()
        return  # another daemon was faster, such as a service manager's
    reason = answer.removeprefix("error: ") if answer else "it ended before it was up"
    raise StokerError(f"the daemon could not start: {reason} (its log: {daemon_log(home)})")


def daemon_environment(home: str) -> dict[str, str]:
    """Return the environment of a home's daemon."""
    environment = {name: value for name, value in os.environ.items() if name not in _JOB_VARIABLES}
    return {**environment, "STOKER_HOME": home, "STOKER_PART": "daemon"}


def daemon_log(home: str) -> str:
    """Return the path of a home's daemon log."""
    return f"{home}/daemon.log"


def _await_listener(home: str) -> Connection | None:
    """Connect to the daemon that holds a home's lock; None if none does.

    Waits for a daemon that starts or ends. Raises StokerError for one that runs but does not listen.
    """
    import time

    begun = time.monotonic()
    while True:
        try:
            return Connection(home)
        except NoDaemonError:
            pid = daemon_pid(home)
        if pid is None:
            return None
        waited_s = time.monotonic() - begun
        if waited_s > _SHORT_TIMEOUT_S and waited_s > _TIMEOUT_S - age_s(pid):
            raise StokerError(unreachable(home, pid))
        time.sleep(_STEP_S)
