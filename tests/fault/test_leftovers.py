"""What a job leaves behind keeps its slot until it is gone, and is reported on the job."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fault.home import is_alive, kill
from fault.ledger import judge
from fault.work import Expected
from patience import until
from stoker.wire import NewJob

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home
    from fault.work import Work

FOREVER_MS = 600_000
# The first process ends at once; what it leaves is deaf to TERM and holds the GPU.
LEAVING = {
    "in its group": "nohup {} > /dev/null 2>&1 & {} 3",
    "in a session of its own": "setsid {} > /dev/null 2>&1 & {} 3",
    "twice forked": "(setsid {} > /dev/null 2>&1 &); {} 3",
    "without its environment": (
        "env -i STOKER_JOB_ID=$STOKER_JOB_ID.left STOKER_ATTEMPT=$STOKER_ATTEMPT"
        " CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES setsid {} > /dev/null 2>&1 & {} 3"
    ),
}
# Waits until the record tells that something of the job has begun.
HAS_BEGUN = "until grep -qs '^start {1}[.]' {0}; do sleep 0.01; done; exit"


# What keeps its environment tells whose it is, also among the leftovers of other jobs.
@pytest.mark.parametrize(
    "ways",
    [
        ["in its group", "in a session of its own", "twice forked"],
        ["without its environment"],
    ],
    ids=", ".join,
)
def test_a_job_starts_on_a_gpu_only_when_nothing_of_the_last_one_is_left(
    home: Home, work: Work, tell: Tell, ways: list[str]
) -> None:
    home.start("--gpus", ",".join(map(str, range(len(ways)))))
    home.disable_failure_limit()
    leftover = work.line(FOREVER_MS, 0, work.folder / "never")
    left = [*range(1, len(ways) + 1)]
    others = [len(ways) + job for job in left]
    commands = [
        LEAVING[way].format(leftover, HAS_BEGUN.format(work.record, job))
        for job, way in zip(left, ways, strict=True)
    ]
    with home.client() as client:
        jobs = [NewJob(command=command) for command in commands + [work.line(0, 0)] * len(others)]
        client.add(work.submission(jobs))
        [*client.wait()]
        reasons = [client.show(job).reason for job in left]
    events, attempts = work.events(), home.attempts()
    everything: dict[int, Expected | None] = dict.fromkeys((*left, *others))
    overlaps = judge(everything, attempts, events).overlaps
    tell(
        "leftovers of jobs on their GPU",
        len(ways),
        judge(everything, attempts, [])._replace(overlaps=overlaps),
    )
    assert overlaps == []
    happened = [(event.what, int(event.key.partition(".")[0])) for event in events]
    assert sorted(happened[: len(left)]) == [("start", job) for job in left]
    assert sorted(happened[len(left) :]) == sorted(
        (what, job) for job in others for what in ("start", "end")
    )
    assert not any(is_alive(event.pid) for event in events[: len(left)])
    assert [each.status for each in attempts if each.job in left] == [3 << 8] * len(left)
    text = "1 process of this job was still running after it ended and was killed: job"
    assert [reason for reason in reasons if not (reason or "").endswith(text)] == []


def test_a_successful_job_tells_what_it_left_behind(home: Home, work: Work) -> None:
    home.start("--gpus", "0")
    with home.client() as client:
        client.add(work.submission([NewJob(command="sleep 600 & sleep 601 & exit 0")]))
        [*client.wait()]
    words = [sys.executable, "-m", "stoker", "show", "1"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    (attempt,) = home.attempts()
    assert (attempt.state, attempt.status) == ("done", 0)
    text = "2 processes of this job were still running after it ended and were killed: sleep, sleep"
    assert attempt.reason == text
    assert text in " ".join(shown.split())


def test_a_job_whose_processes_all_end_by_themselves_reports_nothing(
    home: Home, work: Work
) -> None:
    home.start("--gpus", "0")
    with home.client() as client:
        client.add(work.submission([NewJob(command="sleep 0.01 & exit 0")]))
        [*client.wait()]
    (attempt,) = home.attempts()
    assert (attempt.state, attempt.reason) == ("done", None)


def test_the_exit_code_outlives_a_supervisor_that_is_killed_while_leftovers_end(
    home: Home, work: Work, tell: Tell
) -> None:
    home.start("--gpus", "0")
    leftover = work.line(FOREVER_MS, 0, work.folder / "never")
    command = f"nohup {leftover} > /dev/null 2>&1 & {HAS_BEGUN.format(work.record, 1)} 3"
    with home.client() as client:
        client.add(work.submission([NewJob(command=command), NewJob(command=work.line(0, 0))]))
        until(lambda: any("exit" in words for words in home.journal()), "its first process is over")
        (supervisor,) = home.supervisors()
        kill(supervisor)
        [*client.wait()]
    attempts, events = home.attempts(), work.events()
    assert [(each.state, each.status) for each in attempts] == [("failed", 3 << 8), ("done", 0)]
    verdict = judge({1: None, 2: None}, attempts, events)
    tell("leftovers of jobs on their GPU, supervisor killed meanwhile", 1, verdict)
    assert not is_alive(events[0].pid)
    assert verdict.is_clean, verdict


def test_leftovers_of_a_job_that_outlived_its_supervisor_keep_its_gpu(
    home: Home, work: Work, tell: Tell
) -> None:
    home.start("--gpus", "0")
    leftover = work.line(FOREVER_MS, 0, work.folder / "never")
    go = work.folder / "go"
    os.mkfifo(go)
    command = f"nohup {leftover} > /dev/null 2>&1 & read x < {go}; exit 0"
    with home.client() as client:
        client.add(work.submission([NewJob(command=command), NewJob(command=work.line(0, 0))]))
        until(work.events, "the job has begun")
        (supervisor,) = home.supervisors()
        kill(supervisor)
        until(lambda: home.supervisors() not in ([], [supervisor]), "there is another supervisor")
        go.write_text("go\n")
        [*client.wait()]
    attempts, events = home.attempts(), work.events()
    verdict = judge({1: None, 2: None}, attempts, events)
    tell("leftovers of jobs on their GPU, supervisor killed meanwhile", 1, verdict)
    assert not is_alive(events[0].pid)
    assert [event.what for event in events] == ["start", "start", "end"]
    assert verdict.overlaps == []
