"""Memory reservation: how much of a GPU is reserved for a job before it starts."""

from __future__ import annotations

import enum

import msgspec

from stoker.core.sharing.parameters import Params, is_size
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu
from stoker.core.size import format_bytes
from stoker.core.usage import JobUse

_MOST_GROWTH = 64.0


class Source(enum.Enum):
    """Origin of a reservation's figure."""

    DECLARED = "declared"
    NEEDED = "it ran out of memory with less"
    LEARNED = "learned"
    PROBE = "measured on a running job of its kind"
    TRIAL = "from runs with other parameters"
    RAMP = "from a running job that is still young"
    EQUAL = "an equal part"
    NONE = "nothing is set aside"
    WHOLE = "the whole GPU"


class Probe(msgspec.Struct, frozen=True):
    """A running job of a kind, with its parameters."""

    use: JobUse
    params: Params = ()


class MemoryReservation(msgspec.Struct, frozen=True):
    """An amount of GPU memory and the reason for it."""

    bytes: int
    source: Source
    because: str

    @property
    def can_be_capped(self) -> bool:
        """Whether the amount was meant to be enough, so that the job can be limited to it."""
        return self.source not in (Source.EQUAL, Source.NONE, Source.WHOLE)

    @property
    def is_trial(self) -> bool:
        """Whether the amount may be too small: only a job that keeps to it may start with it."""
        return self.source in (Source.TRIAL, Source.RAMP)

    @property
    def is_whole(self) -> bool:
        """Whether no other job fits beside it."""
        return self.source is Source.WHOLE

    def __str__(self) -> str:
        return f"{format_bytes(self.bytes)} ({self.because})"


def reservation_for(
    request: ShareRequest,
    gpu: SharedGpu,
    profile: Profile,
    probe: Probe | None,
    rules: SharingRules,
    day_s: float,
) -> MemoryReservation:
    """Return what to reserve: the first rule that applies. `probe` is a running job of the same kind."""
    capacity = gpu.capacity(rules)
    because = _why_whole(request, profile, day_s)
    if because is not None:
        return MemoryReservation(capacity, Source.WHOLE, because)
    if request.share.mode is Mode.ALWAYS:
        most = request.share.most or rules.most
        return MemoryReservation(
            capacity // most, Source.EQUAL, f"1 of {most} equal parts, as asked"
        )
    if rules.keep_gpu_share is not None:
        return MemoryReservation(0, Source.NONE, "as long as enough is free")
    found = _known_reservation(request, capacity, profile, probe, rules)
    if found is None:
        return MemoryReservation(
            capacity, Source.WHOLE, "the whole GPU: nothing is known of its kind yet"
        )
    if request.need_bytes is not None and request.need_bytes > found.bytes:
        found = MemoryReservation(
            request.need_bytes, Source.NEEDED, "it ran out of memory with less"
        )
    if found.bytes > capacity:
        return MemoryReservation(capacity, Source.WHOLE, f"the whole GPU: {found}")
    return found


def _why_whole(request: ShareRequest, profile: Profile, day_s: float) -> str | None:
    if request.share.mode is Mode.NEVER:
        return "the whole GPU: it does not share"
    if request.alone:
        return "the whole GPU: it ran out of memory beside others"
    if request.share.mode is Mode.AUTO and profile.is_exclusive(day_s):
        return "the whole GPU: runs of its kind ran out of memory beside others"
    return None


def _known_reservation(
    request: ShareRequest,
    capacity: int,
    profile: Profile,
    probe: Probe | None,
    rules: SharingRules,
) -> MemoryReservation | None:
    if request.declared_bytes is not None:
        if request.declared_bytes > capacity:
            return MemoryReservation(capacity, Source.WHOLE, "the whole GPU, as declared")
        return MemoryReservation(request.declared_bytes, Source.DECLARED, "declared")
    return (
        _learned(request, profile, rules)
        or _measured(request, probe, rules)
        or _on_trial(request, profile, probe, rules)
    )


def _learned(
    request: ShareRequest, profile: Profile, rules: SharingRules
) -> MemoryReservation | None:
    """Return what finished runs tell: those with its parameters, or all if none of the others is larger."""
    if not profile.peaks:
        return None
    runs, peak, names = profile.finished, max(profile.peaks), ""
    if request.params and profile.points:
        found = profile.peak_for(request.params)
        if found is None and (request.can_be_capped or _least_growth(request, profile) > 1.0):
            return None
        if found is not None:
            asked = dict(request.params)
            names = ", ".join(f"{name}={asked[name]:g}" for name in found.names)
            if not found.exact:
                because = f"{format_bytes(int(found.value))} for {names}, from {_count(found.runs)}"
                return MemoryReservation(int(found.upper * profile.bump), Source.LEARNED, because)
            peak, runs = int(found.value), max(found.runs, runs if not found.names else 0)
    factor = rules.few_factor if runs < rules.learned_from else rules.learned_factor
    because = f"learned from {_count(runs)} with up to {format_bytes(peak)}"
    if names:
        because = f"{format_bytes(peak)} for {names}, from {_count(runs)}"
    return MemoryReservation(int(peak * factor * profile.bump), Source.LEARNED, because)


def _measured(
    request: ShareRequest, probe: Probe | None, rules: SharingRules
) -> MemoryReservation | None:
    """Return what a running job of its kind tells that has not grown for long."""
    if probe is None or _growth(probe.params, request.params) > 1.0:
        return None
    use, seen = probe.use, probe.use.so_far.mem_peak_bytes
    if not seen or use.watched_s < rules.probe_s or use.flat_s < rules.flat_s:
        return None
    because = f"a running job of its kind has {format_bytes(seen)} and no longer grows"
    return MemoryReservation(int(seen * rules.probe_factor), Source.PROBE, because)


def _on_trial(
    request: ShareRequest, profile: Profile, probe: Probe | None, rules: SharingRules
) -> MemoryReservation | None:
    """Return a cap from runs with other parameters, or from a running job that is still young."""
    if not request.can_be_capped:
        return None
    if profile.points:
        nearest = min(profile.points, key=lambda each: _growth(each.params, request.params))
        peak, params, source = nearest.peak_bytes, nearest.params, Source.TRIAL
        because = f"a cap: a run with other parameters took {format_bytes(peak)}"
    elif probe is not None and probe.use.has_settled(rules.ramp_flat_s):
        peak, params, source = probe.use.so_far.mem_peak_bytes or 0, probe.params, Source.RAMP
        because = f"a cap: a running job of its kind has {format_bytes(peak)}"
    else:
        return None
    if not peak:
        return None
    wanted = peak * rules.few_factor * profile.bump * _growth(params, request.params)
    return MemoryReservation(int(wanted), source, because)


def _least_growth(request: ShareRequest, profile: Profile) -> float:
    return min(_growth(each.params, request.params) for each in profile.points)


def _growth(before: Params, after: Params) -> float:
    """Return how many times larger a run may be: the product of the ratios of its whole numbers.

    Sizes are whole numbers. Rates and shares, which are not, hardly ever cost memory, and seeds never do.
    """
    known = dict(before)
    growth = 1.0
    for name, value in after:
        old = known.get(name)
        if old is not None and value > old and is_size(name, value) and old.is_integer():
            growth *= value / max(1.0, old)
    return min(growth, _MOST_GROWTH)


def _count(runs: int) -> str:
    return f"{runs} run{'s' * (runs != 1)}"
