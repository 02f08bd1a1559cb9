"""Stoker's daemon in a home of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError
from benchmarks.line import Line
from benchmarks.process import no_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.arena import Arena

SLOTS = "0,1,2,3"
_PLACES = 4
_PATIENCE_S = 120.0
_GLANCE_S = 0.02
_ADMISSION_PRIORITY = "9"


class Queue:
    """A daemon that runs, and the command line that goes with it."""

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        self.program = program
        self.env = env
        self.home = env["STOKER_HOME"]
        self.line = Line(self.home)
        self._admission = ""

    @property
    def pids(self) -> list[int]:
        """The daemon's and the supervisor's."""
        status = self.status()
        return [int(status["pid"]), *map(int, status["supervisor_pids"])]

    def status(self) -> dict[str, Any]:
        """What the daemon says of itself."""
        found = self.line.json("/v1/status")
        assert isinstance(found, dict)
        return found

    def count(self, *states: str) -> int:
        """How many jobs are in any of these states."""
        counts = self.status()["counts"]
        return sum(int(counts.get(state, 0)) for state in states)

    def stoker(self, *words: str) -> str:
        """Run a verb of the command line, and return what it prints."""
        return run_stoker(self.program, words, self.env)

    def add(self, path: str, *options: str) -> str:
        """Add a file of lines, and return their ids."""
        return self.stoker("add", "-q", *options, "--batch", path).strip()

    def until(self, holds: Callable[[], bool], what: str, glance_s: float = _GLANCE_S) -> None:
        """Return once something holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise BenchError(f"{what}: not so after {_PATIENCE_S:.0f} s")
            time.sleep(glance_s)

    def settle(self) -> None:
        """Return once nothing runs and nothing waits."""
        self.until(lambda: not self.count("waiting", "running"), "the queue is empty")

    def reconnect(self) -> None:
        """Talk to the daemon that there is now."""
        self.line.close()
        self.line = Line(self.home)

    def close_admission(self) -> None:
        """Let jobs that never end take every slot ahead of all that wait."""
        path = os.path.join(self.home, "gate")
        with open(path, "w", encoding="utf-8") as file:
            file.write("exec sleep infinity\n" * _PLACES)
        self._admission = self.add(path, "-p", _ADMISSION_PRIORITY)
        first, _, last = self._admission.partition("-")
        keepers = set(range(int(first), int(last) + 1))

        def is_closed() -> bool:
            return {job for slot in self.status()["slots"] for job in slot["jobs"]} == keepers

        self.until(is_closed, "the gate is closed")

    def open_admission(self) -> None:
        """Let what waits have the slots."""
        self.stoker("kill", "--grace", "0", self._admission)


@contextlib.contextmanager
def open_queue(arena: Arena, program: str | None = None, **more_env: str) -> Iterator[Queue]:
    """Start a daemon in a fresh home; it ends with all its jobs when the block does."""
    program = os.path.abspath(program or arena.peers.stoker.path)
    with arena.home() as home_env, no_leftovers("stoker"):
        env = {**home_env, **more_env}
        run_stoker(program, ["daemon", "start", "--gpus", SLOTS], env)
        queue = None
        try:
            queue = Queue(program, env)
            yield queue
        finally:
            if queue is not None:
                queue.line.close()
            _stop(program, env)


def run_stoker(program: str, words: Sequence[str], env: Mapping[str, str]) -> str:
    """Run Stoker's command line; what it complains of ends the benchmark."""
    argv = [program, *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{shlex.join(argv)} failed: {done.stderr.strip()}")
    return done.stdout


def _stop(program: str, env: Mapping[str, str]) -> None:
    answer = run_stoker(program, ["daemon", "stop", "--kill"], env)
    if answer.startswith("no daemon"):
        # It died; its jobs did not, and only a daemon can end them.
        run_stoker(program, ["daemon", "start"], env)
        run_stoker(program, ["daemon", "stop", "--kill"], env)
