from __future__ import annotations

from stoker.core.job import Attempt, Request
from stoker.engine.deadlines import Deadlines
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import Paused, Running, RunningAttempt

NEVER = float("inf")


def run(running: dict[str, RunningAttempt], number: int, deadline: float | None) -> RunningAttempt:
    attempt = Attempt(number, 1)
    found = running[attempt.key] = RunningAttempt(
        key=attempt.key,
        attempt=attempt,
        entry=QueueEntry(b"", Request()),
        slots=(),
        deadline=deadline,
    )
    return found


def test_deadlines_of_ended_attempts_are_ignored() -> None:
    running: dict[str, RunningAttempt] = {}
    deadlines = Deadlines(running)
    for number, deadline in enumerate((30.0, 10.0, None, 20.0)):
        deadlines.note(run(running, number, deadline))

    assert deadlines.next() == 10.0
    del running["1.1"]
    assert deadlines.next() == 20.0
    running["3.1"].deadline = 50.0
    deadlines.note(running["3.1"])
    assert deadlines.next() == 30.0
    running["0.1"].deadline = None
    assert deadlines.next() == 50.0


def test_a_paused_attempt_has_no_deadline() -> None:
    running: dict[str, RunningAttempt] = {}
    deadlines = Deadlines(running)
    job = run(running, 1, 10.0)
    deadlines.note(job)

    job.phase = Paused(pid=7, started_at_us=1, since=5.0)
    assert deadlines.next() == NEVER
    job.phase, job.deadline = Running(pid=7, started_at_us=1), 12.0
    deadlines.note(job)
    assert deadlines.next() == 12.0


def test_due_attempts_are_returned_once_and_in_order() -> None:
    running: dict[str, RunningAttempt] = {}
    deadlines = Deadlines(running)
    for number, deadline in enumerate((30.0, 10.0, 20.0)):
        deadlines.note(run(running, number, deadline))

    assert [job.key for job in deadlines.take_due(20.0)] == ["1.1", "2.1"]
    assert list(deadlines.take_due(20.0)) == []
    assert deadlines.next() == 30.0


def test_deadlines_of_ended_attempts_do_not_accumulate() -> None:
    running: dict[str, RunningAttempt] = {}
    deadlines = Deadlines(running)
    deadlines.note(run(running, 0, 1e9))
    for number in range(1, 10_000):
        deadlines.note(run(running, number, 1e9 + number))
        del running[f"{number}.1"]

    assert len(deadlines._heap) < 100
