"""The check of a queue's history finds what it is for: each kind of fault is planted and must be found."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

from fault.home import Attempt
from fault.ledger import Verdict, judge
from fault.moments import Moment, moment_of
from fault.work import Event, Expected, Work
from patience import until

if TYPE_CHECKING:
    from pathlib import Path


class History:
    """Three jobs without fault, to be doctored: on GPU 0, on 0 and 1, and one without GPU that fails."""

    def __init__(self) -> None:
        self.expected: dict[int, Expected | None] = {
            1: Expected(0, 1, 1),
            2: Expected(0, 2, 1),
            3: Expected(7 << 8, 0, 2),
        }
        self.attempts: list[Attempt] = []
        self.events: list[Event] = []
        self.run("1.1", "0", 100, 200)
        self.run("2.1", "0,1", 300, 400)
        self.run("3.1", "", 100, 200, 7 << 8)
        self.run("3.2", "", 300, 400, 7 << 8)

    def run(self, key: str, slots: str, start: int, end: int, status: int = 0) -> None:
        """Add an attempt, to both records."""
        job, number = map(int, key.split("."))
        state = "failed" if status else "done"
        attempt = Attempt(job, number, state, slots, 99, start, end, status, None)
        self.attempts = sorted([*self.attempts, attempt])
        gpus = slots or "-"
        self.events += [
            Event("start", key, gpus, 99, start + 1, 0),
            Event("end", key, gpus, 99, end - 1, 0),
        ]
        self.events.sort(key=lambda event: event.at_us)

    def change(self, key: str, **fields: object) -> None:
        """Put something else on record."""
        self.attempts = [
            each._replace(**fields) if each.key == key else each  # type: ignore[arg-type]
            for each in self.attempts
        ]

    def judge(self, *, may_lose: bool = False, per_gpu: int = 1) -> Verdict:
        """What is wrong."""
        return judge(self.expected, self.attempts, self.events, may_lose=may_lose, per_gpu=per_gpu)


def test_nothing_is_wrong_where_nothing_is() -> None:
    assert History().judge().is_clean


def test_an_acknowledged_job_that_is_not_there_is_lost() -> None:
    history = History()
    history.expected[4] = Expected(0, 1, 1)

    assert history.judge().lost == ["job 4 was acknowledged and is not there"]


def test_an_end_that_nobody_knows_is_lost_unless_it_may_be() -> None:
    history = History()
    history.change("1.1", state="lost", status=None)

    assert len(history.judge().lost) == 1
    assert history.judge(may_lose=True).is_clean


def test_an_attempt_that_ran_twice_is_found() -> None:
    history = History()
    history.events += [Event("start", "1.1", "0", 7, 500, 0), Event("end", "1.1", "0", 7, 501, 0)]

    assert history.judge().twice == ["attempt 1.1 started 2 times"]


def test_an_attempt_that_is_not_on_record_is_found() -> None:
    history = History()
    history.events += [Event("start", "1.2", "0", 7, 500, 0), Event("end", "1.2", "0", 7, 501, 0)]

    assert history.judge().twice == ["attempt 1.2 ran and is not on record"]


def test_a_job_that_nobody_added_is_found() -> None:
    history = History()
    history.run("4.1", "3", 100, 200)

    assert history.judge().twice == ["job 4 is there and was never acknowledged"]


def test_jobs_that_met_on_a_gpu_are_found_whatever_is_on_record() -> None:
    history = History()
    history.events = [
        event._replace(seat=1) if event.key == "2.1" else event for event in history.events
    ]

    assert history.judge().overlaps == ["2.1 met 1 others on GPU 0,1"]
    assert not history.judge().untrue
    assert history.judge(per_gpu=2).is_clean


def test_jobs_that_meet_on_a_gpu_know_it_and_one_that_was_killed_is_met_no_more(
    job_program: str, tmp_path: Path
) -> None:
    work = Work(job_program, tmp_path, random.Random(0))

    def start(key: str, gpus: str) -> subprocess.Popen[bytes]:
        job, _, attempt = key.partition(".")
        process = subprocess.Popen(
            [job_program, str(work.record), "60000", "0"],
            env={"STOKER_JOB_ID": job, "STOKER_ATTEMPT": attempt, "CUDA_VISIBLE_DEVICES": gpus},
        )
        until(lambda: any(event.key == key for event in work.events()), f"{key} has begun")
        return process

    asked = {"1.1": "0", "2.1": "1,0", "3.1": "1", "4.1": "2"}
    for wave in (asked, {"5.1": "0,1,2"}):
        for process in [start(key, gpus) for key, gpus in wave.items()]:
            process.kill()
            process.wait()

    assert [event.seat for event in work.events()] == [0, 1, 1, 0, 0]


def test_jobs_that_never_met_and_are_on_record_for_one_gpu_at_once_make_an_untrue_record() -> None:
    history = History()
    history.change("1.1", ended_at_us=350)

    assert history.judge().untrue == ["1.1 and 2.1 are recorded on GPU 0 at once"]
    assert not history.judge().overlaps
    assert history.judge(per_gpu=2).is_clean


def test_a_job_that_never_ends_is_stranded() -> None:
    history = History()
    history.change("2.1", state="running", status=None, ended_at_us=None)

    assert history.judge().stranded == ["job 2 is running"]


def test_an_untrue_status_and_a_missing_retry_are_found() -> None:
    history = History()
    history.change("2.1", status=1 << 8, state="failed")
    history.attempts.pop()
    history.events = [event for event in history.events if event.key != "3.2"]

    assert history.judge().untrue == [
        "2.1 ended with status 256, not 0 (failed: None)",
        "job 3 has attempts [1]",
    ]


def test_the_moment_of_a_kill_is_told_by_what_is_on_record() -> None:
    claimed = Attempt(1, 1, "starting", "0", None, None, None, None, None)
    running = claimed._replace(state="running", pid=9, started_at_us=100)
    spawned = [["spawn", "1.1"], ["start", "1.1", "9", "1", "1", "100"]]
    ended = [*spawned, ["end", "1.1", "0", "200", "0", "0"]]

    assert moment_of(150, [], 0, []) is Moment.IDLE
    assert moment_of(150, [], 3, []) is Moment.WAITING
    assert moment_of(150, [claimed], 3, []) is Moment.INTENT
    assert moment_of(50, [claimed], 3, spawned) is Moment.INTENT
    assert moment_of(150, [claimed], 3, spawned) is Moment.STARTED
    assert moment_of(150, [running], 3, ended) is Moment.RUNNING
    assert moment_of(250, [running], 3, ended) is Moment.ENDED
