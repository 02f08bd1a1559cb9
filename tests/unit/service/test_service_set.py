from __future__ import annotations

import time

import pytest

from stoker.errors import UsageError
from stoker.wire import Base64
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


@pytest.fixture
def busy(make_harness: MakeHarness) -> Harness:
    """Return a harness whose one GPU is taken by job 1."""
    harness = make_harness(gpus=1)
    harness.add("runs", name="first", project="p", timeout_s=100)
    return harness


def test_a_waiting_job_is_changed_in_every_respect(busy: Harness) -> None:
    busy.add(["python", "a.py"])
    changed = busy.set(
        "2",
        name="new",
        project="q",
        priority=5,
        timeout_s=60.0,
        gpus=0,
        retries=3,
        log="out/{id}.log",
        command="python b.py --lr 1",
    )
    facts = busy.jobs.facts(2)

    assert changed.ids == [2]
    request = facts.request
    assert (facts.name, request.project, request.priority, request.retries) == ("new", "q", 5, 3)
    assert (request.slots, request.timeout_s, facts.form) == (0, 60.0, None)
    assert facts.command == b"python b.py --lr 1"
    assert facts.log == f"{busy.home}/out/{{id}}.log".encode()
    assert busy.states()[2] == "running"


def test_none_clears(busy: Harness) -> None:
    busy.add("a", name="n", project="p", timeout_s=60, log="x.log", after="1", begin_at=4e9)
    busy.set(
        "2",
        name=None,
        project=None,
        timeout_s=None,
        log=None,
        after=None,
        after_any=None,
        begin_at=None,
    )
    facts = busy.jobs.facts(2)

    assert (facts.name, facts.request.project, facts.request.timeout_s, facts.log) == (
        None,
        None,
        None,
        None,
    )
    assert busy.states()[2] == "waiting"


def test_of_a_running_job_only_some_can_be_set_and_that_is_said(busy: Harness) -> None:
    [refusal] = busy.set("1", priority=4, gpus=0, begin_at=4e9).refused
    assert refusal.reason == (
        "job 1 is running: only name, priority, retries and timeout can be changed"
    )
    assert busy.column("priority", 1) == 0

    assert busy.set("1", priority=4, name="other", retries=2).ids == [1]
    busy.end("1.1", FAILED)
    assert busy.executor.running == ["1.2"]


def test_a_new_time_limit_counts_for_what_runs(
    busy: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: busy.now)
    busy.now += 50
    busy.set("1", timeout_s=500.0)
    assert busy.engine.patience_s() == pytest.approx(450)
    busy.set("1", timeout_s=None)
    assert busy.engine.patience_s() is None
    busy.set("1", timeout_s=20.0)

    assert busy.states() == {1: "killed"}


def test_what_is_over_cannot_be_set_but_what_was_skipped_can_be_freed(busy: Harness) -> None:
    busy.add("b", after="1")
    busy.end("1.1", FAILED)
    [refusal] = busy.set("1", priority=1).refused
    assert refusal.reason == "job 1 is failed: it cannot be changed any more"

    assert busy.states()[2] == "skipped"
    assert busy.set("2", after=None).ids == [2]
    assert busy.executor.running == ["2.1"]


def test_one_kind_of_needs_leaves_the_other_alone(busy: Harness) -> None:
    busy.add("b", hold=True)
    busy.add("c", after="1", after_any="2")
    busy.set("3", after=None)

    assert [(need.id, need.any) for need in busy.context.pending.needs_of(3)] == [(2, True)]


def test_a_time_to_begin_delays_and_its_absence_does_not(busy: Harness) -> None:
    busy.add("b", gpus=0, hold=True)
    busy.set("2", begin_at=time.time() + 1000)
    busy.release("2")
    assert busy.states()[2] == "delayed"
    busy.set("2", begin_at=None)

    assert busy.states()[2] == "running"


def test_a_new_priority_counts_at_once(busy: Harness) -> None:
    busy.add("a", "b")
    busy.set("3", priority=1)
    busy.now += 5
    busy.end("1.1")

    assert busy.executor.running == ["3.1"]


@pytest.mark.parametrize(
    ("to", "complaint"),
    [
        ({}, "nothing to set"),
        ({"gpus": 2}, "2 GPUs are more than the 1 of this queue"),
        ({"name": "1-3"}, "has another meaning on the command line"),
        ({"begin_at": 1.0}, "lies in the past"),
        ({"command": "  "}, "the command is empty"),
        ({"command": Base64("?")}, "the command is no base64"),
        ({"log": ""}, "the path of the log is empty"),
    ],
)
def test_nonsense_is_refused_and_nothing_changed(
    busy: Harness, to: dict[str, object], complaint: str
) -> None:
    busy.add("a")
    with pytest.raises(UsageError, match=complaint):
        busy.set("2", **to)
    assert busy.jobs.facts(2).command == b"a"
