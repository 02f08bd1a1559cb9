from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import TABLE, Event, State
from stoker.store.database import Database
from stoker.store.jobs import Jobs, Known, Live, StateConflictError, Usage

Change = Callable[[Jobs, int], object]


def end_as(event: Event) -> Change:
    def end(jobs: Jobs, job: int) -> None:
        jobs.end(job, Outcome(event=event, status=0))

    return end


CHANGES: dict[Event, Change] = {
    Event.CLAIM: lambda jobs, job: jobs.claim(job, "0"),
    Event.REVOKE: lambda jobs, job: jobs.revoke(job),
    Event.REVIVE: lambda jobs, job: jobs.revive(job),
    Event.START: lambda jobs, job: jobs.mark_running(job, 77, 1),
    Event.RETRY: lambda jobs, job: jobs.retry(job),
    Event.SUCCEED: end_as(Event.SUCCEED),
    Event.FAIL: end_as(Event.FAIL),
    Event.KILL: end_as(Event.KILL),
    Event.LOSE: end_as(Event.LOSE),
    Event.PRUNE: end_as(Event.PRUNE),
    Event.DISCARD: lambda jobs, job: jobs.discard(job, "target reached", 1),
    Event.CANCEL: lambda jobs, job: jobs.cancel(job, "not wanted", 1),
    Event.RERUN: lambda jobs, job: jobs.retry(job, Event.RERUN),
    Event.PREEMPT: end_as(Event.PREEMPT),
    Event.HOLD: lambda jobs, job: jobs.move_pending(job, Event.HOLD),
    Event.BLOCK: lambda jobs, job: jobs.move_pending(job, Event.BLOCK),
    Event.DELAY: lambda jobs, job: jobs.move_pending(job, Event.DELAY),
    Event.READY: lambda jobs, job: jobs.move_pending(job, Event.READY),
    Event.SKIP: lambda jobs, job: jobs.move_pending(job, Event.SKIP, "not needed", 1),
    Event.PAUSE: lambda jobs, job: jobs.pause(job, 1),
    Event.RESUME: lambda jobs, job: jobs.resume(job, 2),
    Event.SUSPEND: lambda jobs, job: jobs.suspend(job, 1),
    Event.RESTORE: lambda jobs, job: jobs.restore(job, 2),
}
# How to bring a new job to a state.
WAY_TO: dict[State, list[Event]] = {
    State.WAITING: [],
    State.STARTING: [Event.CLAIM],
    State.RUNNING: [Event.CLAIM, Event.START],
    State.DONE: [Event.CLAIM, Event.SUCCEED],
    State.FAILED: [Event.CLAIM, Event.FAIL],
    State.KILLED: [Event.CLAIM, Event.KILL],
    State.LOST: [Event.CLAIM, Event.LOSE],
    State.HELD: [Event.HOLD],
    State.BLOCKED: [Event.BLOCK],
    State.DELAYED: [Event.DELAY],
    State.SKIPPED: [Event.BLOCK, Event.SKIP],
    State.PAUSED: [Event.CLAIM, Event.START, Event.PAUSE],
    State.SUSPENDED: [Event.CLAIM, Event.START, Event.SUSPEND],
    State.PREEMPTED: [Event.CLAIM, Event.PREEMPT],
    State.PRUNED: [Event.CLAIM, Event.PRUNE],
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(str(tmp_path / "jobs.db"))
    yield database
    database.close()


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)


def state_of(database: Database, job: int) -> State:
    return State(database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()[0])


def reopened(database: Database) -> tuple[Database, Jobs]:
    database.commit()
    again = Database(database.path)
    jobs = Jobs(again)
    jobs.remember_earlier()
    return again, jobs


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_a_state_changes_only_as_the_table_says(
    database: Database, jobs: Jobs, state: State, event: Event
) -> None:
    job = jobs.add_waiting(b"command", Request())
    for step in WAY_TO[state]:
        CHANGES[step](jobs, job)
    assert state_of(database, job) is state
    sources, target = TABLE[event]

    if state in sources:
        CHANGES[event](jobs, job)
        assert state_of(database, job) is target
    else:
        with pytest.raises(StateConflictError):
            CHANGES[event](jobs, job)
        assert state_of(database, job) is state


@pytest.mark.parametrize("pid", [None, 77])
def test_a_revived_attempt_is_as_it_was_before_it_was_given_up(
    database: Database, jobs: Jobs, pid: int | None
) -> None:
    job = jobs.add_waiting(b"command", Request())
    jobs.claim(job, "h1/0")
    if pid is not None:
        jobs.mark_running(job, pid, 5)
    look = f"SELECT * FROM job WHERE id = {job}"
    before = database.execute(look).fetchone()
    jobs.end(job, Outcome(event=Event.LOSE, reason="cut off"), Usage(9), pid, 5 if pid else None)
    jobs.retry(job)
    jobs.revive(job)
    assert database.execute(look).fetchone() == before
    assert database.execute("SELECT count(*) FROM earlier_attempt").fetchone() == (0,)


@pytest.mark.parametrize(
    ("state", "event"), [(State.DONE, Event.RETRY), (State.WAITING, Event.FAIL)]
)
def test_a_refused_change_leaves_no_trace(
    database: Database, jobs: Jobs, state: State, event: Event
) -> None:
    job = jobs.add_waiting(b"command", Request())
    for step in WAY_TO[state]:
        CHANGES[step](jobs, job)
    before = everything(database)

    with pytest.raises(StateConflictError):
        CHANGES[event](jobs, job)
    database.commit()

    assert everything(database) == before


def everything(database: Database) -> list[object]:
    return [
        database.execute(f"SELECT * FROM {table}").fetchall()
        for table in ("job", "earlier_attempt", "class")
    ]


def test_a_job_that_does_not_exist_is_refused(jobs: Jobs) -> None:
    with pytest.raises(StateConflictError):
        jobs.claim(99, "0")


def test_an_end_is_recorded_with_all_that_is_known_of_it(database: Database, jobs: Jobs) -> None:
    attempt = jobs.add_claimed(b"command", Request(), "0+1")
    outcome = Outcome(event=Event.FAIL, status=256, reason="exit 1")

    jobs.end(attempt.job, outcome, Usage(9_500_000, 1_750_000, 4096), 77, 8_000_000)

    row = database.execute(
        "SELECT state, attempt, slots, pid, started_at_us, ended_at_us, status, reason, cpu_us,"
        " max_rss_kb FROM job"
    ).fetchone()
    assert row == ("failed", 1, "0+1", 77, 8_000_000, 9_500_000, 256, "exit 1", 1_750_000, 4096)


def test_every_attempt_has_a_number_of_its_own_and_is_kept(database: Database, jobs: Jobs) -> None:
    attempt = jobs.add_claimed(b"command", Request(), "0")
    for number in (1, 2, 3):
        assert attempt == Attempt(1, number)
        jobs.end(1, Outcome(event=Event.FAIL, status=number << 8), Usage(max_rss_kb=number), 77)
        attempt = jobs.reclaim(Known(1, State.FAILED, number), str(number))

    kept = database.execute(
        "SELECT number, outcome, slots, status, max_rss_kb, pid FROM earlier_attempt"
    ).fetchall()
    assert kept == [
        (1, "failed", "0", 256, 1, 77),
        (2, "failed", "1", 512, 2, 77),
        (3, "failed", "2", 768, 3, 77),
    ]
    now = database.execute("SELECT state, attempt, slots, status, pid FROM job").fetchall()
    assert now == [("starting", 4, "3", None, None)]


def test_an_attempt_that_was_revoked_never_was(jobs: Jobs) -> None:
    attempt = jobs.add_claimed(b"command", Request(), "0")
    jobs.revoke(attempt.job)

    assert jobs.reclaim(Known(1, State.WAITING, 0), "1") == Attempt(1, 1)


def test_live_attempts_are_told_with_what_is_known_of_them(jobs: Jobs) -> None:
    jobs.add_claimed(b"starting", Request(), "0")
    running = jobs.add_claimed(b"running", Request(), "1")
    jobs.mark_running(running.job, 77, 8)
    over = jobs.add_claimed(b"over", Request(), "2")
    jobs.end(over.job, Outcome(event=Event.SUCCEED, status=0))
    jobs.add_waiting(b"waiting", Request())

    assert jobs.live() == [
        Live(Attempt(1, 1), None, None),
        Live(Attempt(2, 1), 77, 8),
    ]
    assert jobs.counts() == {
        State.STARTING: 1,
        State.RUNNING: 1,
        State.DONE: 1,
        State.WAITING: 1,
    }


def test_a_resume_finds_each_occurrence_once_and_then_no_more(
    database: Database, jobs: Jobs
) -> None:
    for command in (b"a", b"a"):
        jobs.add_claimed(command, Request(), "0")
    jobs.end(2, Outcome(event=Event.SUCCEED, status=0))

    again, resumed = reopened(database)
    found = [resumed.read_again(command) for command in (b"a", b"b", b"a", b"a")]
    again.close()

    assert found == [Known(1, State.STARTING, 1), None, Known(2, State.DONE, 1), None]


def test_a_second_resume_counts_from_the_start(database: Database, jobs: Jobs) -> None:
    jobs.add_waiting(b"a", Request())
    for _ in range(2):
        again, resumed = reopened(database)
        assert resumed.read_again(b"a") == Known(1, State.WAITING, 0)
        again.commit()
        again.close()


def test_what_is_added_after_the_resume_is_not_taken_for_something_earlier(
    database: Database, jobs: Jobs
) -> None:
    again, resumed = reopened(database)

    assert resumed.read_again(b"a") is None
    resumed.add_claimed(b"a", Request(), "0")
    assert resumed.read_again(b"a") is None
    again.commit()
    again.close()


def test_what_was_recorded_and_is_not_read_again_is_counted(database: Database, jobs: Jobs) -> None:
    for command in (b"a", b"a", b"b", b"c"):
        jobs.add_waiting(command, Request())
    again, resumed = reopened(database)

    absent = [resumed.absent()]
    for command in (b"a", b"c", b"new"):
        resumed.read_again(command)
        absent.append(resumed.absent())
    again.close()

    assert absent == [4, 3, 2, 2]


def test_heads_come_in_queue_order_whatever_their_class(database: Database, jobs: Jobs) -> None:
    jobs.add_waiting(b"1", Request())
    jobs.add_waiting(b"2", Request(priority=5))
    jobs.add_waiting(b"3", Request(slots=2))
    jobs.add_waiting(b"4", Request(timeout_s=2.5, priority=5))
    jobs.add_waiting(b"5", Request(slots=0))
    jobs.add_claimed(b"6", Request(priority=9), "0")
    database.write("UPDATE job SET rank = -1 WHERE id = 5", ())

    heads = jobs.heads(10, 10)

    assert [head.id for head in heads] == [2, 4, 5, 1, 3]
    assert [head.slots for head in heads] == [1, 1, 0, 1, 2]
    assert [head.timeout_s for head in heads] == [None, 2.5, None, None, None]


def test_heads_are_limited_class_by_class_and_those_without_gpu_apart(jobs: Jobs) -> None:
    for number in range(9):
        jobs.add_waiting(b"%d" % number, Request(slots=number % 3))

    assert [head.id for head in jobs.heads(2, 0)] == [2, 3, 5, 6]
    assert [head.id for head in jobs.heads(1, 3)] == [1, 2, 3, 4, 7]


@pytest.mark.parametrize("classes", [1, 8, 9, 60])
def test_heads_are_the_same_however_many_classes_there_are(jobs: Jobs, classes: int) -> None:
    for number in range(3 * classes):
        wants = Request(timeout_s=float(number % classes + 1), priority=number % 4)
        jobs.add_waiting(b"a", wants)
    for job in range(1, 3 * classes + 1):
        if job % classes % 3 == 1:
            jobs.cancel(job, "not wanted", 1)
    rest = [job for job in range(1, 3 * classes + 1) if job % classes % 3 != 1]

    heads = jobs.heads(9, 9)

    assert [head.id for head in heads] == sorted(rest, key=lambda job: (-((job - 1) % 4), job))
    assert all(head.timeout_s == (head.id - 1) % classes + 1 for head in heads)


def test_jobs_that_ask_for_the_same_are_one_class_also_after_reopening(
    database: Database, jobs: Jobs
) -> None:
    request = Request(timeout_s=None)
    jobs.add_waiting(b"a", request)
    again, resumed = reopened(database)
    resumed.add_waiting(b"b", request)

    count = again.execute("SELECT count(*) FROM class").fetchone()
    again.commit()
    again.close()

    assert count == (1,)


def test_ids_go_on_after_reopening(database: Database, jobs: Jobs) -> None:
    jobs.add_waiting(b"a", Request())
    again, resumed = reopened(database)

    assert resumed.add_waiting(b"b", Request()) == 2
    again.close()


@settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200))
def test_any_bytes_are_kept_as_they_are(jobs: Jobs, command: bytes) -> None:
    assert jobs.command_of(jobs.add_waiting(command, Request())) == command
