from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.service.counts import count
from unit.engine.world import FAILED, MakeWorld


def test_what_a_filter_lets_through_is_counted_by_state(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.add("train --lr 0.1", project="vision", name="Alpha")
    world.add("train --lr 0.2", project="vision")
    world.add("EVAL", project="language")
    world.end("1.1", FAILED)
    path = world.database.path

    def counts(**wanted: str) -> dict[State, int]:
        return count(path, **{"project": None, "text": None, "gpu": None, **wanted})

    assert counts() == {State.FAILED: 1, State.RUNNING: 2}
    assert counts(project="vision") == {State.FAILED: 1, State.RUNNING: 1}
    assert counts(text="alpha") == {State.FAILED: 1}
    assert counts(text="eval", project="language") == {State.RUNNING: 1}
    assert counts(gpu="1") == {State.RUNNING: 1}
    assert counts(gpu="9") == {}
