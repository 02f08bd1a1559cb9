"""A daemon's home of a test's own: how it is started, killed, and looked at from outside."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from patience import until
from stoker.client.autostart import start_daemon
from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.errors import StokerError
from stoker.wire import NewSetting, Status

T = TypeVar("T")


class Attempt(NamedTuple):
    """An attempt as the database has it; a job that waits has none."""

    job: int
    number: int
    state: str
    slots: str | None
    pid: int | None
    started_at_us: int | None
    ended_at_us: int | None
    status: int | None
    reason: str | None

    @property
    def key(self) -> str:
        """Its name in records and journals."""
        return f"{self.job}.{self.number}"


_COLUMNS = "slots, pid, started_at_us, ended_at_us, status, reason"
_ATTEMPTS = f"""
SELECT job, number, outcome, {_COLUMNS} FROM earlier_attempt
UNION ALL SELECT id, attempt, state, {_COLUMNS} FROM job ORDER BY 1, 2
"""
_LIVE = f"SELECT id, attempt, state, {_COLUMNS} FROM job WHERE state IN ('starting', 'running')"


class Home:
    """Daemons run here, one after another, with the environment of the test's process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "home"
        self.folder.mkdir(mode=0o700)
        self.work = folder / "work"
        self.work.mkdir()
        self.path = str(self.folder)
        self.lease_folder = str(folder / "leases")

    def start(self, *arguments: str) -> None:
        """Start a daemon."""
        start_daemon(self.path, arguments)

    def disable_failure_limit(self) -> None:
        """Let jobs that fail alike, as random ones do, pause nothing."""
        with self.client() as client:
            client.set_config(NewSetting(name="brake", value="0"))

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client that starts the daemon where none runs."""
        with Client(self.path, start=True) as client:
            yield client

    def status(self) -> Status:
        """What the daemon says of itself; it is started if need be."""
        with self.client() as client:
            return client.status()

    def daemon(self) -> int | None:
        """The pid of the daemon that runs, or starts up."""
        return _verified(_number_in(self.folder / "daemon.lock"), b"daemon", self.path)

    def supervisors(self) -> list[int]:
        """The pids of the supervisors that live."""
        alike = {
            pid: _parent_of(pid)
            for pid, words in self.processes().items()
            if "stoker.supervisor" in words and "-I" in words.split()
        }
        # A job looks like its supervisor until it has become a program of its own.
        return [pid for pid, parent in alike.items() if parent not in alike]

    def kill_daemon(self) -> bool:
        """Kill the daemon with SIGKILL, and return when it is gone; False if there was none."""
        pid = self.daemon()
        return pid is not None and kill(pid)

    def attempts(self) -> list[Attempt]:
        """All that was ever tried, as far as it is on record."""
        return [Attempt(*row) for row in self.query(_ATTEMPTS)]

    def live(self) -> list[Attempt]:
        """What is on record as claimed, and not as ended."""
        return [Attempt(*row) for row in self.query(_LIVE)]

    def state(self, job: int) -> str:
        """A job's state, as the database has it."""
        return str(self.query(f"SELECT state FROM job WHERE id = {job}")[0][0])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the database without touching it."""
        path = self.folder / "stoker.db"
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()

    def journal(self) -> list[list[str]]:
        """The words of every whole line that supervisors have written, as far as it is kept."""
        lines = []
        for path in self.folder.glob("supervisor-*.journal"):
            for line in path.read_text("ascii", "replace").splitlines():
                words = line.split()
                if words[-1:] == ["."]:
                    lines.append(words[:-1])
        return lines

    def log(self) -> str:
        """What daemons and supervisors had to say."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "daemon.log").read_text(errors="replace")
        return ""

    def processes(self) -> dict[int, str]:
        """Every living process that has this home in its environment or works in its folder."""
        marks = {f"STOKER_HOME={self.path}".encode(), f"STOKER_TEST_HOME={self.path}".encode()}
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                environ = _read(f"/proc/{name}/environ")
                if not marks.isdisjoint(environ.split(b"\0")) and is_alive(int(name)):
                    words = _read(f"/proc/{name}/cmdline").replace(b"\0", b" ")
                    found[int(name)] = words.decode(errors="replace").strip()
        return found

    def stop(self) -> None:
        """End the daemon as a user would; what runs goes on."""
        with contextlib.suppress(NoDaemonError), Client(self.path) as client:
            client.stop()
        until(lambda: self.daemon() is None, "the daemon has stopped")

    def close(self) -> None:
        """End all that is left."""
        with contextlib.suppress(StokerError):
            self.stop()
        for _ in range(3):
            for pid in self.processes():
                kill(pid)
        assert not self.processes()


def kill(pid: int) -> bool:
    """Kill one process with SIGKILL, and return when it is gone; False if it was gone already."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(10_000), f"process {pid} does not die"
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
    return bool(state) and state[0] not in (b"Z", b"X")


def _parent_of(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def _verified(pid: int | None, word: bytes, home: str) -> int | None:
    """The pid, if it is the living process it is taken for: numbers are used again."""
    if pid is None or not is_alive(pid):
        return None
    if word not in _read(f"/proc/{pid}/cmdline"):
        return None
    environ = _read(f"/proc/{pid}/environ").split(b"\0")
    return pid if f"STOKER_HOME={home}".encode() in environ else None


def _number_in(path: Path) -> int | None:
    text = _read(str(path))
    return int(text) if text.isdigit() else None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
