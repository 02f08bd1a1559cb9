"""`order shortest`: jobs are ranked by learned run time, everywhere in the same order."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from stoker.core.lifecycle import State
from stoker.errors import UsageError
from stoker.service.ls import ls
from stoker.wire import LsQuery
from unit.engine.engine_harness import Harness, MakeHarness

_LONG, _SHORT = "python long.py", "python test.py"


@pytest.fixture
def harness(make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a harness with one GPU in which the time of day is the test's too."""
    harness = make_harness(gpus=1)
    harness.now = 1.8e9
    monkeypatch.setattr("time.time", lambda: harness.now)
    monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
    return harness


def learn(harness: Harness, command: str, seconds: float) -> None:
    """Let a job of a kind run alone for so long."""
    job = harness.add(command).first
    harness.now += seconds
    harness.end(f"{job}.1")
    harness.context.ranks.finish()


def waiting(harness: Harness) -> list[int]:
    return [job.id for job in ls(harness.context, LsQuery(states=[State.WAITING])).jobs]


def teach(harness: Harness) -> None:
    """Let both kinds be known, and the queue be paused."""
    learn(harness, _LONG, 3600.0)
    learn(harness, _SHORT, 120.0)
    harness.pause(queue=True)


def test_the_shortest_job_starts_first(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG, _LONG, _SHORT)
    harness.now += 1.0
    harness.add(_SHORT)

    assert waiting(harness) == [5, 6, 3, 4]
    assert harness.why(4).startswith("job 4 waits: the queue is paused")
    harness.resume(queue=True)
    assert harness.executor.running == ["5.1"]
    assert harness.why(4).endswith("2 jobs ahead of it")
    assert harness.why(6).count("ahead") == 0


def test_an_order_is_changed_for_jobs_that_wait_already_and_back(harness: Harness) -> None:
    teach(harness)
    harness.add(_LONG, _SHORT, _LONG, _SHORT)
    assert waiting(harness) == [3, 4, 5, 6]

    harness.config("order", "shortest")
    assert waiting(harness) == [4, 6, 3, 5]
    harness.config("order", "fifo")
    assert waiting(harness) == [3, 4, 5, 6]


def test_priority_comes_before_run_time(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_SHORT)
    harness.add(_LONG, priority=1)

    assert waiting(harness) == [4, 3]


def test_an_unknown_kind_counts_like_the_median_of_the_known_ones(harness: Harness) -> None:
    teach(harness)
    learn_s = {"python middle.py": 600.0}
    harness.resume(queue=True)
    for command, seconds in learn_s.items():
        learn(harness, command, seconds)
    harness.pause(queue=True)
    harness.config("order", "shortest")
    harness.add(_LONG, "python new.py", _SHORT)

    assert waiting(harness) == [6, 5, 4]


def test_a_job_that_has_waited_a_week_is_passed_no_more(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG)
    harness.now += 86400.0
    harness.add(_SHORT)
    assert waiting(harness) == [4, 3]
    harness.now += 6 * 86400.0
    harness.add(_SHORT)
    assert waiting(harness) == [4, 3, 5]


def test_what_is_learned_later_sorts_the_queue_again(harness: Harness) -> None:
    harness.config("order", "shortest")
    harness.add(_LONG, _LONG, _SHORT, _SHORT)
    assert waiting(harness) == [2, 3, 4]
    harness.now += 3600.0
    harness.end("1.1")  # 2 starts: nothing is known of the others
    assert waiting(harness) == [3, 4]
    harness.kill("2")
    harness.now += 120.0
    harness.end("3.1")
    harness.add(_LONG, _SHORT)
    harness.run(asyncio.sleep(0.01))

    assert waiting(harness) == [6, 5]


def test_run_times_are_learned_by_parameter(harness: Harness) -> None:
    for epochs in (1, 10, 1, 10, 50):
        learn(harness, f"python fit.py --epochs {epochs}", 60.0 * epochs)
    harness.pause(queue=True)
    harness.config("order", "shortest")
    harness.add(*(f"python fit.py --epochs {epochs}" for epochs in (50, 10, 1)))

    assert waiting(harness) == [8, 7, 6]


def test_a_moved_job_stays_where_it_was_put(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG, _SHORT, _SHORT, _LONG)
    harness.move("6", 2)
    assert waiting(harness) == [4, 6, 5, 3]
    harness.resume(queue=True)
    harness.pause(queue=True)
    harness.now += 900.0
    harness.end("4.1")  # much longer than expected: all others are ranked again
    harness.context.ranks.finish()

    assert waiting(harness) == [6, 5, 3]


def test_a_retried_job_is_ranked_by_what_is_known_now(harness: Harness) -> None:
    harness.add(_LONG, "python fails.py")
    harness.now += 3600.0
    harness.end("1.1")
    harness.end("2.1", 256)
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG)
    harness.add("python fails.py")
    harness.retry("2")

    assert waiting(harness)[-1] == 5


def test_a_changed_command_changes_the_rank(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG, _LONG)
    harness.set("4", command=_SHORT)

    assert waiting(harness) == [4, 3]


def test_run_times_and_order_survive_a_restart(harness: Harness) -> None:
    teach(harness)
    harness.config("order", "shortest")
    harness.add(_LONG, _SHORT)
    harness.restart()
    harness.context.ranks.finish()
    harness.now += 1.0
    harness.add(_SHORT)

    assert waiting(harness) == [4, 5, 3]


@pytest.mark.parametrize("order", ["fifo", "shortest"])
def test_an_interrupted_change_is_finished_by_the_next_daemon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    teach(harness)
    harness.add(*[_LONG, _SHORT] * 3)
    if order == "fifo":
        harness.config("order", "shortest")
    monkeypatch.setattr("stoker.engine.queue_ranks.QueueRanks._rank_slice", die)
    with pytest.raises(InterruptedError):
        harness.config("order", order)
    monkeypatch.undo()
    harness.restart()
    harness.context.ranks.finish()

    by_age, by_run_time = [3, 4, 5, 6, 7, 8], [4, 6, 8, 3, 5, 7]
    assert waiting(harness) == (by_age if order == "fifo" else by_run_time)


def die(_ranks: object) -> None:
    raise InterruptedError


def is_settled(harness: Harness) -> bool:
    return harness.context.ranks.is_settled


def test_a_large_queue_is_ranked_in_the_background(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.engine.queue_ranks._SLICE", 2)
    monkeypatch.setattr("stoker.engine.queue_ranks._AT_ONCE", 4)
    teach(harness)
    harness.add(*[_LONG, _SHORT] * 5)
    harness.config("order", "shortest")
    assert not is_settled(harness)
    while not is_settled(harness):
        harness.run(asyncio.sleep(0))

    assert waiting(harness) == [4, 6, 8, 10, 12, 3, 5, 7, 9, 11]


def test_a_run_time_that_only_changes_is_ranked_with_longer_rests(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr("stoker.engine.queue_ranks._SLICE", 2)
    monkeypatch.setattr(
        "stoker.engine.queue_ranks.QueueRanks._continue_in", lambda _ranks, rest: rests.append(rest)
    )
    harness.config("order", "shortest")
    harness.add(*[_LONG] * 6)
    ticks = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)))
    for key, seconds in (("1.1", 3600.0), ("2.1", 7200.0)):  # unknown, then surprising
        rests.clear()
        harness.now += seconds
        harness.end(key)
        harness.context.ranks._continue()
        assert rests == [0.0, 4.0 if key == "1.1" else 49.0]
        harness.context.ranks.finish()


def test_a_wrong_value_is_one_clear_line(harness: Harness) -> None:
    with pytest.raises(UsageError, match="order cannot be 'longest': fifo or shortest"):
        harness.config("order", "longest")
