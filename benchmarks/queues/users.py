"""Daemons of several real users of this machine, on the same GPUs. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.arena import Arena
    from security.second_user import SecondUser

_TESTS = os.path.join(os.path.dirname(__file__), "..", "..", "tests")
# A user must be able to read the interpreter and the fake GPUs, wherever they are.
_MAY_READ = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
_PATIENCE_S = 120.0
_GLANCE_S = 0.2


class UserQueue:
    """The daemon of one user, and the command line that goes with it."""

    def __init__(self, arena: Arena, user: SecondUser, folder: str) -> None:
        self.name = user.name
        self._program = os.path.abspath(arena.peers.stoker.path)
        self._folder = os.path.join(folder, user.name)
        self._become = [
            *("setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"),
            *_MAY_READ,
        ]
        os.mkdir(self._folder)
        os.chown(self._folder, user.uid, user.gid)
        self._env = {
            **arena.env,
            "HOME": self._folder,
            "STOKER_HOME": os.path.join(self._folder, "stoker"),
            "STOKER_LEASE_DIR": os.path.join(folder, "leases"),
        }

    def stoker(self, *words: str, stdin: str = "") -> str:
        """Run a verb as this user, and return what it prints."""
        done = subprocess.run(
            [*self._become, self._program, *words],
            env=self._env,
            cwd=self._folder,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(f"stoker {' '.join(words)} of {self.name}: {done.stderr.strip()}")
        return done.stdout

    def add(self, line: str, count: int) -> None:
        """Add a line so many times."""
        self.stoker("add", "-q", "--batch", "-", stdin=f"{line}\n" * count)

    def jobs(self) -> list[dict[str, Any]]:
        """Return every job, with the times of its last attempt."""
        return list(json.loads(self.stoker("ls", "-a", "--json")))

    def until(self, holds: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Return once something holds for the user's jobs."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds(self.jobs()):
            if time.monotonic() > deadline:
                raise BenchError(f"{what}: not so after {_PATIENCE_S:.0f} s")
            time.sleep(_GLANCE_S)

    def gpu_s(self, begin: float, end: float) -> float:
        """Return the GPU time of the user's jobs between two times."""
        spans = [
            min(end, job["ended_at"] or end) - max(begin, job["started_at"])
            for job in self.jobs()
            if job["started_at"] is not None and job["started_at"] < end
        ]
        return float(sum(span for span in spans if span > 0))


@contextlib.contextmanager
def open_user_queues(
    arena: Arena, count: int, gpus: str, shares: Sequence[float] = ()
) -> Iterator[list[UserQueue]]:
    """Make users with a daemon each, on the same GPUs; both go away at the end."""
    if _TESTS not in sys.path:
        sys.path.insert(0, _TESTS)
    from security.second_user import make_second_user, remove_second_user, why_not

    reason = why_not()
    if reason is not None:
        raise BenchError(f"this benchmark makes users: {reason}")
    # Not below the repository: every folder above a home must let its user pass.
    folder = tempfile.mkdtemp(prefix="stoker-bench-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    leases = os.path.join(folder, "leases")
    os.mkdir(leases)
    os.chmod(leases, 0o1777)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        users = []
        for _ in range(count):
            users.append(make_second_user(f"bench-{os.urandom(4).hex()}"))
            stack.callback(remove_second_user, users[-1])
        if shares:
            _write_shares(leases, dict(zip([user.name for user in users], shares, strict=True)))
        queues = []
        for user in users:
            queue = UserQueue(arena, user, folder)
            queue.stoker("daemon", "start", "--gpus", gpus)
            stack.callback(queue.stoker, "daemon", "stop", "--kill")
            queues.append(queue)
        yield queues


def _write_shares(folder: str, shares: dict[str, float]) -> None:
    path = os.path.join(folder, "box.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[shares]\n")
        file.writelines(f'"{name}" = {share:g}\n' for name, share in shares.items())
    os.chmod(path, 0o644)
