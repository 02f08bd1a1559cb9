from __future__ import annotations

import asyncio

from stoker.core.lifecycle import State
from stoker.service.counts import counts
from stoker.wire import CountsQuery
from unit.engine.engine_harness import FAILED, MakeHarness


def test_jobs_that_match_a_filter_are_counted_by_state(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("train --lr 0.1", project="vision", name="Alpha")
    harness.add("train --lr 0.2", project="vision")
    harness.add("EVAL", project="language")
    harness.end("1.1", FAILED)

    def count(**wanted: str) -> dict[State, int]:
        return asyncio.run(counts(harness.context, CountsQuery(**wanted)))

    assert count() == {State.FAILED: 1, State.RUNNING: 2}
    assert count(project="vision") == {State.FAILED: 1, State.RUNNING: 1}
    assert count(text="alpha") == {State.FAILED: 1}
    assert count(text="eval", project="language") == {State.RUNNING: 1}
    assert count(gpu="1") == {State.RUNNING: 1}
    assert count(gpu="9") == {}
