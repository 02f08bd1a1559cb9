from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import Event, State
from stoker.engine.foreground_queue import ForegroundQueue
from stoker.engine.queue import QueueEntry
from stoker.store.database import Database
from stoker.store.jobs import Jobs, Known


class Lines:
    """Commands that are at hand, and more that may come."""

    def __init__(self, *commands: bytes, ended: bool = True) -> None:
        self.at_hand = deque(commands)
        self.open = not ended
        self.taken = 0

    @property
    def ended(self) -> bool:
        return not self.open and not self.at_hand

    def is_drained(self) -> bool:
        return False

    def take(self) -> bytes | None:
        if not self.at_hand:
            return None
        self.taken += 1
        return self.at_hand.popleft()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    database = Database(str(tmp_path / "run.db"))
    yield Jobs(database)
    database.close()


def queue_of(jobs: Jobs, *commands: bytes, resume: bool = False) -> ForegroundQueue:
    return ForegroundQueue(Lines(*commands), jobs, Request(), resume=resume)


def names(entries: list[QueueEntry]) -> list[bytes]:
    return [entry.command for entry in entries]


def finish(jobs: Jobs, attempt: Attempt, event: Event = Event.SUCCEED) -> None:
    jobs.end(attempt.job, Outcome(event=event, status=0))


def test_commands_come_in_the_order_they_were_read(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a", b"b", b"c")

    assert names(queue.peek(2)) == [b"a", b"b"]
    assert names(queue.peek(5)) == [b"a", b"b", b"c"]


def test_no_more_is_read_than_is_asked_for(jobs: Jobs) -> None:
    lines = Lines(*[b"a"] * 100)
    queue = ForegroundQueue(lines, jobs, Request(), resume=False)

    queue.peek(3)
    queue.peek(3)

    assert lines.taken == 3


def test_a_claim_takes_the_command_out_and_records_it(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a", b"b")
    first, second = queue.peek(2)

    assert queue.claim(first, "0") == Attempt(1, 1)
    assert queue.claim(second, "1") == Attempt(2, 1)
    assert jobs.command_of(2) == b"b"
    assert jobs.counts() == {State.STARTING: 2}
    assert queue.exhausted()


def test_what_goes_round_again_keeps_its_place_before_all_newer_ones(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a", b"b", b"c", b"d")
    entries = queue.peek(3)
    for entry in entries:
        queue.claim(entry, "0")
    for number in (3, 1, 2):
        jobs.revoke(number)
        queue.put_back(entries[number - 1], Known(number, State.WAITING, 0))

    assert names(queue.peek(9)) == [b"a", b"b", b"c", b"d"]
    assert [queue.claim(entry, "0").job for entry in queue.peek(4)] == [1, 2, 3, 4]


def test_a_retry_is_the_next_attempt_of_the_same_job(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a")
    (entry,) = queue.peek(1)
    attempt = queue.claim(entry, "0")
    finish(jobs, attempt, Event.FAIL)
    jobs.retry(attempt.job)
    queue.put_back(entry, Known(attempt.job, State.WAITING, attempt.number))

    assert queue.claim(queue.peek(1)[0], "1") == Attempt(1, 2)
    assert entry.tries == 2


def test_a_queue_is_exhausted_only_when_nothing_more_can_come(jobs: Jobs) -> None:
    lines = Lines(ended=False)
    queue = ForegroundQueue(lines, jobs, Request(), resume=False)
    assert queue.peek(1) == []
    assert not queue.exhausted()

    lines.open = False
    assert queue.exhausted()


def test_a_command_with_a_nul_byte_is_rejected_with_the_remedy(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a\0b", b"c")

    assert names(queue.peek(1)) == [b"c"]
    ((entry, reason),) = queue.rejected
    assert entry.command == b"a\0b"
    assert "--null" in reason
    queue.claim(queue.peek(1)[0], "0")
    assert not queue.exhausted()


def test_a_resume_passes_over_what_has_succeeded_and_counts_it(jobs: Jobs) -> None:
    first = queue_of(jobs, b"same", b"same", b"fails", b"never")
    done, failed, lost = (first.claim(entry, "0") for entry in first.peek(3))
    finish(jobs, done)
    finish(jobs, failed, Event.FAIL)
    finish(jobs, lost, Event.LOSE)
    jobs.database.commit()
    jobs.remember_earlier()

    again = queue_of(jobs, b"same", b"same", b"fails", b"never", b"same", resume=True)
    entries = again.peek(9)

    assert names(entries) == [b"same", b"fails", b"never", b"same"]
    assert again.already_done == 1
    assert [again.claim(entry, "0") for entry in entries] == [
        Attempt(2, 2),
        Attempt(3, 2),
        Attempt(4, 1),
        Attempt(5, 1),
    ]


def test_a_long_resume_looks_at_a_bounded_number_of_commands_at_a_time(jobs: Jobs) -> None:
    """Millions of lines that are done already must neither fill the memory nor block signals."""
    first = queue_of(jobs, *[b"same"] * 5000)
    for entry in first.peek(5000):
        finish(jobs, first.claim(entry, "0"))
    jobs.database.commit()
    jobs.remember_earlier()
    lines = Lines(*[b"same"] * 5000)
    again = ForegroundQueue(lines, jobs, Request(), resume=True)

    again.peek(1)

    assert lines.taken < 5000


def test_of_commands_that_go_round_again_one_may_pass_another(jobs: Jobs) -> None:
    queue = queue_of(jobs, b"a", b"b")
    for entry in queue.peek(2):
        attempt = queue.claim(entry, "0")
        finish(jobs, attempt, Event.FAIL)
        jobs.retry(attempt.job)
        queue.put_back(entry, Known(attempt.job, State.WAITING, attempt.number))

    second = queue.peek(2)[1]

    assert queue.claim(second, "0") == Attempt(2, 2)
    assert names(queue.peek(2)) == [b"a"]
