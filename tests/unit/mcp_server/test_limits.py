"""How much agents may submit."""

from __future__ import annotations

import pytest

from stoker.errors import UsageError
from stoker.mcp_server.limits import Limits, PastJob, Usage, check_room

LIMITS = Limits(jobs_per_hour=3, gpu_hours_per_day=10.0)
NOW = 1e9


def past(age_h: float, gpu_hours: float = 1.0) -> PastJob:
    return PastJob(submitted_at=NOW - age_h * 3600, gpu_hours=gpu_hours)


def test_jobs_count_for_an_hour_and_their_gpu_hours_for_a_day() -> None:
    used = Usage.of([past(0.1), past(0.9), past(1.1, 2.0), past(23.9, 4.0), past(24.1, 100.0)], NOW)
    assert used == Usage(2, 8.0)


def test_what_fits_is_allowed_to_the_last_unit() -> None:
    check_room(LIMITS, Usage(2, 8.0), jobs=1, gpu_hours=2.0)
    with pytest.raises(UsageError, match=r"^2 more jobs would exceed the limit of 3 jobs an hour"):
        check_room(LIMITS, Usage(2, 8.0), jobs=2, gpu_hours=0.0)
    with pytest.raises(UsageError, match=r"^2\.5 GPU-hours .* of which 2 are left"):
        check_room(LIMITS, Usage(2, 8.0), jobs=1, gpu_hours=2.5)
