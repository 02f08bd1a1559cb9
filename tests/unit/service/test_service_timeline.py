from __future__ import annotations

from stoker.service.timeline import timeline
from stoker.wire import TimelineQuery
from unit.engine.engine_harness import Harness


def test_the_earlier_attempt_of_a_job_that_runs_again_is_told(harness: Harness) -> None:
    harness.add("a", retries=1)
    harness.end("1.1", status=256)

    told = timeline(harness.context, TimelineQuery(since=0.0)).attempts

    assert [(each.attempt, each.state) for each in told] == [(1, "failed"), (2, "running")]
