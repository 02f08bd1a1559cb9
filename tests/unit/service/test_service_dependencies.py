"""Jobs that wait for others: who begins, who is skipped, who is revived."""

from __future__ import annotations

import pytest

from stoker.errors import ConflictError, NotFoundError
from stoker.service.dependencies import refuse_circle
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def test_a_job_begins_when_all_it_needs_have_succeeded(harness: Harness) -> None:
    harness.add("a", "b")
    harness.add("c", after="1,2")
    assert harness.states()[3] == "blocked"
    assert harness.column("reason", 3) == "after 1,2"

    harness.end("1.1")
    assert harness.states()[3] == "blocked"
    harness.end("2.1")
    assert harness.executor.running == ["3.1"]


def test_a_failure_skips_the_whole_chain_and_its_retry_revives_it(harness: Harness) -> None:
    harness.add("a", name="a")
    harness.add("b", name="b", after="a")
    harness.add("c", after="b")
    harness.end("1.1", FAILED)

    assert harness.states() == {1: "failed", 2: "skipped", 3: "skipped"}
    assert harness.column("reason", 2) == "needs what did not succeed: job 1 is failed"

    harness.retry("a")
    assert harness.states() == {1: "running", 2: "blocked", 3: "blocked"}
    for key in ("1.2", "2.1", "3.1"):
        harness.end(key)
    assert set(harness.states().values()) == {"done"}


def test_any_end_will_do_for_after_any(harness: Harness) -> None:
    harness.add("a")
    harness.add("b", after_any="1")
    harness.end("1.1", FAILED)

    assert harness.executor.running == ["2.1"]


def test_a_need_that_is_killed_while_it_waits_skips_too(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("runs", "waits")
    harness.add("c", after="2")
    harness.kill("2")

    assert harness.states()[3] == "skipped"


def test_retries_that_are_left_keep_the_others_waiting(harness: Harness) -> None:
    harness.add("a", retries=1)
    harness.add("b", after="1")
    harness.end("1.1", FAILED)
    assert harness.states()[2] == "blocked"
    harness.end("1.2", FAILED)
    assert harness.states()[2] == "skipped"


def test_a_need_that_has_ended_before_counts(harness: Harness) -> None:
    harness.add("a")
    harness.end("1.1", FAILED)

    added = harness.add("b", after="1")

    assert harness.states()[2] == "skipped"
    assert added.notice == ("job 2 is skipped: needs what did not succeed: job 1 is failed")


def test_a_need_that_was_removed_skips_unless_it_was_done(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("done")
    harness.now += 5
    harness.end("1.1")
    harness.add("runs", "removed")
    harness.add("needs what is done", after="1,2")
    harness.add("needs what is removed", after="3")
    harness.rm("1")
    harness.rm("3")

    assert harness.states() == {2: "running", 4: "blocked", 5: "skipped"}
    assert harness.column("reason", 5) == "needs what did not succeed: job 3 was removed"
    harness.now += 5
    harness.end("2.1")
    assert harness.executor.running == ["4.1"]


def test_a_skipped_job_cannot_be_retried_before_what_it_needs(harness: Harness) -> None:
    harness.add("a")
    harness.add("b", after="1")
    harness.end("1.1", FAILED)

    [refusal] = harness.retry("2").refused
    assert "job 1 is failed" in refusal.reason
    assert harness.states()[2] == "skipped"

    changed = harness.retry("1,2")
    assert (changed.ids, changed.refused) == ([1, 2], [])
    assert harness.states() == {1: "running", 2: "blocked"}


def test_unknown_needs_are_an_error_and_nothing_is_added(harness: Harness) -> None:
    with pytest.raises(NotFoundError):
        harness.add("a", after="7")
    assert harness.states() == {}


def test_a_repeated_request_is_understood_as_the_first_time(harness: Harness) -> None:
    harness.add("a", name="a")
    first = harness.add("b", name="a", after="a", request_id="request-x")
    again = harness.add("b", name="a", after="a", request_id="request-x")

    assert (again.first, again.repeated) == (first.first, True)


def test_a_circle_is_refused_and_nothing_is_changed(harness: Harness) -> None:
    harness.add("a", hold=True)
    harness.add("b", after="1")
    harness.add("c", after="2")

    with pytest.raises(ConflictError, match="job 1 needs job 3 needs job 2 needs job 1"):
        harness.set("1", after="3", priority=9)
    with pytest.raises(ConflictError, match="job 1 needs job 1"):
        harness.set("1", after="1")
    assert harness.column("priority", 1) == 0
    assert harness.states() == {1: "held", 2: "blocked", 3: "blocked"}


def test_a_long_chain_is_no_trouble(harness: Harness) -> None:
    with harness.database.transaction():
        for number in range(1000, 3000):
            harness.context.pending.link(number + 1, number, False)

    refuse_circle(harness.context, 999, [3000])
    with pytest.raises(
        ConflictError, match=r"job 1000 needs job 3000 needs .* more\) needs job 1000"
    ):
        refuse_circle(harness.context, 1000, [3000])


def test_needs_survive_a_restart(harness: Harness) -> None:
    harness.add("a")
    harness.add("b", after="1")
    harness.restart()
    harness.settle()
    harness.end("1.1")

    assert harness.executor.running == ["2.1"]
