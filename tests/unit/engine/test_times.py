"""Jobs that wait for a time: to begin with, and before they are tried again."""

from __future__ import annotations

import pytest

from stoker.errors import UsageError
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


@pytest.fixture
def harness(make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a harness of one GPU in which the time of day is the test's too."""
    harness = make_harness(gpus=1)
    monkeypatch.setattr("time.time", lambda: harness.now)
    monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
    return harness


def test_a_job_begins_when_its_time_has_come_and_not_before(harness: Harness) -> None:
    harness.add("later", begin_at=harness.now + 100)
    harness.add("now")
    assert harness.executor.running == ["2.1"]
    harness.end("2.1")
    assert harness.states()[1] == "delayed"
    assert harness.engine.patience_s() == pytest.approx(100)

    harness.wait(99)
    assert harness.executor.running == []
    harness.wait(1)
    assert harness.executor.running == ["1.1"]


def test_the_engine_is_roused_for_the_first_of_several(harness: Harness) -> None:
    for after_s in (300, 100, 200):
        harness.add("x", begin_at=harness.now + after_s, gpus=0)
    assert harness.engine.patience_s() == pytest.approx(100)
    harness.wait(100)
    assert harness.executor.running == ["2.1"]
    assert harness.engine.patience_s() == pytest.approx(100)


def test_a_time_survives_a_restart(harness: Harness) -> None:
    harness.add("later", begin_at=harness.now + 100)
    harness.restart()
    harness.settle()
    assert harness.engine.patience_s() == pytest.approx(100)
    harness.wait(100)

    assert harness.executor.running == ["1.1"]


def test_a_time_in_the_past_is_refused(harness: Harness) -> None:
    with pytest.raises(UsageError, match="lies in the past"):
        harness.add("a", begin_at=harness.now - 3600)


def test_a_retry_waits_and_twice_as_long_with_each_try(harness: Harness) -> None:
    harness.add("a", retries=3, backoff_s=10)
    for attempt, pause_s in ((1, 10), (2, 20), (3, 40)):
        harness.end(f"1.{attempt}", FAILED)
        assert harness.states() == {1: "delayed"}
        assert harness.engine.patience_s() == pytest.approx(pause_s)
        harness.wait(pause_s)
        assert harness.executor.running == [f"1.{attempt + 1}"]
    harness.end("1.4", FAILED)

    assert harness.states() == {1: "failed"}


def test_needs_come_first_then_the_time(harness: Harness) -> None:
    harness.add("a")
    harness.add("b", after="1", begin_at=harness.now + 50)
    assert harness.states()[2] == "blocked"
    harness.end("1.1")
    assert harness.states()[2] == "delayed"
    harness.wait(50)

    assert harness.executor.running == ["2.1"]
