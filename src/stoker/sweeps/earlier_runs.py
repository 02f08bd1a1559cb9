"""What the queue knows of a sweep's runs, and which of them are to run now."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from stoker.core.lifecycle import State, is_final
from stoker.sweeps.plan import Run
from stoker.wire import SweepRun

_DONE, _LIVE, _FAILED, _NEW = "done", "live", "failed", "new"
_TOLD = {
    _DONE: "are already done (--rerun all repeats them)",
    _LIVE: "are waiting or running",
    _FAILED: "failed before (--rerun failed repeats them)",
    _NEW: "have not failed (leave --rerun out to run them)",
}


def record_key(cwd: str, name: str) -> dict[str, str]:
    """What the record of a sweep that runs without the queue is found by."""
    return {"cwd": cwd, "name": f"sweep {name}"}


class Rerun(str, enum.Enum):
    """Which runs go into the queue when a sweep is submitted again."""

    UNDONE = "undone"
    FAILED = "failed"
    ALL = "all"
    NONE = "none"


class EarlierRuns:
    """Which identities have succeeded, wait or run, or ended without success.

    A success counts, whatever came after it. What waits or runs is never queued a second time.
    `done_here` are commands that have succeeded without the queue.
    """

    def __init__(
        self, runs: Iterable[SweepRun] = (), done_here: Collection[bytes] = frozenset()
    ) -> None:
        self._done_here = done_here
        self._passed_over: Counter[str] = Counter()
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

    def choose(self, runs: Iterable[Run], rerun: Rerun) -> Iterator[Run]:
        """Those of the runs that are to be queued; `tell_passed_over` tells of the others afterwards."""
        self._passed_over.clear()
        known = self.done or self.live or self.failed or self._done_here
        if not known and rerun is not Rerun.FAILED:
            yield from runs
            return
        for run in runs:
            why_not = self._why_not(run, rerun)
            if why_not is None:
                yield run
            else:
                self._passed_over[why_not] += 1

    def _why_not(self, run: Run, rerun: Rerun) -> str | None:
        """Why a run is not to be queued; None if it is."""
        key = bytes.fromhex(run.identity)
        if key in self.live:
            return _LIVE
        if rerun is Rerun.ALL:
            return None
        if key in self.done or (self._done_here and run.command.encode() in self._done_here):
            return _DONE
        if rerun is Rerun.FAILED:
            return None if key in self.failed else _NEW
        return _FAILED if rerun is Rerun.NONE and key in self.failed else None

    def tell_passed_over(self, count: int) -> str:
        """What `choose` has passed over, of so many runs, and how to run it nevertheless; '' if nothing."""
        parts = [
            f"{self._passed_over[why]:,} of {count:,} runs {told}"
            for why, told in _TOLD.items()
            if self._passed_over[why]
        ]
        return ", ".join(parts)
