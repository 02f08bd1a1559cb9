"""What is done when a job needs more than was thought."""

from __future__ import annotations

from typing import Any

from stoker.core.failure import OomFigures
from stoker.core.sharing.overrun import Case, Remedy, judge_oom, raise_reservations
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.rules import SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant

GIB = 1 << 30
RULES = SharingRules()


def gpu(*figures: tuple[float, float]) -> SharedGpu:
    tenants = tuple(
        Tenant(
            request=ShareRequest(job=number, kind="k"),
            reserved_bytes=int(reserved * GIB),
            used_bytes=int(used * GIB),
        )
        for number, (reserved, used) in enumerate(figures, 1)
    )
    return SharedGpu(key="A", label="0", model="M", total_bytes=24 * GIB, tenants=tenants)


def case(**facts: Any) -> Case:
    given = {
        "reserved_bytes": 6 * GIB,
        "shared": True,
        "total_bytes": 24 * GIB,
        "largest_bytes": 24 * GIB,
        "figures": OomFigures(),
    }
    return Case(**{**given, **facts})


def test_a_job_that_outgrows_its_reservation_gets_more_of_the_free_capacity() -> None:
    assert raise_reservations(gpu((6, 8), (6, 5)), RULES) == {1: int(8 * GIB * 1.1)}


def test_memory_promised_to_others_is_not_given_away() -> None:
    raised = raise_reservations(gpu((10, 14), (10, 5)), RULES)
    there = gpu((10, 14), (10, 5))
    assert raised[1] + 10 * GIB == there.capacity(RULES)


def test_a_job_within_its_reservation_keeps_it() -> None:
    assert raise_reservations(gpu((6, 6), (6, 1)), RULES) == {}


def test_a_job_out_of_memory_is_tried_again_with_the_memory_its_message_names() -> None:
    said = OomFigures(tried_bytes=2 * GIB, own_bytes=6 * GIB)
    verdict = judge_oom(case(figures=said), RULES)
    assert verdict.remedy is Remedy.MORE_ROOM
    assert verdict.need_bytes == int(8 * GIB * 1.1)


def test_a_job_out_of_memory_without_figures_gets_a_quarter_more() -> None:
    assert judge_oom(case(), RULES).need_bytes == int(7.5 * GIB)


def test_the_second_failure_beside_others_leads_to_a_gpu_alone() -> None:
    assert judge_oom(case(before=1), RULES).remedy is Remedy.ALONE


def test_alone_only_a_larger_gpu_helps() -> None:
    verdict = judge_oom(case(shared=False, largest_bytes=80 * GIB), RULES)
    assert (verdict.remedy, verdict.above_bytes) == (Remedy.LARGER, 24 * GIB)


def test_a_failure_alone_on_the_largest_gpu_is_final() -> None:
    verdict = judge_oom(case(shared=False, before=2), RULES)
    assert verdict.remedy is Remedy.FAIL
    assert verdict.why == "needs more than the 24.0 GiB of this GPU, and there is no larger one"


def test_a_job_that_lacked_foreign_memory_is_tried_elsewhere_then_as_asked() -> None:
    said = OomFigures(tried_bytes=2 * GIB, free_bytes=GIB, own_bytes=9 * GIB, others_bytes=14 * GIB)
    verdict = judge_oom(case(shared=False, figures=said), RULES)
    assert (verdict.remedy, verdict.is_tried_again) == (Remedy.ELSEWHERE, True)
    assert verdict.why == (
        "ran out of memory while others had 14.0 GiB of this GPU: again, on another one if there is one"
    )
    again = judge_oom(case(shared=False, figures=said, before=2), RULES)
    assert (again.remedy, again.is_tried_again) == (Remedy.AS_ASKED, False)


def test_foreign_memory_does_not_count_if_it_would_not_have_sufficed() -> None:
    said = OomFigures(tried_bytes=8 * GIB, free_bytes=GIB, own_bytes=20 * GIB, others_bytes=3 * GIB)
    assert judge_oom(case(shared=False, figures=said), RULES).remedy is Remedy.FAIL


def test_memory_of_the_job_s_own_processes_is_not_foreign() -> None:
    said = OomFigures(tried_bytes=2 * GIB, free_bytes=GIB, own_bytes=9 * GIB, others_bytes=14 * GIB)
    alone = case(shared=False, figures=said, peak_bytes=23 * GIB)
    assert judge_oom(alone, RULES).remedy is Remedy.FAIL


def test_measured_foreign_memory_counts_if_the_message_has_no_figures() -> None:
    for held, remedy in ((None, Remedy.ELSEWHERE), (12 * GIB, Remedy.ELSEWHERE), (1, Remedy.FAIL)):
        assert judge_oom(case(shared=False, others_bytes=held), RULES).remedy is remedy


def test_a_capped_job_out_of_memory_gets_more_memory_even_if_alone() -> None:
    said = OomFigures(tried_bytes=2 * GIB, own_bytes=6 * GIB, allowed_bytes=6 * GIB)
    verdict = judge_oom(case(shared=False, capped=True, figures=said), RULES)
    assert (verdict.remedy, verdict.need_bytes) == (Remedy.MORE_ROOM, int(8 * GIB * 1.1))
    assert verdict.why == "ran out of memory capped at 6.0 GiB: again with 8.8 GiB"
    again = judge_oom(case(shared=False, capped=True, before=1), RULES)
    assert again.remedy is Remedy.ALONE
