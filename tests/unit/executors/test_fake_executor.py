from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from stoker.core.slot import Slot
from stoker.executors.contract import Ended, Held, Launch, Lost, Started, Synced, Unheld
from stoker.testing.executor import FakeExecutor


@pytest.fixture
def fake() -> Iterator[FakeExecutor]:
    fake = FakeExecutor(persistent=True)
    fake.define_slots([Slot(0, ("0",), ("GPU-0",))])
    fake.hold(0)
    assert fake.observe() == [Synced(frozenset(), fresh=True), Held(0)]
    yield fake
    fake.close()


def test_a_lost_attempt_is_told_until_it_is_acknowledged(fake: FakeExecutor) -> None:
    fake.launch([Launch("1.1", (0,), ["x"])])
    fake.lose("1.1", "gone")
    story = [Started("1.1", 1, 0, 0.0), Lost("1.1", "gone")]
    assert fake.observe() == story

    fake.restart()
    assert fake.observe() == [*story, Synced(frozenset({"1.1"}), fresh=True)]
    fake.acknowledge(["1.1"])
    fake.restart()
    assert fake.observe() == [Synced(frozenset(), fresh=True)]


def test_one_that_begins_anew_cannot_hold_the_gpu_of_what_runs_on(fake: FakeExecutor) -> None:
    fake.launch([Launch("1.1", (0,), ["x"]), Launch("2.1", (0,), ["x"])])
    fake.restart()
    assert (fake.running, fake.queued) == (["1.1"], [])
    fake.hold(0)  # said to the one that is gone
    assert fake.observe()[-1] == Synced(frozenset({"1.1"}), fresh=True)

    fake.hold(0)
    assert fake.observe()[-1] == Unheld(0, "GPU-0", None)
    fake.end("1.1", 7)
    fake.hold(0)
    assert fake.observe()[-1] == Held(0)


def test_the_next_client_finds_the_leases_of_what_runs(fake: FakeExecutor) -> None:
    fake.launch([Launch("1.1", (0,), ["x"])])
    fake.lose_client()
    assert fake.leased == {"GPU-0"}

    fake.end("1.1")
    fake.lose_client()
    assert fake.leased == set()


def test_contexts_must_be_defined_before_they_are_used(fake: FakeExecutor) -> None:
    with pytest.raises(AssertionError):
        fake.launch([Launch("1.1", (), ["x"], context=3)])
    fake.define_context(3, {"A": "1"}, "/", "/bin/sh")
    fake.launch([Launch("1.1", (), ["x"], context=3)])

    assert fake.running == ["1.1"]


def test_stopping_with_a_kill_ends_everything(fake: FakeExecutor) -> None:
    fake.launch([Launch("1.1", (0,), ["x"])])
    assert [type(report) for report in fake.stop(kill=False)] == [Started]
    assert [type(report) for report in fake.stop(kill=True)] == [Ended]


def test_a_signal_that_is_to_end_an_attempt_comes_with_its_grace(fake: FakeExecutor) -> None:
    fake.launch([Launch("1.1", (0,), ["job"])])
    fake.signal("1.1", signal.SIGSTOP)
    assert fake.graces == {}
    fake.signal("1.1", signal.SIGTERM, 2.5)

    assert fake.graces == {"1.1": 2.5}
