"""The engine on a fake clock and a fake executor."""

from __future__ import annotations

import errno
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import Event, State
from stoker.core.slot import Slot
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.build import EngineParts, build_engine
from stoker.engine.engine import Engine
from stoker.engine.foreground_queue import ForegroundQueue
from stoker.engine.journal_recovery import recover
from stoker.engine.queue import QueueEntry
from stoker.engine.run_progress import EngineRules, Tally
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import QUICK_S, ClosedBy
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Ended
from stoker.store.database import Database
from stoker.store.jobs import Jobs
from stoker.supervisor.journal import Ending, Record
from stoker.testing.executor import FakeExecutor

FAILED = 1 << 8
TWO = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("1",), ("GPU-1",)))
ONE = TWO[:1]
SHARED = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("0",), ("GPU-0",)))


class Lines:
    """Commands that are at hand; `open` tells whether more may come."""

    def __init__(self) -> None:
        self.at_hand: deque[bytes] = deque()
        self.open = False

    @property
    def ended(self) -> bool:
        return not self.open and not self.at_hand

    def is_drained(self) -> bool:
        return False

    def take(self) -> bytes | None:
        return self.at_hand.popleft() if self.at_hand else None


class Ears:
    """Everything the engine told."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.started: list[str] = []
        self.ended: list[tuple[str, Event, str | None, bool]] = []
        self.notices: list[str] = []

    def on_launch(self, running: RunningAttempt) -> None:
        self.launched.append(running.key)

    def on_start(self, running: RunningAttempt) -> None:
        self.started.append(running.key)

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        self.ended.append((running.key, outcome.event, outcome.reason, retried))

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Stage:
    """An engine with all its surroundings in hand."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.lines = Lines()
        self.ears = Ears()
        self.executor = FakeExecutor(lambda: self.now)
        self.database = Database(str(path))
        # Syncing goes by a clock of its own; a test of its own is about that.
        self.database.sync_due_s = lambda: None  # type: ignore[method-assign]
        self.jobs = Jobs(self.database)
        self.engine: Engine = None  # type: ignore[assignment]
        self.unwritable: set[str] = set()

    def prepare(self, attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
        if attempt.key in self.unwritable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return LaunchSpec([entry.command.decode()], f"log/{attempt.key}")

    def set_up(
        self,
        *commands: bytes,
        slots: tuple[Slot, ...] = TWO,
        request: Request | None = None,
        fail_fast: bool = False,
        in_advance: bool = True,
        more_may_come: bool = False,
    ) -> Engine:
        request = request or Request()
        self.lines.at_hand.extend(commands)
        self.lines.open = more_may_come
        parts = EngineParts(
            slot_table=SlotTable(slots),
            queue=ForegroundQueue(self.lines, self.jobs, request, resume=False),
            executor=self.executor,
            database=self.database,
            jobs=self.jobs,
            listener=self.ears,
            rules=EngineRules(max_failures=1 if fail_fast else None, in_advance=in_advance),
            prepare=self.prepare,
            clock=lambda: self.now,
        )
        self.engine = build_engine(parts)
        self.settle()
        return self.engine

    def settle(self) -> None:
        """Take turns until there is no more news."""
        for _ in range(60):
            self.engine.turn()
            if not self.executor.has_reports and self.engine.patience_s() != 0:
                return
        raise AssertionError("the engine and its executor never come to rest")

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    def end(self, key: str, status: int = 0) -> None:
        self.executor.end(key, status)
        self.settle()

    def run_short_jobs(self, *keys: str) -> None:
        """Let attempts end that lasted next to nothing, so that more are claimed in advance."""
        for key in keys:
            self.now += 0.001
            self.end(key)

    def refusals(self) -> list[str | None]:
        return [
            None if state.refusal is None else state.refusal.reason
            for state in self.engine.slot_table.states
        ]

    def states(self) -> dict[int, str]:
        return dict(self.database.execute("SELECT id, state FROM job").fetchall())

    def attempts(self) -> list[tuple[int, int, str, int | None, str | None]]:
        return self.database.execute(
            "SELECT job, number, outcome, status, reason FROM earlier_attempt UNION"
            " SELECT id, attempt, state, status, reason FROM job"
            " WHERE state NOT IN ('waiting', 'starting', 'running') ORDER BY 1, 2"
        ).fetchall()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "run.db")
    yield stage
    stage.executor.close()
    stage.database.close()


def test_each_slot_gets_a_job_and_the_next_starts_when_one_ends(stage: Stage) -> None:
    engine = stage.set_up(b"a", b"b", b"c")
    assert stage.executor.running == ["1.1", "2.1"]
    assert stage.states() == {1: "running", 2: "running"}

    stage.now += 5
    stage.end("2.1")
    assert stage.executor.running == ["1.1", "3.1"]
    assert not engine.is_over()

    stage.end("1.1")
    stage.end("3.1", FAILED)
    assert engine.is_over()
    assert engine.tally == Tally(done=2, failed=1)
    assert stage.states() == {1: "done", 2: "done", 3: "failed"}
    assert [launch.argv for launch in stage.executor.launched] == [["a"], ["b"], ["c"]]
    assert stage.executor.launched[0].log == "log/1.1"


def test_the_intent_is_committed_before_the_launch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[object, ...]]] = []
    launch = stage.executor.launch

    def look_first(launches: list[object]) -> None:
        other = Database(stage.database.path)
        seen.append(other.execute("SELECT id, state, attempt, slots FROM job").fetchall())
        other.close()
        launch(launches)  # type: ignore[arg-type]

    monkeypatch.setattr(stage.executor, "launch", look_first)
    stage.set_up(b"a", b"b")

    assert seen == [[(1, "starting", 1, "0"), (2, "starting", 1, "1")]]


def test_a_failed_job_is_tried_again_as_often_as_allowed(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE, request=Request(retries=2))

    for number in (1, 2, 3):
        assert stage.executor.running == [f"1.{number}"]
        stage.end(f"1.{number}", FAILED)

    assert engine.is_over()
    assert engine.tally == Tally(failed=1)
    assert [entry[3] for entry in stage.ears.ended] == [True, True, False]
    assert [row[:4] for row in stage.attempts()] == [(1, n, "failed", FAILED) for n in (1, 2, 3)]


def test_a_retry_that_succeeds_is_a_success(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE, request=Request(retries=2))
    stage.end("1.1", FAILED)
    stage.end("1.2")

    assert engine.is_over()
    assert engine.tally == Tally(done=1)
    assert stage.states() == {1: "done"}


def test_a_retry_comes_before_newer_commands(stage: Stage) -> None:
    stage.set_up(b"a", b"b", slots=ONE, request=Request(retries=1))
    stage.now += 5
    stage.end("1.1", FAILED)

    assert stage.executor.running == ["1.2"]


def test_with_fail_fast_nothing_starts_after_a_failure_and_what_runs_may_end(stage: Stage) -> None:
    engine = stage.set_up(b"a", b"b", b"c", fail_fast=True, in_advance=False)
    stage.end("1.1", FAILED)
    assert stage.executor.running == ["2.1"]
    assert stage.ears.notices == ["a command failed: starting no more (--fail-fast)"]

    stage.end("2.1")
    assert engine.is_over()
    assert engine.tally == Tally(done=1, failed=1)
    assert len(stage.executor.launched) == 2


def test_with_fail_fast_a_failure_that_is_retried_stops_nothing(stage: Stage) -> None:
    stage.set_up(b"a", b"b", slots=ONE, fail_fast=True, request=Request(retries=1))
    stage.end("1.1", FAILED)
    assert stage.executor.running == ["1.2"]
    assert not stage.ears.notices


def test_over_its_time_limit_a_job_gets_term_and_is_killed(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE, request=Request(timeout_s=60))
    assert engine.patience_s() == 60
    stage.wait(59)
    assert stage.executor.signals == []

    stage.wait(1)
    assert stage.executor.signals == [("1.1", signal.SIGTERM)]
    assert engine.tally == Tally(killed=1)
    assert stage.attempts() == [(1, 1, "killed", 15, stage.ears.ended[0][2])]
    assert "time limit of 1m" in str(stage.ears.ended[0][2])


def test_what_ignores_term_gets_kill_after_a_grace(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE, request=Request(timeout_s=60))
    stage.executor.ignore_signals("1.1")
    stage.wait(60)
    assert stage.executor.running == ["1.1"]
    grace = engine.patience_s()
    assert grace is not None
    assert 0 < grace <= 10

    stage.wait(grace)
    assert stage.executor.signals == [("1.1", signal.SIGTERM), ("1.1", signal.SIGKILL)]
    assert stage.attempts() == [(1, 1, "killed", 9, stage.ears.ended[0][2])]
    assert engine.is_over()


def test_a_time_limit_counts_from_each_attempts_own_start(stage: Stage) -> None:
    stage.set_up(b"a", slots=ONE, request=Request(timeout_s=60, retries=1))
    stage.wait(60)
    assert stage.executor.running == ["1.2"]
    stage.wait(59)
    assert stage.executor.running == ["1.2"]
    stage.wait(1)
    assert stage.executor.running == []


def test_very_short_jobs_are_claimed_in_advance(stage: Stage) -> None:
    stage.set_up(*[b"a"] * 9, slots=ONE)
    assert stage.executor.queued == []

    stage.run_short_jobs("1.1")
    assert stage.executor.running == ["2.1"]
    assert stage.executor.queued[0] == "3.1"
    assert stage.states()[3] == "starting"


def test_without_leave_nothing_is_claimed_in_advance(stage: Stage) -> None:
    stage.set_up(*[b"a"] * 9, slots=ONE, in_advance=False)
    stage.run_short_jobs("1.1")

    assert stage.executor.queued == []


def test_when_a_job_turns_long_those_claimed_behind_it_are_revoked(stage: Stage) -> None:
    engine = stage.set_up(*[b"a"] * 4, slots=ONE)
    stage.run_short_jobs("1.1")
    assert stage.executor.queued == ["3.1", "4.1"]
    patience = engine.patience_s()
    assert patience is not None
    assert patience == pytest.approx(QUICK_S)

    stage.wait(QUICK_S + 0.01)
    assert stage.executor.revoked == ["3.1", "4.1"]
    assert stage.executor.queued == []
    assert stage.states() == {1: "done", 2: "running", 3: "waiting", 4: "waiting"}
    assert engine.patience_s() is None

    stage.now += 5
    for key in ("2.1", "3.1", "4.1"):
        stage.end(key)
        stage.now += 5
    assert engine.is_over()
    assert engine.tally == Tally(done=4)


def test_a_revoked_attempt_does_not_count_as_a_try(stage: Stage) -> None:
    stage.set_up(b"a", b"b", b"c", slots=ONE, request=Request(retries=1))
    stage.run_short_jobs("1.1")
    stage.wait(QUICK_S + 0.01)
    assert stage.executor.revoked == ["3.1"]

    stage.now += 5
    stage.end("2.1")
    stage.end("3.1", FAILED)
    assert stage.executor.running == ["3.2"]


def test_jobs_claimed_in_advance_move_to_a_slot_that_is_free_and_come_to_rest_there(
    stage: Stage,
) -> None:
    stage.set_up(*[b"a"] * 6)
    stage.run_short_jobs("1.1", "2.1")
    assert stage.executor.queued
    moved = stage.executor.running[0]

    stage.run_short_jobs(moved)
    stage.settle()
    assert len(stage.executor.running) == 2
    assert len(stage.executor.revoked) <= 4


def test_a_full_disk_pauses_all_starts_and_then_goes_on(stage: Stage) -> None:
    stage.executor.refuse_next(errno.ENOSPC, "No space left on device")
    engine = stage.set_up(b"a", b"b", slots=ONE)
    assert stage.executor.running == []
    assert stage.ears.notices == [
        "cannot start commands for now (No space left on device): free some space; trying again"
    ]
    assert stage.ears.ended == []
    assert stage.states() == {1: "waiting"}
    assert engine.patience_s() == 1.0

    stage.wait(0.5)
    assert stage.executor.running == []
    stage.executor.refuse_next(errno.ENOSPC, "No space left on device")
    stage.wait(0.5)
    assert stage.executor.running == []
    stage.wait(1.0)
    assert stage.executor.running == ["1.1"]
    assert len(stage.ears.notices) == 1

    stage.now += 5
    stage.end("1.1")
    stage.end("2.1")
    assert engine.tally == Tally(done=2)


def test_any_other_refusal_fails_the_job_with_its_reason(stage: Stage) -> None:
    stage.executor.refuse_next(errno.EACCES, "Permission denied")
    engine = stage.set_up(b"a", b"b", slots=ONE)

    assert stage.ears.ended == [("1.1", Event.FAIL, "could not start: Permission denied", False)]
    assert stage.executor.running == ["2.1"]
    assert stage.attempts() == [(1, 1, "failed", None, "could not start: Permission denied")]
    assert engine.tally == Tally(failed=1)


def test_a_slot_that_somebody_else_holds_is_asked_for_again(stage: Stage) -> None:
    stage.executor.foreign.add("GPU-0")
    engine = stage.set_up(b"a", b"b", b"c")
    assert stage.executor.running == ["1.1"]
    assert stage.executor.launched[0].slots == (1,)
    assert stage.refusals() == ["held by another", None]
    assert engine.patience_s() == 1.0

    stage.wait(1.0)
    assert stage.executor.running == ["1.1"]
    assert engine.patience_s() == 1.0

    stage.executor.foreign.clear()
    stage.wait(1.0)
    assert stage.executor.running == ["2.1", "1.1"]
    assert stage.refusals() == [None, None]
    assert engine.patience_s() is None


def test_leases_are_taken_only_when_there_is_something_to_run(stage: Stage) -> None:
    stage.set_up(more_may_come=True)
    assert stage.executor.leased == set()

    stage.lines.at_hand.append(b"a")
    stage.settle()
    assert stage.executor.running == ["1.1"]
    stage.end("1.1")
    assert stage.executor.leased == set()


def test_an_idle_slot_is_given_back_while_others_work(stage: Stage) -> None:
    stage.set_up(b"a", b"b")
    stage.now += 5
    stage.end("2.1")

    assert stage.executor.leased == {"GPU-0"}


def test_while_draining_too_idle_slots_are_given_back(stage: Stage) -> None:
    engine = stage.set_up(b"a", b"b", b"c")
    engine.drain()
    stage.now += 5
    stage.end("2.1")

    assert stage.executor.running == ["1.1"]
    assert stage.executor.leased == {"GPU-0"}


def test_a_gpu_that_two_slots_share_is_given_back_when_both_are_idle(stage: Stage) -> None:
    stage.set_up(b"a", b"b", slots=SHARED)
    stage.now += 5
    stage.end("1.1")
    assert stage.executor.leased == {"GPU-0"}
    stage.end("2.1")
    assert stage.executor.leased == set()


def test_a_shared_gpu_is_not_given_back_while_its_other_slot_asks_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `hold` that is still on its way to the executor is answered before the release behind it."""
    on_its_way: list[Callable[[], None]] = []
    hold, release = stage.executor.hold, stage.executor.release
    engine = stage.set_up(slots=(*SHARED, Slot(2, ("1",), ("GPU-1",))), more_may_come=True)
    engine.slot_table.states[1].close(ClosedBy.GPU, "in use by somebody")
    stage.lines.at_hand.extend([b"a", b"b"])
    stage.settle()
    assert stage.executor.running == ["1.1", "2.1"]

    monkeypatch.setattr(
        stage.executor, "hold", lambda slot, **_gather: on_its_way.append(partial(hold, slot))
    )
    monkeypatch.setattr(
        stage.executor,
        "release",
        lambda slot, keys: on_its_way.append(partial(release, slot, keys)),
    )
    engine.slot_table.states[1].close(ClosedBy.GPU, None)
    stage.lines.at_hand.append(b"c")
    engine.turn()
    assert len(on_its_way) == 1

    stage.now += 5
    stage.executor.end("2.1")
    engine.turn()
    stage.executor.end("1.1")
    engine.turn()
    assert stage.executor.running == ["3.1"]

    for message in on_its_way:
        message()
    stage.lines.at_hand.append(b"d")
    engine.turn()
    assert stage.executor.running == ["4.1", "3.1"]


def test_a_closed_slot_gets_no_jobs_until_it_is_open_again(stage: Stage) -> None:
    engine = stage.set_up(more_may_come=True)
    engine.slot_table.states[0].close(ClosedBy.GPU, "in use by somebody")
    stage.lines.at_hand.extend([b"a", b"b"])
    stage.settle()
    assert [launch.slots for launch in stage.executor.launched] == [(1,)]

    engine.slot_table.states[0].close(ClosedBy.GPU, None)
    stage.settle()
    assert [launch.slots for launch in stage.executor.launched] == [(1,), (0,)]


def test_a_command_with_a_nul_byte_fails_with_the_remedy_and_the_rest_runs(stage: Stage) -> None:
    engine = stage.set_up(b"a\0b", b"c", slots=ONE)
    stage.settle()

    ((key, event, reason, retried),) = stage.ears.ended
    assert (key, event, retried) == ("1.1", Event.FAIL, False) or key == "2.1"
    assert reason
    assert "--null" in reason
    for key in stage.executor.running:
        stage.end(key)
    assert engine.is_over()
    assert engine.tally == Tally(done=1, failed=1)
    assert sorted(stage.states().values()) == ["done", "failed"]
    assert [launch.argv for launch in stage.executor.launched] == [["c"]]


def test_a_rejected_command_is_not_left_for_a_turn_that_may_never_come(stage: Stage) -> None:
    engine = stage.set_up(more_may_come=True)
    stage.lines.at_hand.append(b"a\0b")
    stage.settle()

    assert stage.ears.ended or engine.patience_s() == 0


def test_a_drain_lets_run_what_runs_and_takes_back_what_waits(stage: Stage) -> None:
    engine = stage.set_up(*[b"a"] * 9, slots=ONE)
    stage.run_short_jobs("1.1")
    engine.drain()
    stage.settle()
    assert stage.executor.running == ["2.1"]
    assert stage.executor.queued == []

    stage.end("2.1")
    assert engine.is_over()
    assert engine.tally == Tally(done=2)
    assert set(stage.states().values()) == {"done", "waiting"}


def test_while_draining_a_failure_is_not_retried(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE, request=Request(retries=3))
    engine.drain()
    stage.end("1.1", FAILED)

    assert engine.is_over()
    assert engine.tally == Tally(failed=1)


def test_killing_all_ends_every_job_with_the_reason(stage: Stage) -> None:
    engine = stage.set_up(*[b"a"] * 5, request=Request(retries=3))
    engine.kill_all("interrupted")
    stage.settle()

    assert engine.is_over()
    assert engine.tally == Tally(killed=2)
    assert [row[2:] for row in stage.attempts()] == [("killed", 9, "interrupted")] * 2


def test_killing_all_after_a_drain_ends_also_what_stood_next_in_line(stage: Stage) -> None:
    engine = stage.set_up(*[b"a"] * 9, slots=ONE)
    stage.run_short_jobs("1.1")
    engine.drain()
    engine.kill_all("interrupted")
    stage.settle()

    assert engine.is_over()
    assert stage.executor.running == stage.executor.queued == []


def test_when_the_executor_is_lost_what_nobody_knows_is_recorded_as_lost(stage: Stage) -> None:
    engine = stage.set_up(b"a", b"b")
    engine.drain()
    engine.settle({"1.1": Record(7, 8, Ending(0, 1, 2, 3)), "2.1": Record(9, 9)})

    assert engine.tally == Tally(done=1, lost=1)
    assert stage.states() == {1: "done", 2: "lost"}


def test_when_the_executor_is_lost_what_never_began_waits(stage: Stage) -> None:
    engine = stage.set_up(b"a", b"b", b"c", b"d", slots=ONE)
    stage.run_short_jobs("1.1")
    assert stage.executor.queued == ["3.1", "4.1"]
    engine.settle({"2.1": Record(7, 8)})

    assert stage.states() == {1: "done", 2: "lost", 3: "waiting", 4: "waiting"}


def test_a_log_that_cannot_be_made_fails_its_command_and_the_next_one_runs(stage: Stage) -> None:
    stage.unwritable = {"1.1", "2.1"}
    engine = stage.set_up(b"a", b"b", b"c", slots=ONE)
    assert stage.states() == {1: "failed", 2: "failed", 3: "running"}
    assert engine.tally == Tally(failed=2)


def test_the_loop_wakes_to_push_commits_to_the_disk(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE)
    stage.database.sync_due_s = lambda: 0.5  # type: ignore[method-assign]

    assert engine.patience_s() == 0.5


def test_finished_is_told_by_the_executor(stage: Stage) -> None:
    engine = stage.set_up(b"a", slots=ONE)
    stage.end("1.1")
    assert not engine.progress.finished

    engine.finish()
    stage.settle()
    assert engine.progress.finished


def test_an_end_that_comes_with_its_start_is_recorded_once(stage: Stage) -> None:
    stage.executor._script = lambda _launch: 7 << 8
    engine = stage.set_up(b"a", b"b", b"c", slots=ONE)
    stage.settle()

    assert engine.is_over()
    assert engine.tally == Tally(failed=3)
    assert stage.ears.started == ["1.1", "2.1", "3.1"]
    assert [row[3] for row in stage.attempts()] == [7 << 8] * 3


@pytest.mark.parametrize("count", [1, 7, 100])
def test_every_command_runs_exactly_once_whatever_is_claimed_in_advance(
    stage: Stage, count: int
) -> None:
    engine = stage.set_up(*(b"%d" % number for number in range(count)))
    for step in range(10_000):
        if engine.is_over():
            break
        stage.now += 0.001 if step % 17 else 0.3
        stage.settle()
        for key in stage.executor.running[: 1 + step % 2]:
            stage.end(key)

    assert engine.is_over()
    assert engine.tally == Tally(done=count)
    done = [key for key, event, _, _ in stage.ears.ended if event is Event.SUCCEED]
    assert sorted(int(key.split(".")[0]) for key in done) == list(range(1, count + 1))
    assert stage.executor.leased == set()


class TestRecovery:
    """After a crash the database and the journal are all that is left."""

    def told(self, stage: Stage, tmp_path: Path, journal: str) -> dict[int, str]:
        path = tmp_path / "journal"
        path.write_text(journal)
        recover(stage.jobs, str(path), "fe00.1234")
        stage.database.commit()
        return stage.states()

    def test_an_attempt_that_the_journal_does_not_know_never_was(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        stage.jobs.add_claimed(b"a", Request(), "0")

        assert self.told(stage, tmp_path, "") == {1: "waiting"}
        assert stage.attempts() == []

    def test_an_attempt_that_was_claimed_ahead_is_recorded_on_the_slot_that_took_it(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        stage.jobs.add_claimed(b"a", Request(), "")

        assert self.told(stage, tmp_path, 'spawn 1.1 "3" .\n') == {1: "lost"}
        slots = stage.database.execute("SELECT slots FROM job").fetchone()
        assert slots == ("3",)

    def test_an_end_that_was_not_recorded_is_recorded_now(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        for _ in range(2):
            stage.jobs.add_claimed(b"a", Request(), "0")
        journal = "spawn 1.1 .\nend 1.1 0 5 1 9 .\nend 2.1 1792 5 1 9 .\n"

        assert self.told(stage, tmp_path, journal) == {1: "done", 2: "failed"}
        assert [row[3] for row in stage.attempts()] == [0, 1792]

    def test_an_end_that_nobody_saw_or_that_our_own_death_brought_is_lost(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        for _ in range(2):
            stage.jobs.add_claimed(b"a", Request(), "0")
        journal = "spawn 1.1 .\nspawn 2.1 .\nend 2.1 9 5 1 9 .\n"

        assert self.told(stage, tmp_path, journal) == {1: "lost", 2: "lost"}

    def test_a_running_attempt_whose_journal_was_lost_with_the_power_is_lost(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        attempt = stage.jobs.add_claimed(b"a", Request(), "0")
        stage.jobs.mark_running(attempt.job, 77, 1)

        assert self.told(stage, tmp_path, "") == {1: "lost"}

    def test_what_was_over_stays_as_it_was(self, stage: Stage, tmp_path: Path) -> None:
        engine = stage.set_up(b"a", slots=ONE)
        stage.end("1.1")

        assert engine.is_over()
        assert self.told(stage, tmp_path, "spawn 1.1 .\n") == {1: "done"}
        assert stage.jobs.live() == []
        assert Attempt(1, 1).key == stage.ears.ended[0][0]
        assert stage.jobs.counts() == {State.DONE: 1}
