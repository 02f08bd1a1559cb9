"""A job behind a shell keeps its grace and its GPU until its last process is gone."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from fault.home import is_alive
from fault.ledger import FINAL, judge
from patience import until
from stoker.core.lifecycle import State
from stoker.wire import Kill, NewJob, Preempt

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home
    from fault.work import Work
    from stoker.client.client import Client

GRACE_S = 300.0
FOREVER_MS = 600_000
WRAPPERS = {
    "list": "cd / && {}; true",
    "pipe": "{} | cat",
    "script": "#!/bin/bash\n{}\nexit 0\n",
    "bash -c": "bash -c '{}; true'; true",
}


def run_to_its_end(client: Client, work: Work) -> None:
    """Run a job without GPU: when it is done, the daemon has planned again."""
    (added,) = client.add(work.submission([NewJob(command="true")], gpus=0))
    until(lambda: client.show(added.first).state is State.DONE, "a job without GPU is done")


def first_process(home: Home) -> int:
    """Wait until the first process of the only running job is on record."""
    return until(lambda: next((each.pid for each in home.live() if each.pid), 0), "a job runs")


@pytest.mark.parametrize(
    ("how", "wrapper"),
    [*(("kill", each) for each in WRAPPERS), ("preempt", "list"), ("timeout", "list")],
)
def test_a_job_behind_a_shell_saves_its_work_before_its_gpu_is_given_away(
    home: Home, work: Work, tell: Tell, how: str, wrapper: str
) -> None:
    home.start("--gpus", "0")
    saved = work.folder / "saved"
    command = WRAPPERS[wrapper].format(work.line(FOREVER_MS, 0, saved))
    with home.client() as client:
        timeout_s = 0.2 if how == "timeout" else None
        job = NewJob(command=command, script=wrapper == "script")
        (first,) = client.add(work.submission([job], timeout_s=timeout_s, grace_s=GRACE_S))
        until(work.events, "the job has begun")
        shell = first_process(home)
        (second,) = client.add(work.submission([NewJob(command=work.line(0, 0))]))
        if how == "kill":
            client.kill(Kill(ids=str(first.first)))
        elif how == "preempt":
            client.preempt(Preempt(ids=str(first.first)))
        until(lambda: not is_alive(shell), "the shell is dead")
        run_to_its_end(client, work)

        assert home.state(first.first) == "running"
        assert [event.what for event in work.events()] == ["start"]

        saved.touch()
        until(lambda: home.state(second.first) == "done", "the next job has run")
        if how == "preempt":
            until(lambda: len(work.events()) == 5, "the second attempt has begun")
            client.kill(Kill(ids=str(first.first)))
        until(lambda: home.state(first.first) in FINAL, "the job is over")
    attempts = [each for each in home.attempts() if each.job != second.last + 1]
    assert attempts[0].status == signal.SIGTERM
    keys = [f"{event.what} {event.key}" for event in work.events()[:3]]
    assert keys == ["start 1.1", "end 1.1", "start 2.1"]
    verdict = judge({1: None, 2: None}, attempts, work.events())
    tell("shell-wrapped grace", 1, verdict)
    assert verdict.is_clean, verdict


def test_what_outlives_its_grace_behind_a_shell_is_killed_before_the_next_job(
    home: Home, work: Work, tell: Tell
) -> None:
    home.start("--gpus", "0")
    command = f"{work.line(FOREVER_MS, 0, work.folder / 'never')}; true"
    with home.client() as client:
        (first,) = client.add(work.submission([NewJob(command=command)]))
        until(work.events, "the job has begun")
        (second,) = client.add(work.submission([NewJob(command=work.line(0, 0))]))
        client.kill(Kill(ids=str(first.first), grace_s=0.2))
        until(lambda: home.state(second.first) == "done", "the next job has run")
    events = work.events()
    verdict = judge({1: None, 2: None}, home.attempts(), events)
    tell("shell-wrapped grace", 1, verdict)
    assert [f"{event.what} {event.key}" for event in events] == [
        "start 1.1",
        "start 2.1",
        "end 2.1",
    ]
    assert not is_alive(events[0].pid)
    assert verdict.is_clean, verdict


def test_the_grace_of_a_job_behind_a_shell_outlasts_its_daemon(
    home: Home, work: Work, tell: Tell
) -> None:
    home.start("--gpus", "0")
    saved = work.folder / "saved"
    command = f"{work.line(FOREVER_MS, 0, saved)}; true"
    with home.client() as client:
        client.add(work.submission([NewJob(command=command)], grace_s=GRACE_S))
        until(work.events, "the job has begun")
        shell = first_process(home)
        client.add(work.submission([NewJob(command=work.line(0, 0))]))
        client.kill(Kill(ids="1"))
        until(lambda: not is_alive(shell), "the shell is dead")
    home.kill_daemon()
    with home.client() as client:
        run_to_its_end(client, work)
        assert [event.what for event in work.events()] == ["start"]
        saved.touch()
        [*client.wait()]
    attempts = home.attempts()[:2]
    assert [(each.state, each.status) for each in attempts] == [
        ("killed", signal.SIGTERM),
        ("done", 0),
    ]
    verdict = judge({1: None, 2: None}, attempts, work.events())
    tell("shell-wrapped grace", 1, verdict)
    assert verdict.is_clean, verdict
