"""What the queue knows of a sweep's runs, and which of them are to run now."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from stoker.core.lifecycle import State, is_final
from stoker.sweeps.plan import Run
from stoker.wire import SweepRun


def record_key(cwd: str, name: str) -> dict[str, str]:
    """What the record of a sweep that runs without the queue is found by."""
    return {"cwd": cwd, "name": f"sweep {name}"}


class Rerun(str, enum.Enum):
    """Which runs go into the queue when a sweep is submitted again."""

    UNDONE = "undone"
    FAILED = "failed"
    ALL = "all"
    NONE = "none"


class History:
    """Which identities have succeeded, wait or run, or ended without success.

    A success counts, whatever came after it. What waits or runs is never queued a second time.
    """

    def __init__(self, runs: Iterable[SweepRun] = ()) -> None:
        self.done: set[bytes] = set()
        self.live: set[bytes] = set()
        self.failed: set[bytes] = set()
        self._ended, self._spent_s = 0, 0.0
        for run in runs:
            self._learn(run)

    def _learn(self, run: SweepRun) -> None:
        key = bytes.fromhex(run.identity)
        if run.state is State.DONE:
            self.done.add(key)
            if run.started_at is not None and run.ended_at is not None:
                self._ended += 1
                self._spent_s += run.ended_at - run.started_at
        elif is_final(run.state):
            self.failed.add(key)
        else:
            self.live.add(key)

    @property
    def mean_s(self) -> float | None:
        """How long a run that succeeded took on average; None before one has."""
        return self._spent_s / self._ended if self._ended else None

    def wants(self, run: Run, rerun: Rerun) -> bool:
        """Whether a run is to be queued."""
        key = bytes.fromhex(run.identity)
        if key in self.live:
            return False
        if rerun is Rerun.ALL:
            return True
        if key in self.done:
            return False
        if rerun is Rerun.FAILED:
            return key in self.failed
        return rerun is Rerun.UNDONE or key not in self.failed

    def choose(self, runs: Iterable[Run], rerun: Rerun) -> Iterator[Run]:
        """Those of the runs that are to be queued."""
        if not (self.done or self.live or self.failed) and rerun is not Rerun.FAILED:
            return iter(runs)
        return (run for run in runs if self.wants(run, rerun))
