"""The daemon's jobs: counted, interned, and numbered once."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import TABLE, Event, State, is_final, is_live
from stoker.errors import StokerError
from stoker.store.database import Database
from stoker.store.jobs import StateConflictError
from stoker.store.prune import forget_submissions
from stoker.store.queue_jobs import QueueJobs
from stoker.store.submissions import Common, NewRow, Reservation

ENDS = (Event.SUCCEED, Event.FAIL, Event.KILL, Event.LOSE, Event.PRUNE)


def common(request_id: str = "request-1", jobs: int = 1, **more: Any) -> Common:
    given = {"submitted_at_us": 1, "environment": b"A=1\0", "cwd": b"/work", **more}
    return Common(request_id=request_id, jobs=jobs, **given)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(str(tmp_path / "stoker.db"))
    yield database
    database.close()


@pytest.fixture
def jobs(database: Database) -> QueueJobs:
    return QueueJobs(database)


def submit(
    database: Database,
    jobs: QueueJobs,
    request_id: str = "request-1",
    count: int = 1,
    request: Request | None = None,
    **more: Any,
) -> Reservation:
    with database.transaction(durable=True):
        reservation = jobs.reserve(common(request_id, count, **more))
        rows = [NewRow(b"command %d" % number) for number in range(count)]
        jobs.fill(reservation, 0, rows, request or Request())
    return reservation


def counted(database: Database) -> dict[State, int]:
    """What a count of all rows says, where starting is as good as running."""
    counts: Counter[State] = Counter()
    for state, count in database.execute("SELECT state, count(*) FROM job GROUP BY state"):
        counts[State.RUNNING if state == "starting" else State(state)] += count
    return dict(counts)


class Queue(RuleBasedStateMachine):
    """Any sequence of operations, commits, refusals and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.requests = 0
        self.given: set[int] = set()
        self.promised: dict[int, int] = {}
        self.removed: set[int] = set()

    @initialize()
    def open(self) -> None:
        self.database = Database(f"{self.folder.name}/stoker.db")
        self.jobs = QueueJobs(self.database)

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    @rule(count=st.integers(1, 230), slices=st.booleans(), durable=st.booleans())
    def add(self, count: int, slices: bool, durable: bool) -> None:
        self.database.commit()
        self.requests += 1
        with self.database.transaction(durable=durable):
            reservation = self.jobs.reserve(common(f"request-{self.requests}", count))
            ids = set(range(reservation.first_job, reservation.first_job + count))
            assert not ids & self.given, "an id was given twice"
            self.fill(reservation, 0, count // 2 if slices else count)
        self.given |= ids
        self.promised[self.requests] = count

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), count=st.integers(1, 230))
    def repeat(self, data: st.DataObject, count: int) -> None:
        self.database.commit()
        number = data.draw(st.integers(1, self.requests))
        promised = self.promised[number]
        with self.database.transaction():
            reservation = self.jobs.reserve(common(f"request-{number}", promised))
            assert reservation.jobs == promised
            self.fill(reservation, reservation.added, min(count, promised - reservation.added))

    def fill(self, reservation: Reservation, offset: int, count: int) -> None:
        rows = [NewRow(b"c", "argv" if number % 7 == 0 else None) for number in range(count)]
        if rows:
            self.jobs.fill(reservation, offset, rows, Request(retries=count % 2))

    @rule(data=st.data(), event=st.sampled_from(list(Event)))
    def happen(self, data: st.DataObject, event: Event) -> None:
        sources = TABLE[event][0]
        found = self.in_states(*sources)
        if not found:
            return
        job = data.draw(st.sampled_from(found))
        state = State(
            self.database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()[0]
        )
        match event:
            case Event.CLAIM:
                self.jobs.claim(job, "0")
                self.jobs.count_try(Attempt(job, 1), 1)
            case Event.REVOKE:
                self.jobs.revoke(job)
            case Event.REVIVE:
                self.jobs.revive(job)
            case Event.START:
                self.jobs.mark_running(job, 7, 8)
            case Event.RETRY | Event.RERUN:
                if data.draw(st.booleans()):
                    self.jobs.retry(job, event)
                else:
                    self.jobs.renew(job, state, fresh=data.draw(st.booleans()))
            case Event.CANCEL:
                self.jobs.cancel(job, "not wanted", 1)
            case Event.DISCARD:
                self.jobs.discard(job, "target reached", 1)
            case Event.HOLD | Event.BLOCK | Event.DELAY | Event.READY:
                self.jobs.move_pending(job, event)
            case Event.SKIP:
                self.jobs.move_pending(job, event, "not needed", 1)
            case Event.PAUSE | Event.RESUME:
                (self.jobs.pause if event is Event.PAUSE else self.jobs.resume)(job, 1)
            case _:
                self.jobs.end(job, Outcome(event=event, status=0))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        found = self.in_states(*(state for state in State if not is_live(state)))
        if found:
            self.database.commit()
            gone = data.draw(st.lists(st.sampled_from(found), unique=True, max_size=5))
            gone += (
                [max(self.given)]
                if max(self.given) in found and max(self.given) not in gone
                else []
            )
            with self.database.transaction():
                self.jobs.remove((job, self.state(job)) for job in gone)
            self.removed |= set(gone)

    @rule()
    def commit(self) -> None:
        self.database.commit()

    @rule(count=st.integers(1, 120))
    def be_refused(self, count: int) -> None:
        self.database.commit()
        before = (counted(self.database), self.jobs.tally())
        with contextlib.suppress(StokerError), self.database.transaction():
            reservation = self.jobs.reserve(common(f"refused-{count}", count, environment=b"X=1\0"))
            self.jobs.fill(
                reservation,
                0,
                [NewRow(b"c")] * count,
                Request(slots=7, timeout_s=float(count)),
            )
            raise StokerError("changed my mind")
        assert (counted(self.database), self.jobs.tally()) == before

    @rule()
    def crash(self) -> None:
        self.database.close()
        self.open()

    @rule()
    def tidy_up(self) -> None:
        self.database.commit()
        forget_submissions(self.jobs.database)

    def in_states(self, *states: State) -> list[int]:
        marks = ", ".join(f"'{state.value}'" for state in states)
        return [
            row[0]
            for row in self.database.execute(
                f"SELECT id FROM job WHERE state IN ({marks}) ORDER BY id LIMIT 20"
            )
        ]

    def state(self, job: int) -> State:
        row = self.database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()
        return State(row[0])

    @invariant()
    def the_tally_counts(self) -> None:
        assert self.jobs.tally() == counted(self.database)
        for state in State:
            if state is not State.STARTING:
                assert self.jobs.count(state) == self.jobs.tally().get(state, 0)

    @invariant()
    def what_was_reserved_is_there_unless_removed(self) -> None:
        added = self.database.execute("SELECT sum(added) FROM submission").fetchone()[0] or 0
        there = self.database.execute("SELECT count(*) FROM job").fetchone()[0]
        assert there == added - len(self.removed)


TestQueue = Queue.TestCase
TestQueue.settings = settings(
    deadline=None, derandomize=True, max_examples=60, stateful_step_count=30
)


def test_ids_are_not_reused_after_the_last_job_was_removed_and_the_queue_reopened(
    database: Database, jobs: QueueJobs
) -> None:
    submit(database, jobs, count=3)
    with database.transaction():
        jobs.remove([(3, State.WAITING), (2, State.WAITING), (1, State.WAITING)])
    assert submit(database, jobs, "request-2").first_job == 4
    with database.transaction():
        jobs.remove([(4, State.WAITING)])

    again = Database(database.path)
    assert submit(again, QueueJobs(again), "request-3").first_job == 5
    again.close()


def test_the_same_request_id_is_the_same_submission_also_after_reopening(
    database: Database, jobs: QueueJobs
) -> None:
    first = submit(database, jobs, count=3)
    repeated = jobs.reserve(common(jobs=3))
    again = Database(database.path)
    after = QueueJobs(again).reserve(common(jobs=3))
    again.close()

    assert first.first_job == repeated.first_job == after.first_job == 1
    assert repeated.added == after.added == 3


def test_a_submission_cut_short_between_slices_goes_on_where_it_ended(
    database: Database, jobs: QueueJobs
) -> None:
    rows = [NewRow(b"command %d" % number) for number in range(10)]
    with database.transaction(durable=True):
        reservation = jobs.reserve(common(jobs=10))
    with database.transaction():
        jobs.fill(reservation, 0, rows[:4], Request())
    with contextlib.suppress(KeyboardInterrupt), database.transaction():
        jobs.fill(reservation, 4, rows[4:8], Request())
        raise KeyboardInterrupt
    database.close()

    database.__init__(database.path)  # type: ignore[misc]
    jobs = QueueJobs(database)
    with database.transaction():
        reservation = jobs.reserve(common(jobs=10))
        assert (reservation.first_job, reservation.added) == (1, 4)
        jobs.fill(reservation, 4, rows[4:], Request())

    found = database.execute("SELECT id, command FROM job ORDER BY id").fetchall()
    assert found == [(number + 1, row.command) for number, row in enumerate(rows)]
    assert jobs.tally() == {State.WAITING: 10}


def test_ids_that_were_reserved_are_not_given_to_others_while_a_submission_is_cut_short(
    database: Database, jobs: QueueJobs
) -> None:
    with database.transaction(durable=True):
        jobs.reserve(common(jobs=10))
    again = Database(database.path)

    assert submit(again, QueueJobs(again), "request-2").first_job == 11
    again.close()


@pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
@pytest.mark.parametrize("odd", [None, 0, 57])
def test_every_row_is_kept_as_it_was_given_however_many_and_however_different(
    database: Database, jobs: QueueJobs, count: int, odd: int | None
) -> None:
    rows = [
        NewRow(b"a\0b", "argv", "odd", b"/log")
        if number == odd
        else NewRow(b"line \xff %d" % number, None, "name", b"/logs/{id}")
        for number in range(count)
    ]
    with database.transaction():
        reservation = jobs.reserve(common(jobs=count))
        request = Request(slots=2, timeout_s=60.0, project="p", priority=5, retries=3)
        jobs.fill(reservation, 0, rows, request)

    found = [jobs.facts(number + 1) for number in range(count)]
    assert [NewRow(each.command, each.form, each.name, each.log) for each in found] == rows
    assert {each.request for each in found} == {request}
    assert {each.submission for each in found} == {reservation.submission}


def test_equal_environments_are_kept_once(database: Database, jobs: QueueJobs) -> None:
    for number, block in enumerate((b"A=1\0", b"A=2\0", b"A=1\0")):
        submit(database, jobs, f"request-{number}", environment=block)

    kept = database.execute("SELECT environment FROM submission ORDER BY id").fetchall()
    assert kept == [(1,), (2,), (1,)]
    assert [jobs.environment(number) for number in (1, 2)] == [b"A=1\0", b"A=2\0"]


def test_submissions_and_environments_go_when_no_job_is_left_but_not_the_newest(
    database: Database, jobs: QueueJobs
) -> None:
    day_us = 86_400_000_000
    for number in range(4):
        submit(
            database,
            jobs,
            f"request-{number}",
            submitted_at_us=number * day_us,
            environment=b"N=%d\0" % number,
        )
    with database.transaction():
        jobs.remove([(1, State.WAITING), (3, State.WAITING), (4, State.WAITING)])
    forget_submissions(jobs.database)

    left = database.execute("SELECT request_id FROM submission ORDER BY id").fetchall()
    assert left == [("request-1",), ("request-2",), ("request-3",)]
    blocks = database.execute("SELECT block FROM environment ORDER BY id").fetchall()
    assert blocks == [(b"N=1\0",), (b"N=2\0",), (b"N=3\0",)]


def test_what_was_remembered_of_a_submission_or_an_environment_is_never_another_ones(
    database: Database, jobs: QueueJobs
) -> None:
    day_us = 86_400_000_000
    submit(database, jobs, "request-1", submitted_at_us=9 * day_us)
    gone = submit(
        database, jobs, "request-2", submitted_at_us=0, environment=b"OLD=1\0", cwd=b"/old"
    )
    before = jobs.surroundings(gone.submission)
    with database.transaction():
        jobs.remove([(2, State.WAITING)])
    forget_submissions(jobs.database)

    new = submit(database, jobs, "request-3", environment=b"NEW=1\0", cwd=b"/new")
    after = jobs.surroundings(new.submission)
    assert (before.cwd, after.cwd) == (b"/old", b"/new")
    assert before.environment != after.environment
    assert jobs.environment(after.environment) == b"NEW=1\0"


def test_a_job_retried_by_hand_has_all_its_retries_again(
    database: Database, jobs: QueueJobs
) -> None:
    submit(database, jobs, request=Request(retries=2))
    jobs.claim(1, "0")
    jobs.count_try(Attempt(1, 1), 3)
    jobs.mark_ending(1, "killed by request", 10.0)
    jobs.end(1, Outcome(event=Event.KILL, status=15, reason="killed by request"))
    jobs.renew(1, State.KILLED, fresh=True)
    database.commit()

    facts = jobs.facts(1)
    assert (facts.tries, facts.ending, facts.fresh, facts.attempt) == (0, None, 1, 1)


def test_a_revoked_attempt_does_not_count_as_a_try(database: Database, jobs: QueueJobs) -> None:
    submit(database, jobs, count=2, request=Request(retries=1))
    for _ in range(3):
        jobs.claim(1, "0")
        jobs.count_try(Attempt(1, 1), (jobs.facts(1).tries or 0) + 1)
        jobs.revoke(1)
        jobs.claim(2, "0")
        jobs.revoke(2)
    database.commit()

    assert (jobs.facts(1).tries, jobs.facts(1).attempt) == (0, 0)
    assert jobs.facts(2).tries is None


@pytest.mark.parametrize("state", [state for state in State if not is_final(state)])
def test_only_what_is_over_is_retried(database: Database, jobs: QueueJobs, state: State) -> None:
    submit(database, jobs)
    if state is not State.WAITING:
        jobs.claim(1, "0")
    if state is State.RUNNING:
        jobs.mark_running(1, 7, 8)
    with pytest.raises(StateConflictError):
        jobs.renew(1, state, fresh=False)


def test_live_jobs_are_told_with_all_that_adopting_them_needs(
    database: Database, jobs: QueueJobs
) -> None:
    submit(database, jobs, count=3)
    jobs.claim(1, "0+1")
    jobs.claim(2, "2")
    jobs.mark_running(2, 77, 8_000_000)
    jobs.mark_ending(2, "killed by request", 10.0)
    database.commit()

    told = [
        (each.id, each.attempt, each.slots, each.pid, each.started_at_us, each.ending)
        for each in jobs.live_facts()
    ]
    assert told == [
        (1, 1, "0+1", None, None, None),
        (2, 1, "2", 77, 8_000_000, "kill: killed by request"),
    ]


class TestRefused:
    """A transaction that the disk has no room for."""

    @pytest.fixture
    def full(self, database: Database, jobs: QueueJobs) -> Database:
        submit(database, jobs)
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    def fill_up(self, database: Database, jobs: QueueJobs) -> None:
        with database.transaction():
            reservation = jobs.reserve(common("request-2", 300, environment=b"B=2\0"))
            rows = [NewRow(b"x" * 500)] * 300
            jobs.fill(reservation, 0, rows, Request(slots=4, timeout_s=9.0, project="new"))

    def everything(self, database: Database) -> list[object]:
        return [
            database.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("job", "class", "submission", "environment", "tally")
        ]

    def test_nothing_of_it_is_left_and_the_remedy_is_told(
        self, full: Database, jobs: QueueJobs
    ) -> None:
        before, tally = self.everything(full), jobs.tally()

        with pytest.raises(
            StokerError, match="database or disk is full; nothing was changed: make room"
        ):
            self.fill_up(full, jobs)

        assert self.everything(full) == before
        assert jobs.tally() == tally == counted(full)

    def test_a_class_that_it_had_made_is_made_again(self, full: Database, jobs: QueueJobs) -> None:
        with pytest.raises(StokerError):
            self.fill_up(full, jobs)
        full.execute("PRAGMA max_page_count = 100000")
        self.fill_up(full, jobs)

        last = full.execute("SELECT max(id) FROM job").fetchone()[0]
        assert jobs.facts(last).request.project == "new"
        assert jobs.tally() == counted(full) == {State.WAITING: 301}

    def test_ids_that_nobody_was_told_are_free_again(self, full: Database, jobs: QueueJobs) -> None:
        with pytest.raises(StokerError):
            self.fill_up(full, jobs)
        full.execute("PRAGMA max_page_count = 100000")

        assert submit(full, jobs, "request-3").first_job == 2
        again = Database(full.path)
        assert QueueJobs(again).tally() == jobs.tally()
        again.close()

    @pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "INSERT INTO tally", "COMMIT"])
    def test_wherever_the_disk_is_full_all_is_undone(
        self,
        database: Database,
        jobs: QueueJobs,
        monkeypatch: pytest.MonkeyPatch,
        statement: str,
    ) -> None:
        submit(database, jobs)
        before, tally = self.everything(database), jobs.tally()
        execute = database.execute

        def fail(sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith(statement):
                raise sqlite3.OperationalError("database or disk is full")
            return execute(sql, *values)

        monkeypatch.setattr(database, "execute", fail)
        with pytest.raises(StokerError, match="nothing was changed"):
            self.fill_up(database, jobs)
        monkeypatch.undo()

        assert not database.connection.in_transaction
        assert self.everything(database) == before
        assert jobs.tally() == tally
        assert submit(database, jobs, "request-3").first_job > 1

    def test_a_disk_that_refuses_to_sync_is_told_once_and_tried_again(
        self, database: Database, jobs: QueueJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_fd: int) -> None:
            raise OSError(5, "Input/output error")

        told: list[str] = []
        database.on_unsynced = told.append
        monkeypatch.setattr("stoker.store.database.os.fdatasync", refuse)
        submit(database, jobs)
        assert "Input/output error" in (database.sync() or "")
        assert database.sync_due_s() is not None
        assert len(told) == 1
        monkeypatch.undo()

        assert database.sync() is None
        assert database.sync_due_s() is None
        assert "durable again" in told[1]
        assert jobs.tally() == counted(database)

    def test_other_errors_are_passed_on_and_undo_it_too(
        self, database: Database, jobs: QueueJobs
    ) -> None:
        def change_and_fail() -> None:
            with database.transaction():
                jobs.fill(jobs.reserve(common()), 0, [NewRow(b"c")], Request())
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            change_and_fail()

        assert jobs.tally() == counted(database) == {}

    def test_a_transaction_can_follow_one_that_was_refused(
        self, full: Database, jobs: QueueJobs
    ) -> None:
        with pytest.raises(StokerError):
            self.fill_up(full, jobs)
        jobs.claim(1, "0")
        full.commit()

        assert jobs.tally() == counted(full) == {State.RUNNING: 1}
