"""Starts the daemon where none runs, in a session of its own, and waits until it is up."""

from __future__ import annotations

import os
import sys

from stoker.client.transport import Connection, NoDaemonError
from stoker.errors import StokerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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
# Its parent ends at once: the daemon is nobody's child and leads no session.
_DETACH = "import os,sys;os.fork() and os._exit(0);os.execv(sys.argv[1],sys.argv[1:])"


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

        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StokerError(f"cannot start a daemon: {self._path}: {error.strerror}") from None
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_details: object) -> None:
        os.close(self._fd)


def _start(home: str, arguments: Sequence[str]) -> None:
    reader, writer = os.pipe()
    try:
        try:
            _spawn(home, writer, arguments)
        finally:
            os.close(writer)
        said = _read_line(reader)
    finally:
        os.close(reader)
    if said == "ready":
        return
    if _is_up(home):
        return  # somebody else's was faster: the one that a service manager started, say
    reason = said.removeprefix("error: ") if said else "it ended before it was up"
    raise StokerError(f"the daemon could not start: {reason} (its log: {home}/daemon.log)")


def daemon_words(ready_fd: int) -> list[str]:
    """The command that is the daemon; it tells `ready_fd` when it is up, or why it cannot be."""
    return [sys.executable, "-m", "stoker.daemon", "--ready-fd", str(ready_fd)]


def daemon_environment(home: str) -> dict[str, str]:
    """The environment that the daemon of a home is to have."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_JOBS}
    return {**environment, "STOKER_HOME": home, "STOKER_PART": "daemon"}


def open_log(home: str) -> int:
    """A descriptor of the daemon's own log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(f"{home}/daemon.log", flags, 0o600)
    except OSError as error:
        raise StokerError(f"cannot write {home}/daemon.log: {error.strerror}") from None


def _spawn(home: str, writer: int, arguments: Sequence[str]) -> None:
    import subprocess

    log = open_log(home)
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DETACH, *daemon_words(writer), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=daemon_environment(home),
            pass_fds=(writer,),
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise StokerError(f"cannot start a daemon with {sys.executable}: {error}") from None
    finally:
        os.close(log)


def _read_line(reader: int) -> str:
    """What the daemon says when it is up, or cannot be; nothing if it ends without a word."""
    import select
    import time

    poll = select.poll()
    poll.register(reader, select.POLLIN)
    deadline = time.monotonic() + _PATIENCE_S
    said = b""
    while not said.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            return f"error: it was not up after {_PATIENCE_S:.0f} s"
        data = os.read(reader, 4096)
        if not data:
            break
        said += data
    return said.decode(errors="replace").strip()


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
