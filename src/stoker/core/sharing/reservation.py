"""Memory reservation: how much of a GPU is reserved for a job before it starts."""

from __future__ import annotations

import enum

import msgspec

from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu
from stoker.core.size import format_bytes
from stoker.core.usage import JobUse


class Source(enum.Enum):
    """Origin of a reservation's figure."""

    DECLARED = "declared"
    NEEDED = "it ran out of memory with less"
    LEARNED = "learned"
    PROBE = "measured on a running job of its kind"
    EQUAL = "an equal part"
    NONE = "nothing is set aside"
    WHOLE = "the whole GPU"


class MemoryReservation(msgspec.Struct, frozen=True):
    """An amount of GPU memory and the reason for it."""

    bytes: int
    source: Source
    because: str

    @property
    def can_be_capped(self) -> bool:
        """Whether the amount was meant to be enough, so that the job can be limited to it."""
        return self.source in (Source.DECLARED, Source.NEEDED, Source.LEARNED, Source.PROBE)

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
    probe: JobUse | None,
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
    probe: JobUse | None,
    rules: SharingRules,
) -> MemoryReservation | None:
    if request.declared_bytes is not None:
        if request.declared_bytes > capacity:
            return MemoryReservation(capacity, Source.WHOLE, "the whole GPU, as declared")
        return MemoryReservation(request.declared_bytes, Source.DECLARED, "declared")
    if profile.peaks:
        runs = profile.finished
        few = runs < rules.learned_from
        factor = rules.few_factor if few else rules.learned_factor
        peak = max(profile.peaks)
        because = f"learned from {runs} run{'s' * (runs != 1)} with up to {format_bytes(peak)}"
        return MemoryReservation(int(peak * factor * profile.bump), Source.LEARNED, because)
    if probe is not None and probe.watched_s >= rules.probe_s and probe.flat_s >= rules.flat_s:
        seen = probe.so_far.mem_peak_bytes
        if seen:
            because = f"a running job of its kind has {format_bytes(seen)} and no longer grows"
            return MemoryReservation(int(seen * rules.probe_factor), Source.PROBE, because)
    return None
