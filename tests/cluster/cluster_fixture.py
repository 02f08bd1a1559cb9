"""A queue over the hosts of a hosts: what its parts are, and what becomes of jobs, by facts."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cluster.netns_hosts import Hosts
from in_process import run_stoker

T = TypeVar("T")

# The words of a process's command line by which it is told from all others of its host.
PARTS = {
    "daemon": (" stoker.daemon",),
    "bridge": (" stoker.bridge ",),
    "supervisor": ("stoker.supervisor", ".journal"),
    "agent": ("ray::Agent",),
    "raylet": ("raylet/raylet",),
    "gcs": ("gcs_server",),
    "ray_supervisor": (" stoker.cluster.ray_supervisor",),
}
_ROWS = """
SELECT job, number, outcome, slots, status, reason FROM earlier_attempt
UNION ALL SELECT id, attempt, state, slots, status, reason FROM job ORDER BY 1, 2
"""


class Row(NamedTuple):
    """An attempt on record."""

    job: int
    number: int
    state: str
    slots: str | None
    status: int | None
    reason: str | None


class Lab:
    """A hosts with h0 as the first box, the others joined, and a daemon that reaches over all."""

    def __init__(self, hosts: Hosts, lease_s: float) -> None:
        self.hosts = hosts
        self.shared = hosts.folder / "shared"
        self.shared.mkdir()
        said = hosts.ok(0, "cluster", "up")
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", said)
        assert found is not None, said
        self._token, self._address = found.groups()
        for host in range(1, len(hosts.hosts)):
            self.join(host)
        hosts.ok(0, "config", "cluster.lease", f"{lease_s:g}s")
        hosts.ok(0, "daemon", "restart")
        for host in range(1, len(hosts.hosts)):
            self.until_there(host)

    def join(self, host: int) -> str:
        """Have a host join."""
        env = {"STOKER_CLUSTER_TOKEN": self._token}
        return self.hosts.ok(host, "cluster", "join", self._address, env=env)

    def try_join(self, host: int) -> bool:
        """Have a host join that may have joined before; False if the head does not answer."""
        env = {"STOKER_CLUSTER_TOKEN": self._token}
        return not self.hosts.stoker(host, "cluster", "join", self._address, env=env).returncode

    def ok(self, *words: str) -> str:
        """The output of `stoker WORDS` on the first box."""
        return self.hosts.ok(0, *words)

    def add(self, command: str, *words: str) -> int:
        """Add a job of shell; its number."""
        first, shell = self.hosts.hosts[0], ["--", "sh", "-c", command]
        ended = run_stoker("add", "-q", *words, *shell, env=first.env, work=first.work)
        assert ended.code == 0, ended
        return int(ended.out)

    def notices(self) -> str:
        """What the daemons had to say."""
        with contextlib.suppress(FileNotFoundError):
            return (self.hosts.home(0) / "daemon.log").read_text(errors="replace")
        return ""

    def is_there(self, host: int) -> bool:
        """Whether jobs may start on a host, as the last daemon knows."""
        name = self.hosts.hosts[host].name
        notices = self.notices().rpartition(" started, process ")[2]
        told = re.findall(rf"\b{name} (is away|is there|has left)", notices)
        return bool(told) and told[-1] == "is there"

    def until_there(self, host: int, deadline_s: float = 60.0) -> None:
        """Wait until jobs may start on a host."""
        until(lambda: self.is_there(host), f"h{host} is there", deadline_s)

    def rows(self) -> list[Row]:
        """All attempts on record."""
        return [Row(*row) for row in self.query(_ROWS)]

    def of(self, job: int) -> list[Row]:
        """The attempts of a job."""
        return [row for row in self.rows() if row.job == job]

    def state(self, job: int) -> str:
        """How a job is."""
        return self.of(job)[-1].state

    def until_state(self, job: int, state: str, deadline_s: float = 20.0) -> None:
        """Wait until a job is so."""
        until(lambda: self.state(job) == state, f"job {job} is {state}", deadline_s)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the database without touching it."""
        path = self.hosts.home(0) / "stoker.db"
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()

    def pid(self, host: int, part: str) -> int | None:
        """The process that is a part of Stoker or Ray on a host; None if there is none."""
        found = [
            pid
            for pid, words in self.hosts.processes(host).items()
            if all(word in words for word in PARTS[part]) and not words.startswith("sh ")
        ]
        return min(found, default=None)

    def kill(self, host: int, part: str) -> bool:
        """Kill a part with SIGKILL, and return when it is gone; False if there was none."""
        pid = self.pid(host, part)
        if pid is None:
            return False
        killed = self.hosts.run(host, ["sh", "-c", f"kill -{signal.SIGKILL.value} {pid}"])
        until(lambda: pid not in self.hosts.processes(host), f"the {part} of h{host} is gone")
        return killed.returncode == 0

    def until_over(self) -> None:
        """Wait until every job has ended, in whichever way."""
        self.hosts.run(0, self.stoker("wait"), timeout_s=600)

    def mark(self) -> int:
        """A place in what the daemons say: here."""
        return len(self.notices())

    def until_told(self, mark: int, text: str, deadline_s: float = 20.0) -> None:
        """Wait until something is said after a mark."""
        until(lambda: text in self.notices()[mark:], f"it is said that {text}", deadline_s)

    @contextlib.contextmanager
    def cut(self, host: int, pause_s: float) -> Iterator[None]:
        """Have a host without its cable for so long, or for as long as the block takes."""
        mend_at = time.monotonic() + pause_s
        self.hosts.cut(host)
        try:
            yield
            time.sleep(max(0.0, mend_at - time.monotonic()))  # the length of the cut is the test
        finally:
            self.hosts.mend(host)

    def path(self, name: str) -> Path:
        """A file that all hosts see."""
        return self.shared / name

    def log(self, job: int) -> Path:
        """The log of a job's last attempt."""
        number = self.of(job)[-1].number
        return self.hosts.home(0) / "logs" / str(job // 1000) / f"{job}.{number}.log"

    def stoker(self, *words: str) -> list[str]:
        """The words that run `stoker WORDS`."""
        return [sys.executable, "-m", "stoker", *words]

    def python(self, code: str) -> list[str]:
        """The words that run a piece of Python."""
        return [sys.executable, "-c", code]


def until(fact: Callable[[], T], what: str, deadline_s: float = 10.0) -> T:
    """Wait until something is so, and return it; fail if it does not come to be in time."""
    deadline = time.monotonic() + deadline_s
    while not (found := fact()):
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)
    return found
