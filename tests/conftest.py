"""What tests of all kinds share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from patience import AT_ONCE_S, PATIENCE_S, until
from scale import LONG
from stoker.testing.library import build, build_cuda
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from pathlib import Path

# How long a machine takes to think of examples says nothing about the code, and chance nothing to others.
settings.register_profile(
    "steady",
    max_examples=2000 if LONG else 40,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")

FakeMachine = Callable[..., FakeGpus]
_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> Iterator[None]:
    """Let nothing that is started inherit what nohup or a shell's & ignore; this process still does.

    An ignored signal stays ignored in whatever is executed, one that is handled does not.
    """
    ignored = [
        signum
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(signum) is signal.SIG_IGN
    ]
    for signum in ignored:
        signal.signal(signum, lambda _signum, _frame: None)
    yield
    for signum in ignored:
        signal.signal(signum, signal.SIG_IGN)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of the C fakes of NVML and of libcuda, built once."""
    folder = tmp_path_factory.mktemp("nvml")
    build_cuda(folder)
    return os.path.dirname(build(folder))


@pytest.fixture
def adopt_orphans() -> Iterator[Callable[[bool], None]]:
    """Return what decides whether this process gets its descendants' orphans; tests before may have."""

    def decide(ours: bool) -> None:
        assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(ours), 0, 0, 0) == 0

    yield decide
    decide(False)


@pytest.fixture
def fake_gpus(nvml_library: str, tmp_path: Path) -> FakeMachine:
    """Return a maker of machines with fake GPUs, seen by processes that get their `env()`."""

    def make(count: int = 4, mem_bytes: int = 8 * GIB) -> FakeGpus:
        return FakeGpus(tmp_path / "nvml", nvml_library).create(count, mem_bytes)

    return make


class Ended(NamedTuple):
    """How a process ended and what it said."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.stdout.decode(errors="backslashreplace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode(errors="backslashreplace")


class Row(NamedTuple):
    """A recorded attempt, with its command; an attempt that has not ended has no outcome."""

    job: int
    command: bytes
    state: str
    attempt: int | None
    outcome: str | None
    status: int | None
    reason: str | None
    slots: str | None
    pid: int | None


_ROWS = """
SELECT job, command, state, number, outcome, status, reason, slots, pid FROM (
  SELECT job, command, state, number, outcome, e.status, e.reason, e.slots, e.pid
    FROM earlier_attempt AS e JOIN job ON job.id = e.job
  UNION ALL
  SELECT id AS job, command, state, iif(is_over, attempt, NULL) AS number,
    iif(is_over, state, NULL) AS outcome, status, reason, slots, pid
    FROM (SELECT *, state IN ('done', 'failed', 'killed', 'lost') AS is_over FROM job)
) ORDER BY job, number IS NULL, number
"""


class Stoker:
    """Starts the real program, in a home, a lease folder and a working folder of the test's own.

    It sees four fake GPUs. Nothing that belongs to it may be alive when the test is over.
    """

    def __init__(self, folder: Path, box: FakeGpus) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        self.box = box
        self.env = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "STOKER_HOME": str(self.home),
            "STOKER_LEASE_DIR": str(folder / "leases"),
            **box.env(),
            **{name: os.environ[name] for name in os.environ if name.startswith("COVERAGE_")},
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *words: str | bytes,
        stdin: int | IO[bytes] = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `stoker WORDS`; its ends of the pipes are the test's."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stoker", *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            cwd=cwd or self.work,
        )
        self._started.append(process)
        return process

    def run(
        self,
        *words: str | bytes,
        lines: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> Ended:
        """Run `stoker run WORDS` to its end, with these lines on standard input."""
        process = self.start("run", *words, env=env)
        return self.end(process, lines, timeout_s)

    def end(
        self,
        process: subprocess.Popen[bytes],
        lines: str | bytes = b"",
        timeout_s: float = PATIENCE_S,
    ) -> Ended:
        """Wait for a process to end by itself."""
        data = lines.encode() if isinstance(lines, str) else lines
        out, err = process.communicate(data or None, timeout=timeout_s)
        return Ended(process.returncode, out, err)

    def file(self, name: str, lines: str | bytes) -> str:
        """Write a file into the working folder."""
        data = lines.encode() if isinstance(lines, str) else lines
        (self.work / name).write_bytes(data)
        return name

    def read(self, name: str) -> list[str]:
        """The lines of a file in the working folder; none while there is no file."""
        try:
            return (self.work / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def folders(self) -> list[Path]:
        """The folders of all runs, in no particular order."""
        return list((self.home / "runs").glob("*")) if self.home.exists() else []

    def rows(self, folder: Path | None = None) -> list[Row]:
        """What is recorded in the only run, or in this one; nothing before it has begun."""
        if folder is None:
            folders = self.folders()
            assert len(folders) < 2, folders
            return self.rows(folders[0]) if folders else []
        path = folder / "run.db"
        if not path.exists() or path.with_name("run.db-journal").exists():
            return []  # it was killed before, or while, the database was made
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []
            return [Row(*row) for row in db.execute(_ROWS)]

    def adopt(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """See to the end of a process that was started in another way."""
        self._started.append(process)
        return process

    def processes(self) -> dict[int, str]:
        """Every living process that has this home in its environment: stokers, supervisors, jobs."""
        mark = f"STOKER_HOME={self.home}".encode()
        return {
            pid: words
            for pid, words, environ in _living_processes()
            if mark in environ.split(b"\0")
        }

    def supervisor(self, process: subprocess.Popen[bytes]) -> int:
        """The pid of a running stoker's supervisor."""
        (pid,) = _children(self.cleaner(process))
        return pid

    def cleaner(self, process: subprocess.Popen[bytes]) -> int:
        """The pid of the process that cleans up after a running stoker's supervisor."""
        (pid,) = _children(process.pid)
        return pid

    @staticmethod
    def is_alive(pid: int) -> bool:
        """Whether a process runs; one that only waits to be reaped does not."""
        return _state_of(pid) not in (None, "Z", "X")

    until = staticmethod(until)

    def close(self) -> None:
        """End what the test has left, and see that nothing outlives it."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with process:
                pass
        deadline = time.monotonic() + AT_ONCE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"alive after the end: {left}"


def _living_processes() -> Iterator[tuple[int, str, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    environ = file.read()
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if _state_of(int(name)) not in (None, "Z", "X"):
                yield int(name), words.strip(), environ


def _state_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


@pytest.fixture
def stoker(tmp_path: Path, fake_gpus: FakeMachine) -> Iterator[Stoker]:
    """Return a Stoker in folders of its own, on a machine with four fake GPUs."""
    stoker = Stoker(tmp_path, fake_gpus(4))
    yield stoker
    stoker.close()
