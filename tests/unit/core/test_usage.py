"""What one look at the GPUs allows."""

from __future__ import annotations

import pytest

from stoker.core.usage import AttemptUse, GpuUse, Look, Sight

GIB = 2**30


def gpu(sight: Sight = Sight.PROCESSES, sick: str | None = None, releasing: bool = False) -> GpuUse:
    return GpuUse(
        key="GPU-1",
        label="0",
        sight=sight,
        total_bytes=24 * GIB,
        used_bytes=4 * GIB,
        sick=sick,
        releasing=releasing,
    )


def test_free_memory_is_neither_used_nor_kept_by_the_driver() -> None:
    assert gpu().free_bytes == 20 * GIB


@pytest.mark.parametrize(
    "other",
    [gpu(Sight.DEVICE), gpu(Sight.NONE), gpu(sick="XID 79"), gpu(releasing=True)],
)
def test_a_gpu_of_which_too_little_is_known_is_not_packed(other: GpuUse) -> None:
    assert gpu().may_be_packed
    assert not other.may_be_packed


def test_a_look_becomes_stale() -> None:
    look = Look(at_s=100.0, gpus={}, jobs={})
    assert look.is_fresh(105.0, longest_s=5.0)
    assert not look.is_fresh(106.0, longest_s=5.0)


@pytest.mark.parametrize(
    ("mean_pct", "p90_pct", "load"),
    [
        (None, None, None),
        (0.0, 0.0, 0.0),
        (90.0, 90.0, 0.9),
        (95.0, 90.0, 0.95),
        (30.0, None, 0.3),
        (30.0, 90.0, 0.1),
    ],
)
def test_a_run_that_starts_up_for_most_of_its_life_is_counted_with_less_than_its_mean(
    mean_pct: float | None, p90_pct: float | None, load: float | None
) -> None:
    use = AttemptUse(sm_mean_pct=mean_pct, sm_p90_pct=p90_pct)
    assert use.load == pytest.approx(load)


def test_what_came_before_the_first_look_at_a_run_counts_as_idle() -> None:
    brief = AttemptUse(sm_mean_pct=80.0, sm_p90_pct=80.0, samples=1)
    assert brief.load == pytest.approx(0.2)
    lasting = AttemptUse(sm_mean_pct=80.0, sm_p90_pct=80.0, samples=1000)
    assert lasting.load == pytest.approx(0.8, rel=0.01)
