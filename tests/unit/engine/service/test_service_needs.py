"""Jobs that wait for others: who begins, who is skipped, who is revived."""

from __future__ import annotations

import pytest

from stoker.engine.service.needs import refuse_circle
from stoker.errors import ConflictError, NotFoundError
from unit.engine.world import FAILED, MakeWorld, World


def test_a_job_begins_when_all_it_needs_have_succeeded(world: World) -> None:
    world.add("a", "b")
    world.add("c", after="1,2")
    assert world.states()[3] == "blocked"
    assert world.column("reason", 3) == "after 1,2"

    world.end("1.1")
    assert world.states()[3] == "blocked"
    world.end("2.1")
    assert world.executor.running == ["3.1"]


def test_a_failure_skips_the_whole_chain_and_its_retry_revives_it(world: World) -> None:
    world.add("a", name="a")
    world.add("b", name="b", after="a")
    world.add("c", after="b")
    world.end("1.1", FAILED)

    assert world.states() == {1: "failed", 2: "skipped", 3: "skipped"}
    assert world.column("reason", 2) == "needs what did not succeed: job 1 is failed"

    world.retry("a")
    assert world.states() == {1: "running", 2: "blocked", 3: "blocked"}
    for key in ("1.2", "2.1", "3.1"):
        world.end(key)
    assert set(world.states().values()) == {"done"}


def test_any_end_will_do_for_after_any(world: World) -> None:
    world.add("a")
    world.add("b", after_any="1")
    world.end("1.1", FAILED)

    assert world.executor.running == ["2.1"]


def test_a_need_that_is_killed_while_it_waits_skips_too(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("runs", "waits")
    world.add("c", after="2")
    world.kill("2")

    assert world.states()[3] == "skipped"


def test_retries_that_are_left_keep_the_others_waiting(world: World) -> None:
    world.add("a", retries=1)
    world.add("b", after="1")
    world.end("1.1", FAILED)
    assert world.states()[2] == "blocked"
    world.end("1.2", FAILED)
    assert world.states()[2] == "skipped"


def test_a_need_that_has_ended_before_counts(world: World) -> None:
    world.add("a")
    world.end("1.1", FAILED)

    added = world.add("b", after="1")

    assert world.states()[2] == "skipped"
    assert added.notice == ("job 2 is skipped: needs what did not succeed: job 1 is failed")


def test_a_need_that_was_removed_skips_unless_it_was_done(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("done")
    world.now += 5
    world.end("1.1")
    world.add("runs", "removed")
    world.add("needs what is done", after="1,2")
    world.add("needs what is removed", after="3")
    world.rm("1")
    world.rm("3")

    assert world.states() == {2: "running", 4: "blocked", 5: "skipped"}
    assert world.column("reason", 5) == "needs what did not succeed: job 3 was removed"
    world.now += 5
    world.end("2.1")
    assert world.executor.running == ["4.1"]


def test_a_skipped_job_cannot_be_retried_before_what_it_needs(world: World) -> None:
    world.add("a")
    world.add("b", after="1")
    world.end("1.1", FAILED)

    [refusal] = world.retry("2").refused
    assert "job 1 is failed" in refusal.reason
    assert world.states()[2] == "skipped"

    changed = world.retry("1,2")
    assert (changed.ids, changed.refused) == ([1, 2], [])
    assert world.states() == {1: "running", 2: "blocked"}


def test_unknown_needs_are_an_error_and_nothing_is_added(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.add("a", after="7")
    assert world.states() == {}


def test_a_repeated_request_is_understood_as_the_first_time(world: World) -> None:
    world.add("a", name="a")
    first = world.add("b", name="a", after="a", request_id="request-x")
    again = world.add("b", name="a", after="a", request_id="request-x")

    assert (again.first, again.repeated) == (first.first, True)


def test_a_circle_is_refused_and_nothing_is_changed(world: World) -> None:
    world.add("a", hold=True)
    world.add("b", after="1")
    world.add("c", after="2")

    with pytest.raises(ConflictError, match="job 1 needs job 3 needs job 2 needs job 1"):
        world.set("1", after="3", priority=9)
    with pytest.raises(ConflictError, match="job 1 needs job 1"):
        world.set("1", after="1")
    assert world.column("priority", 1) == 0
    assert world.states() == {1: "held", 2: "blocked", 3: "blocked"}


def test_a_long_chain_is_no_trouble(world: World) -> None:
    with world.database.transaction():
        for number in range(1000, 3000):
            world.hub.shelf.link(number + 1, number, False)

    refuse_circle(world.hub, 999, [3000])
    with pytest.raises(
        ConflictError, match=r"job 1000 needs job 3000 needs .* more\) needs job 1000"
    ):
        refuse_circle(world.hub, 1000, [3000])


def test_needs_survive_a_restart(world: World) -> None:
    world.add("a")
    world.add("b", after="1")
    world.restart()
    world.settle()
    world.end("1.1")

    assert world.executor.running == ["2.1"]
