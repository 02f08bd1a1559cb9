"""Rules that stop runs early: W&B's hyperband, ASHA and the median rule.

An iteration is one reported value. Each rule compares runs at certain iterations. It needs no clock, and it
can be rebuilt from the reported values.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

HYPERBAND, ASHA, MEDIAN = "hyperband", "asha", "median"
KINDS = (HYPERBAND, ASHA, MEDIAN)
_MOST_BANDS = 100


class StopRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of KINDS with its figures.

    `grace_s` is the time that a run has to end by itself before it gets a signal. With `park` runs are
    suspended instead.
    """

    kind: Literal["hyperband", "asha", "median"]
    min_iter: int | None = None
    max_iter: int | None = None
    s: int = 0
    eta: float = 3.0
    min_runs: int = 5
    grace_s: float = 30.0
    park: bool = False


def bands_of(rule: StopRule) -> list[int]:
    """Return the iterations at which hyperband compares runs, as W&B computes them."""
    if rule.max_iter is not None:
        found: list[int] = []
        band = float(rule.max_iter)
        for _step in range(rule.s):
            band /= rule.eta
            if band < 1:
                break
            found.append(int(band))
        return sorted(found)
    return _powers(rule.min_iter or 1, rule.eta)


def _powers(first: int, eta: float) -> list[int]:
    band = float(first)
    found = []
    for _step in range(_MOST_BANDS):
        if not math.isfinite(band):
            break
        found.append(int(band))
        band *= eta
    return found


class Curve:
    """The finite values that one run reported, lower is better, and the best until each of them."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.best: list[float] = []

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: float) -> None:
        """Add the next value; one that is not finite is no iteration."""
        if math.isfinite(value):
            self.values.append(value)
            self.best.append(min(value, self.best[-1]) if self.best else value)

    def cut(self, length: int) -> None:
        """Forget all values but the first ones: a retry reports them again."""
        del self.values[length:], self.best[length:]


class EarlyStopping:
    """Compares the runs of a sweep. `judge` tells whether a run is to be stopped now."""

    def __init__(self, rule: StopRule, *, maximize: bool) -> None:
        self.rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._curves: dict[str, Curve] = {}
        self._passed: dict[str, int] = {}  # by run: the last iteration at which it was judged
        self._bands = bands_of(rule)
        judges: dict[str, Callable[[str, Curve], str | None]] = {
            HYPERBAND: self._hyperband,
            ASHA: self._asha,
            MEDIAN: self._median,
        }
        self._judge = judges[rule.kind]

    def report(self, run: str, value: float) -> None:
        """Add the next value of a run."""
        self._curves.setdefault(run, Curve()).add(self._sign * value)

    def cut(self, run: str, length: int) -> None:
        """Forget the values of a run after the first ones, and what was decided by them."""
        if run in self._curves:
            self._curves[run].cut(length)
        if self._passed.get(run, 0) > length:
            self._passed[run] = length

    def admit(self, run: str) -> None:
        """Take a run as judged up to now: it was going on when its reports were read for the first time."""
        self._passed[run] = len(self._curves.get(run, ()))

    def judge(self, run: str) -> str | None:
        """Return why a run is to be stopped; None if it goes on."""
        curve = self._curves.get(run)
        return None if curve is None or not len(curve) else self._judge(run, curve)

    def _hyperband(self, _run: str, curve: Curve) -> str | None:
        """W&B's rule: at the last band that it has passed, the best so far is worse than the quantile."""
        passed = [band for band in self._bands if band < len(curve)]
        if not passed:
            return None
        band = passed[-1]
        values = sorted(each.values[band] for each in self._curves.values() if len(each) > band)
        threshold = values[int(1.0 / self.rule.eta * len(values))]
        if curve.best[-1] <= threshold:
            return None
        return self._describe(curve.best[-1], threshold, band, f"the best 1/{self.rule.eta:g}")

    def _asha(self, run: str, curve: Curve) -> str | None:
        """At each new rung only the best 1/eta of those that have reached it so far go on.

        As in Optuna and Ray Tune, a run counts with its value at the rung, not with its best before.
        """
        for rung in self._new_rungs(run, len(curve)):
            self._passed[run] = rung
            values = sorted(
                each.values[rung - 1] for each in self._curves.values() if len(each) >= rung
            )
            threshold = values[max(1, int(len(values) / self.rule.eta)) - 1]
            if curve.values[rung - 1] > threshold:
                share = f"the best 1/{self.rule.eta:g}"
                return self._describe(curve.values[rung - 1], threshold, rung, share)
        return None

    def _new_rungs(self, run: str, length: int) -> Iterator[int]:
        limit = self.rule.max_iter
        for rung in _powers(self.rule.min_iter or 1, self.rule.eta):
            if rung > length or (limit is not None and rung >= limit):
                return
            if rung > self._passed.get(run, 0):
                yield rung

    def _median(self, run: str, curve: Curve) -> str | None:
        """At some new iteration the best so far is worse than the median of the others' values there.

        This is the rule of Vizier and Optuna.
        """
        first = max(self._passed.get(run, 0) + 1, self.rule.min_iter or 1)
        for at in range(first, len(curve) + 1):
            self._passed[run] = at
            others = [
                each.values[at - 1]
                for name, each in self._curves.items()
                if name != run and len(each) >= at
            ]
            if len(others) < self.rule.min_runs:
                continue
            threshold = statistics.median(others)
            if curve.best[at - 1] > threshold:
                return self._describe(curve.best[at - 1], threshold, at, "the median")
        return None

    def _describe(self, value: float, threshold: float, iteration: int, what: str) -> str:
        return (
            f"{self._sign * value:g} is worse than {what} of the runs at iteration {iteration}"
            f" ({self._sign * threshold:g})"
        )
