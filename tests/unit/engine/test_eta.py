from __future__ import annotations

from typing import Any

import pytest

from stoker.core.lifecycle import State
from stoker.engine import eta
from stoker.service.ls import ls
from stoker.service.status import status
from stoker.service.what_if import what_if
from stoker.wire import LsQuery, Prediction, WhatIf
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


@pytest.fixture
def harness(make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a harness of two GPUs in which the time of day is the test's too."""
    harness = make_harness(gpus=2)
    monkeypatch.setattr("time.time", lambda: harness.now)
    monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
    monkeypatch.setattr(eta, "_FRESH_S", -1.0)
    monkeypatch.setattr(eta, "_MAX_LOAD", float("inf"))
    return harness


def live(harness: Harness, job: int, seconds: float, status: int = 0) -> None:
    harness.now += seconds
    harness.end(f"{job}.1", status)


def left_s(harness: Harness, job: int) -> float | None:
    page = ls(harness.context, LsQuery(ids=str(job)))
    ends_at = page.jobs[0].ends_at
    return None if ends_at is None else ends_at - harness.now


def test_a_job_is_expected_to_take_as_long_as_others_of_its_kind(harness: Harness) -> None:
    harness.add("python a.py --lr 1")
    live(harness, 1, 100)
    harness.add("python a.py --lr 2")
    live(harness, 2, 200)
    harness.add("python a.py --lr 3", "python b.py")
    harness.now += 50

    assert left_s(harness, 3) == pytest.approx(100)
    assert left_s(harness, 4) is None
    harness.restart()
    harness.settle()
    harness.now += 500
    assert left_s(harness, 3) == 0


def test_nothing_is_learned_from_what_failed_or_was_over_at_once_or_stood_still(
    harness: Harness,
) -> None:
    harness.add("a", "b")
    live(harness, 1, 0.5)
    live(harness, 2, 100, FAILED)
    harness.add("c")
    harness.now += 10
    harness.pause("3")
    harness.now += 1000
    harness.resume("3")
    live(harness, 3, 10)
    rows = harness.database.execute("SELECT name, mean_s FROM kind").fetchall()

    assert rows == [("/c", pytest.approx(20))]


def test_the_queue_is_over_when_its_work_is_done_by_all_slots(harness: Harness) -> None:
    assert status(harness.context).eta_s is None
    harness.add("a")
    assert status(harness.context).eta_s is None
    live(harness, 1, 100)
    harness.add(*["a"] * 10)
    harness.now += 20

    assert harness.jobs.count(State.WAITING) == 8
    # Two run for another 80 s each, eight wait for 100 s each, on two slots.
    assert status(harness.context).eta_s == pytest.approx(480)


def test_a_long_queue_is_taken_to_be_like_its_beginning(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eta, "_LOOKED_AT", 10)
    harness.add("a")
    live(harness, 1, 10)
    harness.pause(queue=True)
    harness.add(*["a"] * 1000)

    assert status(harness.context).eta_s == pytest.approx(5000)


def test_jobs_without_gpu_and_jobs_on_many_have_their_own_width(harness: Harness) -> None:
    harness.add("light", gpus=0)
    harness.add("big", gpus=2)
    live(harness, 1, 10)
    live(harness, 2, 90)
    harness.pause(queue=True)
    harness.add(*["light"] * 6, gpus=0)
    harness.add(*["big"] * 2, gpus=2)

    assert status(harness.context).eta_s == pytest.approx(200)


def test_old_kinds_are_forgotten(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eta, "_KINDS", 3)
    for number, name in enumerate("abcde", 1):
        harness.add(name)
        live(harness, number, 10)
    rows = harness.database.execute("SELECT name FROM kind ORDER BY name").fetchall()

    assert rows == [("/c",), ("/d",), ("/e",)]


def test_starts_are_foretold_in_queue_order_on_the_gpus_that_are_free_first(
    harness: Harness,
) -> None:
    harness.add("python a.py")
    live(harness, 1, 100)
    assert harness.context.eta.planned_starts() == []
    harness.add("python a.py")
    harness.now += 40
    harness.add("python a.py")
    harness.now += 10
    harness.add("python a.py", gpus=2)
    harness.add("python a.py")

    planned = harness.context.eta.planned_starts()

    assert [(each.job, each.slots, round(each.start_s), round(each.end_s)) for each in planned] == [
        (4, ("0", "1"), 90, 190),
        (5, ("0",), 190, 290),
    ]


def suppose(harness: Harness, command: str = "python a.py", **more: Any) -> Prediction:
    return what_if(harness.context, WhatIf(command=command, **more))


def test_jobs_that_are_not_added_start_behind_the_queue_and_delay_nobody(harness: Harness) -> None:
    harness.add("python a.py")
    live(harness, 1, 100)
    harness.add(*["python a.py"] * 3)
    harness.now += 40

    found = suppose(harness, runs=2)

    # Two run for another 60 s, the third then takes the first GPU for 100 s.
    assert found.run_s == pytest.approx(100)
    assert found.like == "kind"
    assert found.start_at == pytest.approx(harness.now + 60)
    assert found.end_at == pytest.approx(harness.now + 260)
    assert [each.slots for each in found.planned] == [["1"], ["0"]]
    assert found.delays == []


def test_jobs_of_a_higher_priority_delay_the_projects_that_wait(harness: Harness) -> None:
    harness.add("python a.py")
    live(harness, 1, 100)
    harness.add(*["python a.py"] * 2)
    harness.add(*["python a.py"] * 2, project="vision")
    before = [each.job for each in harness.context.eta.planned_starts()]

    found = suppose(harness, runs=2, priority=5)

    assert found.start_at == pytest.approx(harness.now + 100)
    [delay] = found.delays
    assert delay.project == "vision"
    assert delay.delay_s == pytest.approx(100)
    assert [each.job for each in harness.context.eta.planned_starts()] == before


def test_the_duration_of_a_supposed_job_comes_from_the_most_similar_jobs(harness: Harness) -> None:
    assert "nothing is known" in (suppose(harness).problem or "")
    assert suppose(harness, run_s=30).end_at == pytest.approx(harness.now + 30)
    harness.add("python a.py")
    live(harness, 1, 100)
    assert suppose(harness).like == "kind"
    assert suppose(harness, project="new").like == "program"
    found = suppose(harness, "python b.py")
    assert found.like == "any"
    assert found.run_s == pytest.approx(100)
    assert "not 3" in (suppose(harness, gpus=3).problem or "")
    assert suppose(harness, gpus=0).start_at == pytest.approx(harness.now)


def test_a_million_supposed_runs_take_as_long_as_their_work(harness: Harness) -> None:
    harness.add("python a.py")
    live(harness, 1, 100)
    found = suppose(harness, runs=1_000_000)
    assert len(found.planned) <= 40
    assert (found.end_at or 0) - harness.now == pytest.approx(1_000_000 * 100 / 2)
