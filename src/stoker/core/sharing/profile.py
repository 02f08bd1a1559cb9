"""Profiles: memory, load and run time of a kind of job on a GPU model, learned from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from stoker.core.sharing.estimate import Estimate, estimate
from stoker.core.sharing.parameters import Params
from stoker.core.sharing.rules import SharingRules
from stoker.core.usage import AttemptUse

T = TypeVar("T")
_REMEMBERED = 20
_POINTS = 32
_COMPARED = 3
_BELIEVED = 10  # a run that held no memory in this many samples is taken to need none
_MOST_BUMP = 2.0
_CALM = 0.9  # factor on the excess of `bump` after each successful run
_PROBATION = 16  # runs that must succeed after a GPU fault
_OOM_WINDOW_S = 600.0
_EXCLUSIVE_S = 3600.0


class Point(msgspec.Struct, frozen=True, array_like=True):
    """What runs with certain parameters have shown: peak memory, and run time alone on a GPU."""

    params: Params
    peak_bytes: int
    alone_s: float | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last runs of one kind have shown.

    `points` has one entry for each set of parameters. `packed` has, for runs that shared their GPU, the mean
    number of jobs there and the run time. `ooms` has the Unix times at which a run found no memory beside
    others: Unix time survives a reboot. `on_probation` counts the runs that must succeed after a GPU fault
    before the kind is trusted again. `ram` has the RAM of the largest process of each run, in bytes.
    `unreported` has how much more was measured than each run reported of itself: what the driver and the
    libraries hold outside the run's own allocator.
    """

    peaks: tuple[int, ...] = ()
    points: tuple[Point, ...] = ()
    sm: tuple[float, ...] = ()
    alone_s: tuple[float, ...] = ()
    packed: tuple[tuple[float, float], ...] = ()
    bump: float = 1.0
    ooms: tuple[float, ...] = ()
    most: int | None = None
    on_probation: int = 0
    ram: tuple[int, ...] = ()
    unreported: tuple[int, ...] = ()

    @property
    def finished(self) -> int:
        """How many runs have shown their need."""
        return len(self.peaks)

    @property
    def is_proved(self) -> bool:
        """Whether runs have ended without a GPU fault, so that one may share an MPS server with others."""
        return self.finished > 0 and not self.on_probation

    @property
    def sm_load(self) -> float | None:
        """Share of a GPU that a run keeps busy; None if unknown."""
        return max(self.sm) if self.sm else None

    @property
    def lone_s(self) -> float | None:
        """Median run time alone on a GPU, in seconds; None if unknown."""
        return _median(self.alone_s) if self.alone_s else None

    def ram_need(self, rules: SharingRules) -> int | None:
        """Return the RAM to set aside for a run; None if it is unknown."""
        if not self.ram:
            return None
        few = len(self.ram) < rules.learned_from
        return int(max(self.ram) * (rules.few_factor if few else rules.learned_factor))

    def is_brief(self, rules: SharingRules) -> bool:
        """Whether runs of this kind are known to be short."""
        return self.lone_s is not None and self.lone_s < rules.brief_s

    def peak_for(self, params: Params) -> Estimate | None:
        """Return the peak memory of a run with these parameters; None if the runs do not tell."""
        seen = tuple((each.params, float(each.peak_bytes)) for each in self.points)
        return estimate(seen, params)

    def seconds_for(self, params: Params) -> float | None:
        """Return the run time alone on a GPU with these parameters; without them, that of all runs."""
        seen = tuple((each.params, each.alone_s) for each in self.points if each.alone_s)
        found = estimate(seen, params)
        return self.lone_s if found is None else found.value

    def learn(
        self,
        use: AttemptUse,
        took_s: float,
        tenants: float,
        rules: SharingRules,
        params: Params = (),
    ) -> Profile:
        """Add a successful run that shared its GPU with `tenants` jobs on average, itself included."""
        alone = use.alone
        if use.mem_peak_bytes is None or (
            not use.mem_peak_bytes and not (alone and use.samples >= _BELIEVED)
        ):
            return self  # the run may have ended before the sampler saw it use memory
        sm = self.sm
        if use.load is not None and (alone or not sm):
            sm = _last(sm, use.load)
        learned = msgspec.structs.replace(
            self,
            peaks=_last(self.peaks, use.mem_peak_bytes),
            points=self._with_point(params, use.mem_peak_bytes, took_s if alone else None),
            sm=sm,
            alone_s=_last(self.alone_s, took_s) if alone else self.alone_s,
            packed=self.packed if alone else _last(self.packed, (tenants, took_s)),
            bump=1.0 + (self.bump - 1.0) * _CALM,
            on_probation=max(0, self.on_probation - 1),
        )
        return learned if alone else learned._heed_gain(rules)

    def learn_ram(self, peak_bytes: int) -> Profile:
        """Add the RAM of a successful run."""
        return msgspec.structs.replace(self, ram=_last(self.ram, peak_bytes))

    def learn_unreported(self, measured_bytes: int, reported_bytes: int) -> Profile:
        """Add a run whose memory was measured, and which reported its own peak."""
        more_bytes = max(0, measured_bytes - reported_bytes)
        return msgspec.structs.replace(self, unreported=_last(self.unreported, more_bytes))

    def whole_peak(self, reported_bytes: int) -> int:
        """Return the peak of a run that has reported its own: the sampler may have missed a short one."""
        return reported_bytes + max(self.unreported, default=0)

    def _with_point(
        self, params: Params, peak_bytes: int, alone_s: float | None
    ) -> tuple[Point, ...]:
        """Return the points with one more run. Of runs with equal parameters, the last counts most."""
        before = next((each for each in self.points if each.params == params), None)
        if before is not None:
            peak_bytes = max(peak_bytes, (before.peak_bytes + peak_bytes) // 2)
            alone_s = before.alone_s if alone_s is None else alone_s
        kept = [each for each in self.points if each is not before]
        return (*kept, Point(params, peak_bytes, alone_s))[-_POINTS:]

    def _heed_gain(self, rules: SharingRules) -> Profile:
        """Admit fewer jobs of this kind at a time if sharing brought no gain."""
        gain = self.gain
        if gain is None or gain >= rules.least_gain:
            return self
        crowd = _median([tenants for tenants, _took_s in self.packed])
        return msgspec.structs.replace(self, most=max(1, round(crowd) - 1), packed=())

    @property
    def gain(self) -> float | None:
        """Throughput of shared runs relative to one run alone; None if too few runs are known."""
        if len(self.alone_s) < _COMPARED or len(self.packed) < _COMPARED:
            return None
        tenants = _median([tenants for tenants, _took_s in self.packed])
        slowdown = _median([took_s for _tenants, took_s in self.packed]) / _median(self.alone_s)
        return tenants / slowdown

    def suffer_oom(self, at_s: float, rules: SharingRules) -> Profile:
        """Add a run that found no memory beside others."""
        bump = min(_MOST_BUMP, self.bump * rules.oom_factor)
        return msgspec.structs.replace(self, bump=bump, ooms=_last(self.ooms, at_s))

    def suffer_fault(self) -> Profile:
        """Add a run that ended with a GPU fault, its own or that of a job beside it."""
        return msgspec.structs.replace(self, on_probation=_PROBATION)

    def is_exclusive(self, now_s: float) -> bool:
        """Whether the kind ran out of memory beside others so often that it runs alone for a while."""
        # `abs`: after the clock was set back, times in the future do not count as recent for ever.
        recent = [at_s for at_s in self.ooms if abs(now_s - at_s) <= _EXCLUSIVE_S]
        return any(b - a <= _OOM_WINDOW_S for a, b in pairwise(recent))


def _last(known: tuple[T, ...], new: T) -> tuple[T, ...]:
    return (*known, new)[-_REMEMBERED:]


def _median(values: Sequence[float]) -> float:
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
