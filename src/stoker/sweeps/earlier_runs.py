"""Earlier runs of a sweep in the queue, and the choice of the runs to queue now."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from stoker.core.lifecycle import State, is_final
from stoker.sweeps.plan import Run
from stoker.wire import SweepRun

_DONE, _LIVE, _FAILED, _NEW, _PRUNED = "done", "live", "failed", "new", "pruned"
_DESCRIPTIONS = {
    _DONE: "are already done (--rerun all repeats them)",
    _PRUNED: "were stopped early (--rerun all repeats them)",
    _LIVE: "are waiting or running",
    _FAILED: "failed before (--rerun failed repeats them)",
    _NEW: "have not failed (leave --rerun out to run them)",
}


def record_key(cwd: str, name: str) -> dict[str, str]:
    """Return the key under which a sweep without the queue records its runs."""
    return {"cwd": cwd, "name": f"sweep {name}"}


class Rerun(str, enum.Enum):
    """Which runs are queued when a sweep is submitted again."""

    UNDONE = "undone"
    FAILED = "failed"
    ALL = "all"
    NONE = "none"


class EarlierRuns:
    """Identities of runs that are done, live (waiting or running), failed or were stopped early.

    A success counts, whatever came after it. A live run is never queued a second time. `done_here` are
    commands that succeeded without the queue.
    """

    def __init__(
        self, runs: Iterable[SweepRun] = (), done_here: Collection[bytes] = frozenset()
    ) -> None:
        self._done_here = done_here
        self._skipped: Counter[str] = Counter()
        self.done: set[bytes] = set()
        self.live: set[bytes] = set()
        self.pruned: set[bytes] = set()
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
        elif run.state is State.PRUNED:
            self.pruned.add(key)
        elif is_final(run.state):
            self.failed.add(key)
        else:
            self.live.add(key)

    @property
    def mean_s(self) -> float | None:
        """Mean duration of the runs that are done, in seconds; None if there is none."""
        return self._spent_s / self._ended if self._ended else None

    def choose(self, runs: Iterable[Run], rerun: Rerun) -> Iterator[Run]:
        """Yield the runs to queue. Afterwards `describe_skipped` describes the others."""
        self._skipped.clear()
        known = self.done or self.live or self.failed or self.pruned or self._done_here
        if not known and rerun is not Rerun.FAILED:
            yield from runs
            return
        for run in runs:
            why_not = self._why_not(run, rerun)
            if why_not is None:
                yield run
            else:
                self._skipped[why_not] += 1

    def _why_not(self, run: Run, rerun: Rerun) -> str | None:
        """Return why a run is not queued; None if it is."""
        key = bytes.fromhex(run.identity)
        if key in self.live:
            return _LIVE
        if rerun is Rerun.ALL:
            return None
        if key in self.done or (self._done_here and run.own_command.encode() in self._done_here):
            return _DONE
        if key in self.pruned:
            return _PRUNED
        if rerun is Rerun.FAILED:
            return None if key in self.failed else _NEW
        return _FAILED if rerun is Rerun.NONE and key in self.failed else None

    def describe_skipped(self, count: int) -> str:
        """Describe the runs of `count` that `choose` skipped, and how to run them; empty if none."""
        parts = [
            f"{self._skipped[why]:,} of {count:,} runs {text}"
            for why, text in _DESCRIPTIONS.items()
            if self._skipped[why]
        ]
        return ", ".join(parts)
