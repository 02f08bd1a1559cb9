from __future__ import annotations

from stoker.core.queue_rank import FIFO, SHORTEST
from stoker.simulator.order_comparison import complete, draw_mixed
from stoker.simulator.workload import Work


def work(arrival_s: float, duration_s: float, kind: str) -> Work:
    return Work(arrival_s=arrival_s, duration_s=duration_s, memory=((0.0, 1),), sm=1.0, kind=kind)


def test_a_short_job_of_a_known_kind_does_not_wait_for_long_ones() -> None:
    learned = [work(0.0, 60.0, "short"), work(0.0, 3600.0, "long")]
    works = [*learned, *[work(1.0, 3600.0, "long")] * 3, work(3700.0, 60.0, "short")]

    assert complete(works, 1, FIFO).mean_s > complete(works, 1, SHORTEST).mean_s


def test_drawn_jobs_are_done_sooner_on_average() -> None:
    works = draw_mixed(0, 2)
    assert works == draw_mixed(0, 2)
    assert complete(works, 2, SHORTEST).mean_s < complete(works, 2, FIFO).mean_s
