from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_waiting_job_runs_with_its_new_settings(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    queue.add("echo", "old")
    assert (
        queue.ok(
            "set",
            "1",
            "name=new",
            "project=p",
            "priority=-3",
            "gpus=0",
            "timeout=1h30m",
            "retries=2",
            "log=out-{id}.txt",
            "command=echo new words | tr a-z A-Z",
        )
        == "changed job 1\n"
    )
    job = queue.show(1)
    assert (job["name"], job["project"], job["priority"], job["gpus"]) == ("new", "p", -3, 0)
    assert (job["timeout_s"], job["retries"], job["argv"]) == (5400, 2, None)
    queue.ok("resume", "--queue")
    queue.ok("wait")

    assert queue.stoker.read("out-1.txt") == ["NEW WORDS"]


def test_needs_and_times_are_set_and_removed(queue: Queue) -> None:
    queue.add("--hold", "true")
    queue.add("--hold", "true")
    queue.ok("set", "2", "after=1", "begin=+1h")
    job = queue.show(2)
    assert [need["id"] for need in job["needs"]] == [1]
    assert 3500 < job["begin_at"] - time.time() <= 3600
    queue.ok("set", "2", "after=none", "begin=none")
    queue.ok("release", "2")

    queue.ok("wait", "2")


def test_set_names_the_settings_of_a_running_job_that_can_change(queue: Queue) -> None:
    job = queue.add("sleep 60")
    queue.until_running(job)

    ended = queue("set", "1", "gpus=2", "timeout=1s")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "stoker: job 1 is running: only name, priority, retries and timeout can be changed\n"
    )
    queue.ok("set", "1", "timeout=1s")
    queue("wait")
    assert queue.show(1)["reason"] == "over the time limit of 1s"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["1"], "no setting was given: stoker set 12 priority=5"),
        (["priority=1"], "which jobs?"),
        (["1", "colour=red"], "there is no setting 'colour'; there are: name, project"),
        (["1", "priority=high"], "priority=high: write a whole number"),
        (["1", "priority=none"], "priority=none: it must have a value"),
        (["1", "gpus=-1"], "gpus=-1: write a number from 0 to 1024"),
        (["1", "gpus=3"], "3 GPUs are more than the 2 of this queue"),
        (["1", "timeout=90"], "'90' has no unit"),
        (["1", "begin=2001-01-01"], "lies in the past"),
        (["1", "name=1-3"], "has another meaning on the command line"),
        (["1", "retries=1", "retries=2"], "retries is given twice"),
        (["1", "log={colour}.log"], "there is no {colour}"),
        (["1", "after=1"], "that would be a circle: job 1 needs job 1"),
        (["1", "after=7"], "there is no job 7"),
    ],
)
def test_a_wrong_setting_is_one_clear_line_and_changes_nothing(
    queue: Queue, words: list[str], complaint: str
) -> None:
    queue.add("--hold", "true")
    before = queue.show(1)

    ended = queue("set", *words)

    assert ended.code in (1, 2)
    assert complaint in ended.err
    assert ended.err.count("\n") == 1
    assert queue.show(1) == before
