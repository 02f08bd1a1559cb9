"""`--json` of the verbs that change jobs, and of those that add and wait for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def said(queue: Queue, *words: str) -> Any:
    return json.loads(queue.ok(*words, "--json"))


def test_verbs_tell_the_jobs_that_they_changed(queue: Queue) -> None:
    assert json.loads(queue.ok("add", "--json", "--hold", "true")) == {"ids": [1], "notices": []}
    changed = {"ids": [1], "refused": [], "notice": None}

    assert said(queue, "set", "1", "priority=5") == changed
    assert said(queue, "release", "1") == changed
    assert said(queue, "wait", "1")["counts"] == {"done": 1}
    assert said(queue, "retry", "1") == changed
    assert said(queue, "wait", "1")["counts"] == {"done": 1}
    assert said(queue, "rm", "1") == changed


def test_a_refusal_is_in_the_answer_and_the_exit_code_is_1(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait", "1")

    ended = queue("kill", "1", "--json")

    assert (ended.code, ended.err) == (1, "")
    assert json.loads(ended.out) == {
        "ids": [],
        "refused": [{"id": 1, "reason": "job 1 is done already"}],
        "notice": None,
    }


def test_stopped_jobs_and_queues_are_told_as_json(queue: Queue) -> None:
    job = queue.add(HOLD)
    queue.until_running(job)
    queue.add("--hold", "true")

    assert said(queue, "pause", "1")["ids"] == [1]
    assert said(queue, "resume", "1")["ids"] == [1]
    assert said(queue, "pause", "--queue")["ids"] == []
    assert said(queue, "resume", "--queue")["ids"] == []
    assert said(queue, "daemon", "status")["counts"] == said(queue, "status")["counts"]
    assert said(queue, "kill", "--all")["ids"] == [1, 2]


def test_a_batch_and_a_sweep_tell_the_ids_of_their_jobs(queue: Queue) -> None:
    (queue.work / "jobs.txt").write_text("true\ntrue\n")

    assert said(queue, "add", "--batch", "jobs.txt")["ids"] == [1, 2]
    sweep = ("sweep", "--name", "s", "-g", "0", "true {x}", "x=1,2")
    folder = f"{queue.work}/results/s"
    planned = said(queue, *sweep, "--dry-run")
    assert (planned["sweep"], planned["runs"], planned["to_run"]) == ("s", 2, 2)
    facts = {"sweep": "s", "folder": folder, "runs": 2}
    assert said(queue, *sweep) == {**facts, "ids": [3, 4], "notices": []}
    queue.ok("wait", "-P", "s")
    assert said(queue, *sweep) == {**facts, "ids": [], "notices": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["daemon", "stop", "--json"], "--json is for status, not for stop"),
        (["sweep", "--json", "--print", "true {x}", "x=1"], "--json tells what was queued"),
    ],
)
def test_json_is_refused_where_it_has_no_effect(
    queue: Queue, words: list[str], message: str
) -> None:
    ended = queue(*words)

    assert ended.code == 2
    assert message in ended.err


def test_a_wait_ends_with_124_when_its_time_is_over(queue: Queue) -> None:
    queue.until_running(queue.add(HOLD))

    ended = queue("wait", "1", "--timeout", "0.2s")

    assert (ended.code, ended.out) == (124, "")
    assert ended.err == "stoker: not over after 0.2s: the jobs go on\n"
    (queue.work / "go").touch()
    assert queue("wait", "1", "--timeout", "1h").code == 0
    assert "has no unit" in queue("wait", "1", "--timeout", "5").err
