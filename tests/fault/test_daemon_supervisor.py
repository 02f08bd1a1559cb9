"""The supervisor is killed among running jobs: each is adopted or LOST, and keeps its GPU while it lives."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from fault.home import is_alive, kill
from fault.ledger import CLEAN, FINAL, expectations, judge, leaks
from fault.table import say
from fault.work import SLOTS, Batch, Expected, Work
from fault.workload import Day
from patience import until
from scale import LONG
from stoker.wire import Kill, NewJob

if TYPE_CHECKING:
    from pathlib import Path

    from fault.conftest import Tell
    from fault.home import Attempt, Home

KILLS = 20 if LONG else 4
SETTLED_WITHIN_S = 5.0


def batches(work: Work, rng: random.Random, jobs: int) -> list[Batch]:
    """Jobs that mostly outlive the start of a supervisor; some hide what they were started with."""
    found = []
    for _ in range(jobs):
        gpus = rng.choices((1, 2, 0), (75, 15, 10))[0]
        code = rng.choice((0, 0, 0, 5))
        job = work.job(rng.randrange(100, 1500), code)
        if rng.random() < 0.2:
            job = work.hidden_job(rng.randrange(100, 1500), code)
        submission = work.submission([job], gpus=gpus)
        found.append(Batch(submission, [Expected(code << 8, gpus, 1)]))
    return found


def is_settled(home: Home, attempt: Attempt) -> bool:
    """Whether it is known what has become of an attempt: it is over, never was, or lives and is watched."""
    live = {each.key: each for each in home.live()}
    if attempt.key not in live:
        return True
    now = live[attempt.key]
    return now.pid is not None and is_alive(now.pid)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("with_daemon", [False, True], ids=["alone", "with the daemon"])
def test_a_supervisor_that_is_killed_leaves_no_job_unaccounted_for(
    home: Home, job_program: str, tell: Tell, with_daemon: bool
) -> None:
    rng = random.Random(int(with_daemon))
    work = Work(job_program, home.work, rng)
    home.start("--gpus", ",".join(map(str, range(SLOTS))))
    home.disable_failure_limit()
    with home.client() as client:
        answers = [
            (batch, client.add(batch.submission)[0]) for batch in batches(work, rng, 5 * KILLS)
        ]
    for number in range(KILLS):
        until(lambda: sum(each.pid is not None for each in home.live()) >= 3, "jobs run")
        time.sleep(rng.uniform(0.0, 0.3))  # to kill at any moment
        (supervisor,) = home.supervisors()
        affected = home.live()
        kill(supervisor)
        if with_daemon:
            home.kill_daemon()
        home.status()
        until(
            lambda: all(is_settled(home, attempt) for attempt in affected),  # noqa: B023 - at once
            f"all of {affected} are adopted or lost",
            SETTLED_WITHIN_S,
        )
        say(f"supervisor killed {number + 1} of {KILLS} times")
    with home.client() as client:
        for _progress in client.wait():
            pass
    until(lambda: not any(slot.held for slot in home.status().slots), "the GPUs are given back")

    attempts = home.attempts()
    verdict = judge(expectations(answers), attempts, work.events(), may_lose=True)
    verdict.leaked.extend(leaks(home))

    lost = sum(attempt.state == "lost" for attempt in attempts)
    what = "supervisor and daemon" if with_daemon else "supervisor"
    tell(f"{what} killed among running jobs", KILLS, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
    assert all(attempt.state in FINAL for attempt in attempts)
    print(f"{lost} of {len(attempts)} jobs are LOST")


def test_a_supervisor_that_is_killed_while_it_starts_is_followed_by_another(
    home: Home, work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = ("claimed", "taken-over", "listening", "welcomed", "synced")
    arms = [f"supervisor-{place}:1:{tmp_path}/{place}" for place in places]
    monkeypatch.setenv("STOKER_FAILPOINT", ",".join(arms))

    home.start("--gpus", "0")

    assert {path.name for path in tmp_path.iterdir()} >= {*places}
    with home.client() as client:
        (added,) = client.add(work.submission([work.job(0, 7)]))
        [*client.wait()]
        assert client.show(added.first).exit_code == 7


@pytest.mark.parametrize(("place", "lives"), [("intended", False), ("spawned", True)])
def test_a_job_keeps_its_gpu_although_both_died_before_its_start_was_written_down(
    home: Home,
    work: Work,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    place: str,
    lives: bool,
) -> None:
    struck = [tmp_path / "daemon-struck", tmp_path / "supervisor-struck"]
    # The daemon dies of its first launch, and the supervisor when it comes to carry that out.
    arms = f"after-launch:1:{struck[0]},supervisor-{place}:1:{struck[1]}"
    monkeypatch.setenv("STOKER_FAILPOINT", arms)
    day = Day(home, work)
    day.begin("--gpus", "0")

    first = day.add(Batch(work.submission([work.job(60_000, 0)]), [None]))
    until(lambda: all(file.exists() for file in struck), "both have died")
    second = day.add(Batch(work.submission([work.job(0, 0)]), [Expected(0, 1, 1)]))
    if lives:
        day.until(lambda: any(each.pid for each in home.live()), "the job is known again")
        other = day.add(Batch(work.submission([work.job(0, 0)], gpus=0), [Expected(0, 0, 1)]))
        day.until(lambda: home.state(other) == "done", "jobs start again")
        assert home.state(second) == "waiting"
        day.ask(lambda client: client.kill(Kill(ids=str(first))))
    verdict = day.verdict(may_lose=True)

    tell("daemon and supervisor killed around a start", 1, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
    assert home.state(first) == ("killed" if lives else "lost")
    assert home.state(second) == "done"
    assert (f"{first}.1" in {event.key for event in work.events()}) == lives


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("with_daemon", [False, True], ids=["alone", "with the daemon"])
def test_a_job_that_ends_without_a_supervisor_has_its_true_end_and_runs_once(
    home: Home, work: Work, tell: Tell, code: int, with_daemon: bool
) -> None:
    home.start("--gpus", "0")
    go = work.folder / "go"
    line = f"echo $STOKER_ATTEMPT >> {work.folder}/ran; until [ -e {go} ]; do sleep 0.02; done"
    with home.client() as client:
        command = NewJob(command=f"{line}; exit {code}")
        (added,) = client.add(work.submission([command], retries=0))
        until(lambda: any(each.pid for each in home.live()), "it runs")
        (attempt,) = home.live()
        (supervisor,) = home.supervisors()
        if with_daemon:
            home.kill_daemon()
        else:
            os.kill(home.daemon() or 0, signal.SIGSTOP)
        try:
            kill(supervisor)
            go.touch()
            until(lambda: not os.path.exists(f"/proc/{attempt.pid}"), "the job has ended")
        finally:
            if not with_daemon:
                os.kill(home.daemon() or 0, signal.SIGCONT)
    home.status()
    with home.client() as client:
        [*client.wait()]
        job = client.show(added.first)

    tell("job ended while no supervisor lived", 1, CLEAN)
    assert (job.state.value, job.exit_code) == ("failed" if code else "done", code)
    assert [each.pid for each in job.attempts] == [attempt.pid]
    assert (work.folder / "ran").read_text().split() == ["1"]
