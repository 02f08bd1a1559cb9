"""What the sampler sees of the GPUs and of the jobs on them; values only, no rules.

A GPU goes by its lease key (its UUID), a job by the key of its attempt. Memory is counted per GPU: of
a job on several GPUs, the figures tell of the one where it holds most, because that is where it fits
or does not.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec


class Sight(str, enum.Enum):
    """How much a look at a GPU can tell."""

    PROCESSES = "processes"  # which process holds how much
    DEVICE = "device"  # the sum alone: a job's share shows only while it is alone there
    NONE = "none"  # nothing to rely on: the GPU is lost, or the driver does not answer


class Foreigner(msgspec.Struct, frozen=True):
    """A process on a GPU that is no job of ours; None is what this machine does not tell."""

    pid: int
    user: str | None = None
    mem_bytes: int | None = None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at one moment. `used_bytes` holds all of them: jobs, foreigners and what is unexplained.

    `driver_bytes` are neither used nor free: what the driver keeps for itself.
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
    sick: str | None = None  # why nothing may start there
    releasing: bool = False  # the memory of a job that ended there is not back yet

    @property
    def free_bytes(self) -> int:
        """What nobody holds at this moment."""
        return max(0, self.total_bytes - self.driver_bytes - self.used_bytes)

    @property
    def may_be_packed(self) -> bool:
        """Whether the figures suffice to put one more job beside those that are there."""
        return self.sight is Sight.PROCESSES and not self.sick and not self.releasing


class AttemptUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt has used; None where nothing was seen, as of one too short to be looked at.

    `alone` is whether no other job was on its GPUs in the meantime, so that it was slowed by none.
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
        """The share of a GPU that a run keeps busy over its life; None if that could not be seen.

        A run that only starts up for much of its life is counted with less than its mean: such runs come
        and compute in waves, so the more of them there are, the less the GPU idles through the start-up
        of the next ones, and those that meet take their turns. Before it was first looked at it had only
        begun: of a run that is over in seconds, that is a good part.
        """
        if self.sm_mean_pct is None:
            return None
        looks = self.samples
        mean = self.sm_mean_pct / 100 * (looks / (looks + 1) if looks else 1.0)
        busy = max(mean, (self.sm_p90_pct or 0.0) / 100)
        return mean * mean / busy if busy else mean


class JobUse(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt at one moment, and what it has shown since it began.

    `mem_bytes` has its memory by GPU, None while nobody can tell. `flat_s` is for how long its peak
    has not risen by more than a hundredth.
    """

    key: str
    mem_bytes: Mapping[str, int] | None = None
    sm_pct: float | None = None
    watched_s: float = 0.0
    flat_s: float = 0.0
    so_far: AttemptUse


class Look(msgspec.Struct, frozen=True):
    """All GPUs and all running jobs at one moment. An old look (see `at_s`) is no base for packing."""

    at_s: float
    gpus: Mapping[str, GpuUse]
    jobs: Mapping[str, JobUse]

    def is_fresh(self, now_s: float, longest_s: float) -> bool:
        """Whether the sampler still looks: a driver that hangs lets its last look grow old."""
        return now_s - self.at_s <= longest_s
