"""Measurements of GPUs and of the jobs on them. Values only, no rules.

A GPU is identified by its lease key (its UUID), a job by the key of its attempt. Memory is counted per
GPU: for a job on several GPUs the figures are those of the GPU where it holds most, because that one
decides whether it fits.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

Sample = tuple[float, int | None, float | None]
"""Time, bytes of GPU memory and per cent of the GPU that an attempt used; None where unknown."""


def computes(sample: Sample) -> bool:
    """Whether an attempt computed; where its load is unknown, memory that it may hold counts."""
    _at, mem_bytes, sm_pct = sample
    return mem_bytes != 0 if sm_pct is None else sm_pct > 0


class Sight(str, enum.Enum):
    """How much the sampler can see of a GPU."""

    PROCESSES = "processes"  # the memory of each process
    DEVICE = "device"  # only the sum: a job's use is known only while it is alone there
    NONE = "none"  # nothing reliable: the GPU is lost, or the driver does not answer


class Foreigner(msgspec.Struct, frozen=True):
    """A process on a GPU that is no job of ours. None: the machine does not show this."""

    pid: int
    user: str | None = None
    mem_bytes: int | None = None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at one moment. `used_bytes` is the memory of jobs, foreign processes and unexplained use.

    `driver_bytes` is what the driver keeps for itself: neither used nor free.
    """

    key: str
    label: str
    sight: Sight
    total_bytes: int = 0
    used_bytes: int = 0
    driver_bytes: int = 0
    foreign_bytes: int = 0
    foreigners: tuple[Foreigner, ...] = ()
    utilisation_pct: int | None = None
    sick: str | None = None  # why no job may start there
    releasing: bool = False  # the memory of an ended job is not released yet

    @property
    def free_bytes(self) -> int:
        """Memory that is unused at this moment."""
        return max(0, self.total_bytes - self.driver_bytes - self.used_bytes)

    @property
    def may_be_packed(self) -> bool:
        """Whether the figures suffice to add a job to those on the GPU."""
        return self.sight is Sight.PROCESSES and not self.sick and not self.releasing


class AttemptUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt has used. None where nothing was measured, as for a very short attempt.

    `alone`: no other job was on its GPUs meanwhile, so none slowed it down.
    """

    mem_peak_bytes: int | None = None
    mem_mean_bytes: int | None = None
    sm_mean_pct: float | None = None
    sm_p50_pct: float | None = None
    sm_p90_pct: float | None = None
    samples: int = 0
    alone: bool = True

    @property
    def load(self) -> float | None:
        """The share of a GPU that a run keeps busy over its life; None if it was not measured.

        A run that spends much of its life starting up counts with less than its mean. Such runs compute in
        bursts: the more of them there are, the less the GPU is idle during start-ups, and bursts that meet
        take turns. The time before the first sample counts as start-up: for a run of a few seconds that is
        a good part.
        """
        if self.sm_mean_pct is None:
            return None
        looks = self.samples
        mean = self.sm_mean_pct / 100 * (looks / (looks + 1) if looks else 1.0)
        busy = max(mean, (self.sm_p90_pct or 0.0) / 100)
        return mean * mean / busy if busy else mean


def with_reported_peak(use: AttemptUse | None, reported_bytes: int, *, alone: bool) -> AttemptUse:
    """Return what an attempt has used, with the larger of its measured and its reported peak.

    `alone` counts for an attempt that was not measured.
    """
    use = AttemptUse(alone=alone) if use is None else use
    peak_bytes = max(reported_bytes, use.mem_peak_bytes or 0)
    return msgspec.structs.replace(use, mem_peak_bytes=peak_bytes)


class JobUse(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt at one moment, and what it has shown since it began.

    `mem_bytes` is its memory by GPU; None while unknown. `flat_s` is for how long its peak has not risen
    by more than one percent.
    """

    key: str
    mem_bytes: Mapping[str, int] | None = None
    sm_pct: float | None = None
    watched_s: float = 0.0
    flat_s: float = 0.0
    so_far: AttemptUse

    def has_settled(self, flat_s: float) -> bool:
        """Whether it computes, and its memory has been flat for so long: it is past its start-up."""
        return bool(self.so_far.mem_peak_bytes and self.sm_pct) and self.flat_s >= flat_s


class Look(msgspec.Struct, frozen=True):
    """All GPUs and all running jobs at one moment, `at_s`. An old look must not be used for packing."""

    at_s: float
    gpus: Mapping[str, GpuUse]
    jobs: Mapping[str, JobUse]

    def is_fresh(self, now_s: float, longest_s: float) -> bool:
        """Whether the sample is recent. It grows old while the driver hangs."""
        return now_s - self.at_s <= longest_s
