from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.service.counts import count
from unit.engine.engine_harness import FAILED, MakeHarness


def test_what_a_filter_lets_through_is_counted_by_state(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("train --lr 0.1", project="vision", name="Alpha")
    harness.add("train --lr 0.2", project="vision")
    harness.add("EVAL", project="language")
    harness.end("1.1", FAILED)
    path = harness.database.path

    def counts(**wanted: str) -> dict[State, int]:
        return count(path, **{"project": None, "text": None, "gpu": None, **wanted})

    assert counts() == {State.FAILED: 1, State.RUNNING: 2}
    assert counts(project="vision") == {State.FAILED: 1, State.RUNNING: 1}
    assert counts(text="alpha") == {State.FAILED: 1}
    assert counts(text="eval", project="language") == {State.RUNNING: 1}
    assert counts(gpu="1") == {State.RUNNING: 1}
    assert counts(gpu="9") == {}
