"""An engine over what an earlier one left: nothing is lost, nothing runs twice, no GPU is given twice."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker.core.lifecycle import State, is_final
from stoker.core.planner import Start
from stoker.core.slot import Slot
from stoker.engine.adoption import find_node
from stoker.engine.attempt_starts import AttemptStarts
from stoker.engine.placement import find_slots
from stoker.engine.queue import QueueEntry
from stoker.engine.slots import SlotTable
from stoker.executors.contract import (
    Ended,
    Executor,
    Launch,
    Lost,
    Placed,
    Refused,
    Report,
    Restore,
    Revoked,
    Started,
    Synced,
)
from stoker.store.database import FullDiskError
from stoker.testing.executor import FakeExecutor
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

START = Started("1.1", 77, 5_000_000, 1000.0)
END = Ended("1.1", 7 << 8, 6_000_000, 10, 20)
LOST = Lost("1.1", "nobody watched it")
KNOWN = Synced(frozenset({"1.1"}), False)
UNKNOWN = Synced(frozenset(), False)


def begin(make_harness: MakeHarness, state: str) -> Harness:
    """A harness in which job 1 was live when its daemon died; the next one hears only what it is told."""
    harness = make_harness(gpus=1)
    harness.add("train")
    if state == "starting":
        harness.database.write("UPDATE job SET state = 'starting', pid = NULL WHERE id = 1", ())
        harness.database.commit()
    harness.stop()
    harness.executor.close()
    harness.executor = FakeExecutor(lambda: harness.now, persistent=True)
    harness.executor.observe()
    harness.begin()
    return harness


def tell(harness: Harness, *reports: Report) -> None:
    """Let the executor say this, all at once."""
    harness.executor.report(*reports)
    harness.engine.turn()


class TestClaimedAhead:
    """An attempt whose slot the supervisor alone knows, and which was killed before it recorded a process."""

    @pytest.fixture
    def harness(self, make_harness: MakeHarness) -> Harness:
        harness = begin(make_harness, "starting")
        harness.database.write("UPDATE job SET slots = '' WHERE id = 1", ())
        harness.database.commit()
        harness.stop()
        harness.begin()
        return harness

    def test_an_adopted_attempt_keeps_its_slot(self, harness: Harness) -> None:
        tell(harness, Placed("1.1", "0"), KNOWN)

        (place,) = harness.engine.slot_table.states
        assert place.current is not None
        assert place.current.key == "1.1"

    @pytest.mark.parametrize("label", ["0", "7"], ids=["a slot of today", "one that is gone"])
    def test_a_lost_attempt_is_recorded_on_the_slot_that_took_it(
        self, harness: Harness, label: str
    ) -> None:
        tell(harness, Placed("1.1", label), LOST, KNOWN)

        recorded = harness.database.execute("SELECT state, slots FROM job").fetchall()
        assert recorded == [("lost", label)]


class TestOneAttempt:
    """What the executor may say of an attempt that was live, in every order that it may say it."""

    @pytest.mark.parametrize("state", ["starting", "running"])
    @pytest.mark.parametrize(
        "reports",
        [
            order
            for order in itertools.permutations((START, END, KNOWN))
            if order.index(START) < order.index(END)
        ],
    )
    @pytest.mark.parametrize("at_once", [True, False])
    def test_an_end_is_recorded_once_and_acknowledged(
        self, make_harness: MakeHarness, state: str, reports: tuple[Report, ...], at_once: bool
    ) -> None:
        harness = begin(make_harness, state)
        for part in [reports] if at_once else [(report,) for report in reports]:
            tell(harness, *part)

        assert harness.states() == {1: "failed"}
        row = harness.database.execute("SELECT status, ended_at_us, attempt FROM job").fetchone()
        assert row == (7 << 8, 6_000_000, 1)
        assert harness.executor.acknowledged == ["1.1"]
        assert not harness.engine.slot_table.running
        assert harness.started() == []

    @pytest.mark.parametrize("state", ["starting", "running"])
    @pytest.mark.parametrize("reports", [(END, KNOWN), (KNOWN, END)])
    def test_an_end_without_a_reported_start_is_recorded(
        self, make_harness: MakeHarness, state: str, reports: tuple[Report, ...]
    ) -> None:
        harness = begin(make_harness, state)
        tell(harness, *reports)

        assert harness.states() == {1: "failed"}
        assert harness.executor.acknowledged == ["1.1"]

    @pytest.mark.parametrize("state", ["starting", "running"])
    @pytest.mark.parametrize(
        "reports", [(LOST, KNOWN), (KNOWN, LOST), (START, LOST, KNOWN), (START, KNOWN, LOST)]
    )
    def test_a_lost_attempt_is_recorded_as_lost(
        self, make_harness: MakeHarness, state: str, reports: tuple[Report, ...]
    ) -> None:
        harness = begin(make_harness, state)
        tell(harness, *reports)

        assert harness.attempts(1) == [(1, "lost", "nobody watched it")]
        assert harness.executor.acknowledged == ["1.1"]

    @pytest.mark.parametrize("reports", [(START, KNOWN), (KNOWN, START)])
    @pytest.mark.parametrize("state", ["starting", "running"])
    def test_a_running_attempt_goes_on_and_its_end_is_recorded(
        self, make_harness: MakeHarness, state: str, reports: tuple[Report, ...]
    ) -> None:
        harness = begin(make_harness, state)
        tell(harness, *reports)
        assert harness.states() == {1: "running"}
        assert harness.executor.acknowledged == []
        assert harness.column("pid", 1) == 77 or state == "running"

        tell(harness, END)
        assert harness.states() == {1: "failed"}

    def test_an_attempt_unknown_to_the_executor_starts_again(
        self, make_harness: MakeHarness
    ) -> None:
        harness = begin(make_harness, "starting")
        tell(harness, UNKNOWN)
        assert harness.states() == {1: "waiting"}

        harness.settle()
        assert harness.states() == {1: "running"}
        assert harness.executor.running == ["1.1"]

    def test_a_started_attempt_unknown_to_the_executor_is_lost(
        self, make_harness: MakeHarness
    ) -> None:
        harness = begin(make_harness, "running")
        tell(harness, UNKNOWN)
        harness.settle()

        assert harness.attempts(1) == [(1, "lost", "the supervisor does not know how it ended")]
        assert harness.executor.running == []

    def test_an_attempt_keeps_its_slot_until_the_executor_reports(
        self, make_harness: MakeHarness
    ) -> None:
        harness = begin(make_harness, "running")
        harness.add("b")

        assert harness.started() == []


def test_reports_of_unknown_attempts_are_acknowledged(harness: Harness) -> None:
    harness.settle()
    harness.executor.report(
        Started("9.9", 7, 8, 9.0),
        Ended("9.9", 0, 1, 2, 3),
        Ended("9.8", 0, 1, 2, 3),
        Lost("9.7", "nobody watched it"),
        Refused("9.6", 13, "Permission denied"),
        Revoked("9.5"),
    )
    harness.settle()

    assert sorted(harness.executor.acknowledged) == ["9.6", "9.7", "9.8", "9.9"]
    assert harness.states() == {}


def test_ends_are_acknowledged_after_they_are_committed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add("a")
    committed = []
    acknowledge = harness.executor.acknowledge

    def look(keys: list[str]) -> None:
        committed.append(not harness.database.connection.in_transaction and harness.states())
        acknowledge(keys)

    monkeypatch.setattr(harness.executor, "acknowledge", look)
    harness.end("1.1")

    assert committed == [{1: "done"}]


def test_an_end_between_two_daemons_is_recorded_by_the_next(harness: Harness) -> None:
    harness.add("a", "b", "c")
    harness.stop()
    harness.executor.end("1.1", 3 << 8)
    harness.executor.lose_client()
    harness.begin()
    harness.settle()

    assert harness.states() == {1: "failed", 2: "running", 3: "running"}
    assert harness.column("status", 1) == 3 << 8
    assert harness.started() == ["1.1", "2.1", "3.1"]


def test_an_attempt_claimed_ahead_that_never_began_starts_once(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 4)
    harness.run_short_jobs("1.1")
    assert harness.executor.queued == ["3.1", "4.1"]
    harness.restart()
    harness.settle()
    assert harness.states() == {1: "done", 2: "running", 3: "waiting", 4: "waiting"}

    harness.now += 5
    for key in ("2.1", "3.1", "4.1"):
        harness.end(key)
        harness.now += 5
    assert set(harness.states().values()) == {"done"}


def test_a_follower_keeps_the_slot_when_its_predecessor_ends(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 4)
    harness.run_short_jobs("1.1")
    harness.executor.end("2.1")
    assert harness.executor.running == ["3.1"]
    harness.restart()
    harness.settle()

    assert harness.executor.running == ["3.1"]
    assert harness.states() == {1: "done", 2: "done", 3: "running", 4: "waiting"}


def test_a_gpu_is_released_after_its_adopted_attempt_ends(harness: Harness) -> None:
    harness.add("a")
    harness.restart()
    harness.settle()
    assert harness.executor.leased == {"GPU-0"}
    harness.end("1.1")

    assert harness.executor.leased == set()


def test_without_supervisor_a_gpu_is_not_reused_while_its_job_lives(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    harness.restart(supervisor_too=True)
    harness.settle()
    assert harness.executor.running == ["1.1"]
    harness.wait(5)
    assert harness.executor.running == ["1.1"]

    harness.end("1.1")
    harness.wait(1)
    assert harness.executor.running == ["2.1"]


def test_attempts_that_a_dead_supervisor_had_not_started_start_once(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 4)
    harness.run_short_jobs("1.1")
    assert harness.executor.queued == ["3.1", "4.1"]
    harness.lose_supervisor()
    assert harness.states() == {1: "done", 2: "running", 3: "waiting", 4: "waiting"}

    harness.end("2.1")
    harness.wait(1)
    harness.now += 5
    for key in ("3.1", "4.1"):
        harness.end(key)
        harness.now += 5
    assert set(harness.states().values()) == {"done"}


def test_new_slots_are_not_used_while_an_old_job_has_their_gpus(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=(Slot(0, ("0", "1"), ("GPU-0", "GPU-1")),))
    harness.add("a")
    harness.restart(gpus=3)
    harness.add("b", "c")
    assert sorted(harness.executor.running) == ["1.1", "2.1"]
    assert harness.executor.launched[-1].slots == (2,)

    harness.now += 5
    harness.end("1.1")
    assert sorted(harness.executor.running) == ["2.1", "3.1"]


def test_a_job_on_a_gpu_that_left_the_queue_goes_on(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=3)
    harness.add("big", gpus=3)
    harness.restart(gpus=2)
    harness.settle()
    assert harness.executor.running == ["1.1"]
    assert [each.label for each in harness.engine.slot_table.running.values()] == ["0,1"]

    harness.end("1.1")
    assert harness.states() == {1: "done"}


@pytest.mark.parametrize(
    ("label", "indices"),
    [
        (None, ()),
        ("", ()),
        ("0", (0,)),
        ("1", (2,)),
        ("2+3", (3,)),
        ("2", (3,)),
        ("0,1", (0, 2)),
        ("0,0", (0, 1)),
        ("0+1", (0, 1, 2)),
        ("9", ()),
        ("9,1", (2,)),
    ],
)
def test_a_label_names_the_slots_that_have_its_gpus_today(
    label: str | None, indices: tuple[int, ...]
) -> None:
    names = (("0",), ("0",), ("1",), ("2", "3"))
    slot_table = SlotTable(tuple(Slot(n, gpus, gpus) for n, gpus in enumerate(names)))

    assert tuple(slot.index for slot in find_slots(slot_table, label)) == indices


@pytest.mark.parametrize(
    ("label", "indices", "node"),
    [
        ("h1/0", (0,), "h1"),
        ("0", (0,), ""),
        ("h2/0", (2,), "h2"),
        ("h2/0,h2/1", (2, 3), "h2"),
        ("h2/2+3", (4,), "h2"),
        ("h2/3", (4,), "h2"),
        ("h2/", (), "h2"),
        ("h2/9", (), "h2"),
        ("h3/0", (), "h3"),
        ("", (), ""),
        (None, (), ""),
    ],
)
def test_a_label_with_a_node_names_slots_of_that_node_and_one_without_those_of_this_machine(
    label: str | None, indices: tuple[int, ...], node: str
) -> None:
    names = (
        ("h1", ("0",)),
        ("h1", ("1",)),
        ("h2", ("0",)),
        ("h2", ("1",)),
        ("h2", ("2", "3")),
    )
    slot_table = SlotTable(
        tuple(Slot(n, gpus, gpus, node) for n, (node, gpus) in enumerate(names)), head="h1"
    )

    assert tuple(slot.index for slot in find_slots(slot_table, label)) == indices
    assert find_node(slot_table, label) == node


def test_a_label_from_a_cluster_that_this_machine_has_left_names_its_own_slots_only() -> None:
    slot_table = SlotTable((Slot(0, ("0",), ("0",)),), head="h1")

    assert [slot.index for slot in find_slots(slot_table, "h1/0")] == [0]
    assert find_slots(slot_table, "h2/0") == ()


class Crash(BaseException):
    """The daemon dies here."""


class Life(RuleBasedStateMachine):
    """Jobs come, end and are killed; the daemon dies wherever it may; at the end all is as promised."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.starts: Counter[str] = Counter()
        self.retries: dict[int, int] = {}
        self.killed: dict[int, int] = {}
        self.by_hand: Counter[int] = Counter()
        self.was_full = False
        self.harness = Harness(Path(self.folder.name), gpus=3, cpu_places=1, script=self.on_start)
        self.harness.config("brake", "0")  # refused starts in a row would pause the queue

    def on_start(self, launch: Launch) -> int | None:
        self.starts[launch.key] += 1
        assert self.starts[launch.key] == 1, f"{launch.key} was started twice"
        job = int(launch.key.split(".")[0])
        return {0: 0, 1: FAILED}.get(hash_of(launch.key) % 5) if job % 4 == 0 else None

    @rule(count=st.integers(1, 6), gpus=st.integers(0, 3), retries=st.integers(0, 2))
    def add(self, count: int, gpus: int, retries: int) -> None:
        with self.unless_the_disk_is_full():
            added = self.harness.add(*["a"] * count, gpus=gpus, retries=retries)
            self.retries |= dict.fromkeys(range(added.first, added.last + 1), retries)

    @precondition(lambda self: self.harness.executor.running)
    @rule(
        data=st.data(),
        how=st.sampled_from([0, 0, FAILED, 9, None]),
        seconds=st.sampled_from([0.001, 5.0]),
        heard=st.booleans(),
    )
    def end(self, data: st.DataObject, how: int | None, seconds: float, heard: bool) -> None:
        self.harness.now += seconds
        key = data.draw(st.sampled_from(self.harness.executor.running))
        if how is None:
            self.harness.executor.lose(key)
        else:
            self.harness.executor.end(key, how)
        if heard:
            self.harness.settle()

    @precondition(lambda self: self.retries)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.retries)))
        with self.unless_the_disk_is_full():
            # What was ordered already may still start, and is ended then.
            for ended in self.harness.kill(str(job), grace_s=0).ids:
                self.killed.setdefault(ended, self.tries()[ended] + 1)

    @precondition(lambda self: self.retries)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.retries)))
        with self.unless_the_disk_is_full():
            for again in self.harness.retry(str(job)).ids:
                self.by_hand[again] += 1 + self.retries[again]
                self.killed.pop(again, None)

    @rule(errno=st.sampled_from([28, 13]))
    def refuse_a_start(self, errno: int) -> None:
        self.harness.executor.refuse_next(errno, "refused")

    @rule(is_full=st.booleans())
    def fill_or_empty_the_disk(self, is_full: bool) -> None:
        self.harness.disk_is_full = is_full
        self.was_full = self.was_full or is_full

    @contextlib.contextmanager
    def unless_the_disk_is_full(self) -> Iterator[None]:
        try:
            yield
        except FullDiskError:
            assert self.was_full

    @rule()
    def pass_time(self) -> None:
        self.harness.wait(1.5)

    @rule(supervisor_too=st.booleans())
    def restart(self, supervisor_too: bool) -> None:
        self.harness.restart(supervisor_too=supervisor_too)

    @rule()
    def lose_the_supervisor(self) -> None:
        self.harness.lose_supervisor()

    @rule(
        point=st.sampled_from(["commit", "committed", "acknowledge", "launch", "launched", "hold"]),
        turns=st.integers(1, 3),
    )
    def die_within_a_turn(self, point: str, turns: int) -> None:
        harness = self.harness
        match point:
            case "commit":
                harness.database.try_commit = die  # type: ignore[method-assign]
            case "committed":
                harness.database.try_commit = then_die(  # type: ignore[method-assign]
                    harness.database.try_commit
                )
            case "launched":
                harness.executor.launch = then_die(harness.executor.launch)  # type: ignore[method-assign]
            case _:
                setattr(harness.executor, point, die)
        try:
            for _ in range(turns):
                harness.engine.turn()
        except Crash:
            pass
        for name in ("acknowledge", "launch", "hold"):
            vars(harness.executor).pop(name, None)
        harness.restart()

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.harness.close()
            self.folder.cleanup()

    def finish(self) -> None:
        """With nothing new coming, everything comes to its end, and is accounted for."""
        harness = self.harness
        harness.disk_is_full = False
        harness.settle()
        for _ in range(400):
            if not harness.engine.slot_table.running and not len(harness.engine.queue):
                break
            for key in harness.executor.running[:1]:
                harness.executor.end(key)
            harness.wait(1.5)
        harness.wait(1.5)
        states = {job: State(state) for job, state in harness.states().items()}
        assert set(states) == set(self.retries), "a job was lost"
        assert all(map(is_final, states.values())), states
        tries = self.tries()
        for job, state in states.items():
            assert tries[job] <= 1 + self.retries[job] + self.by_hand[job]
            assert tries[job] or state is not State.DONE
            if job in self.killed:
                assert state is not State.DONE
                assert tries[job] <= self.killed[job]
        assert harness.executor.leased == set()
        assert not harness.executor._history, "an end was not acknowledged"
        assert harness.engine.patience_s() is None
        harness.check()

    def tries(self) -> Counter[int]:
        """How often each job was started."""
        return Counter(int(key.split(".")[0]) for key in self.starts)


def hash_of(key: str) -> int:
    return sum(key.encode())


def die(*_words: Any, **_options: Any) -> Any:
    raise Crash


def then_die(call: Callable[..., Any]) -> Callable[..., Any]:
    def both(*words: Any) -> None:
        call(*words)
        raise Crash

    return both


class LaunchingStarts(AttemptStarts, kw_only=True, eq=False):
    """Launches each job when it is claimed, before the claim is committed."""

    executor: Executor

    def claim(self, entry: QueueEntry, start: Start, now: float) -> Launch | Restore | None:
        launch = AttemptStarts.claim(self, entry, start, now)
        self.executor.launch([launch] if isinstance(launch, Launch) else [])
        return launch


class CarelessLife(Life):
    """The same story with an engine that starts first, and saves what it has started afterwards."""

    def __init__(self) -> None:
        super().__init__()
        begin = self.harness.begin

        def begin_carelessly() -> None:
            begin()
            planner, executor = self.harness.engine.planner, self.harness.executor
            fields = {
                name: getattr(planner.starts, name) for name in AttemptStarts.__struct_fields__
            }
            planner.starts = LaunchingStarts(executor=executor, **fields)

        self.harness.begin = begin_carelessly  # type: ignore[method-assign]
        self.harness.restart()


steady = settings(deadline=None, derandomize=True, max_examples=80, stateful_step_count=25)
TestLife = Life.TestCase
TestLife.settings = steady


def test_an_engine_that_starts_before_it_commits_is_caught() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CarelessLife, settings=settings(steady, phases=[Phase.generate]))
