from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.wire import JobEvent, Refusal
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def test_what_failed_runs_once_more_under_a_new_number(harness: Harness) -> None:
    harness.add("a")
    harness.end("1.1", FAILED)
    assert harness.retry("1").ids == [1]

    assert harness.executor.running == ["1.2"]
    harness.end("1.2")
    assert [attempt[:2] for attempt in harness.attempts(1)] == [(1, "failed"), (2, "done")]


@pytest.mark.parametrize("how", ["done", "killed", "lost", "cancelled"])
def test_everything_that_is_over_can_be_retried_by_id(make_harness: MakeHarness, how: str) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    match how:
        case "done":
            harness.end("1.1")
        case "killed":
            harness.kill("1")
        case "lost":
            harness.executor.lose("1.1")
            harness.settle()
        case "cancelled":
            harness.kill("2")
    job = "2" if how == "cancelled" else "1"
    assert harness.retry(job).ids == [int(job)]
    harness.now += 5
    while harness.executor.running:
        harness.end(harness.executor.running[0])
        harness.now += 5

    assert set(harness.states().values()) == {"done"}


def test_it_waits_at_its_old_place(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    harness.now += 5
    harness.end("1.1", FAILED)
    harness.retry("1")
    harness.now += 5
    harness.end("2.1")

    assert harness.executor.running == ["1.2"]


def test_what_is_not_over_is_refused_with_its_state(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    changed = harness.retry("1-2")

    assert changed.ids == []
    assert changed.refused == [
        Refusal(1, "job 1 is running: only what is over can be retried"),
        Refusal(2, "job 2 is waiting: only what is over can be retried"),
    ]


def test_a_job_that_is_being_ended_is_refused_until_it_is_over(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a")
    harness.executor.ignore_signals("1.1")
    harness.kill("1")

    refusal = "job 1 is being ended: retry it when it is over (stoker wait 1)"
    assert harness.retry("1").refused == [Refusal(1, refusal)]
    harness.end("1.1", FAILED)
    assert harness.retry("1").ids == [1]


def test_without_ids_only_what_did_not_succeed_is_meant(harness: Harness) -> None:
    harness.add("a", "b", "c", "d")
    harness.now += 5
    harness.end("1.1")
    harness.end("2.1", FAILED)
    changed = harness.retry(all=True)
    assert (changed.ids, changed.refused) == ([2], [])

    assert harness.retry(states=[State.DONE]).ids == [1]


def test_one_that_has_become_too_large_for_the_queue_is_refused_and_the_others_run(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=2)
    harness.add("a", gpus=2)
    harness.end("1.1", FAILED)
    harness.add("b")
    harness.end("2.1", FAILED)
    harness.restart(gpus=1)
    changed = harness.retry(all=True)

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 asks for more GPUs than the 1 of this queue")]
    assert harness.executor.running == ["2.2"]


def test_fresh_runs_in_the_folder_itself_and_from_then_on(harness: Harness) -> None:
    harness.add("a", snapshot="0123")
    assert harness.executor.contexts[1].cwd == str(harness.home / "snapshots" / "0123")
    harness.end("1.1", FAILED)
    harness.retry("1")
    assert harness.executor.launched[-1].context == 1
    harness.end("1.2", FAILED)
    harness.retry("1", fresh=True)
    assert harness.executor.contexts[2].cwd == str(harness.home)
    harness.end("1.3", FAILED)
    harness.retry("1")

    assert [launch.context for launch in harness.executor.launched] == [1, 1, 2, 2]


def test_fresh_is_refused_for_what_was_shipped(harness: Harness) -> None:
    harness.add("a", snapshot="0123", sync=True)
    harness.end("1.1", FAILED)

    (refused,) = harness.retry("1", fresh=True).refused

    assert "added with --sync" in refused.reason
    assert harness.retry("1").ids == [1]


def test_listeners_are_told_that_it_waits(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    harness.kill("2")
    listener = harness.context.events.listen()
    harness.retry("2")
    events = harness.run(listener.__anext__())
    listener.close()

    assert [(e.id, e.state) for e in events if isinstance(e, JobEvent)] == [(2, State.WAITING)]


def test_what_is_not_there_is_an_error(harness: Harness) -> None:
    with pytest.raises(NotFoundError):
        harness.retry("1")
    with pytest.raises(UsageError):
        harness.retry()


def test_many_go_in_slices(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 1100)
    harness.kill(states=[State.WAITING])

    assert len(harness.retry(states=[State.KILLED]).ids) == 1099
    assert harness.jobs.tally() == {State.WAITING: 1099, State.RUNNING: 1}


def test_a_reason_chooses_among_what_did_not_succeed(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=4)
    harness.add("a", "b", "c", "d")
    harness.end("1.1", FAILED)
    harness.end("2.1", 127 << 8)
    harness.end("3.1", 0)
    harness.end("4.1", 9)

    assert harness.retry(all=True, reason="Not Found").ids == [2]
    assert harness.retry(all=True, reason="sigkill").ids == [4]
    assert harness.retry(all=True, reason="no such reason").ids == []
    assert harness.retry(all=True).ids == [1]
