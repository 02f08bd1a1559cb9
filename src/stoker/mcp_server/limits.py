"""Limits of what agents may submit: jobs within an hour, and GPU-hours within a day.

What was submitted is read from the queue, so a new session of an agent does not begin at zero. All agents
of a project share its limits.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stoker.errors import UsageError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Limits(msgspec.Struct, frozen=True):
    """The most that agents may submit."""

    jobs_per_hour: int
    gpu_hours_per_day: float


class PastJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted within the last day, and the GPU-hours that it used or may use."""

    submitted_at: float
    gpu_hours: float


class Usage(msgspec.Struct, frozen=True):
    """What was submitted: jobs within the last hour, GPU-hours within the last day."""

    jobs: int
    gpu_hours: float

    @classmethod
    def of(cls, jobs: Iterable[PastJob], now: float) -> Usage:
        """Add up jobs."""
        recent = [job for job in jobs if job.submitted_at > now - DAY_S]
        last_hour = sum(job.submitted_at > now - HOUR_S for job in recent)
        return cls(last_hour, sum(job.gpu_hours for job in recent))


def check_room(limits: Limits, used: Usage, *, jobs: int, gpu_hours: float) -> None:
    """Raise UsageError if so much more would exceed a limit."""
    if used.jobs + jobs > limits.jobs_per_hour:
        raise UsageError(
            f"{_count(jobs)} would exceed the limit of {limits.jobs_per_hour} jobs an hour"
            f" ({used.jobs} submitted in the last hour): submit fewer, or wait; the user can raise it with"
            " stoker mcp --jobs-per-hour"
        )
    if used.gpu_hours + gpu_hours > limits.gpu_hours_per_day:
        left = max(0.0, limits.gpu_hours_per_day - used.gpu_hours)
        raise UsageError(
            f"{gpu_hours:.4g} GPU-hours would exceed the limit of {limits.gpu_hours_per_day:g} a day,"
            f" of which {left:.4g} are left: ask for fewer GPUs, runs or hours; the user can raise it with"
            " stoker mcp --gpu-hours"
        )


def _count(jobs: int) -> str:
    return "1 more job" if jobs == 1 else f"{jobs:,} more jobs"
