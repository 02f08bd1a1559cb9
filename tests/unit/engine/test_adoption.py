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
from stoker.core.slot import Slot
from stoker.engine.adopt import find_node
from stoker.engine.board import Board
from stoker.engine.placing import find_slots
from stoker.executors.contract import (
    Ended,
    Launch,
    Lost,
    Placed,
    Refused,
    Report,
    Revoked,
    Started,
    Synced,
)
from stoker.store.database import FullDiskError
from stoker.testing.executor import FakeExecutor
from unit.engine.world import FAILED, MakeWorld, World

START = Started("1.1", 77, 5_000_000, 1000.0)
END = Ended("1.1", 7 << 8, 6_000_000, 10, 20)
LOST = Lost("1.1", "nobody watched it")
KNOWN = Synced(frozenset({"1.1"}), False)
UNKNOWN = Synced(frozenset(), False)


def begin(make_world: MakeWorld, state: str) -> World:
    """A world in which job 1 was live when its daemon died; the next one hears only what it is told."""
    world = make_world(gpus=1)
    world.add("train")
    if state == "starting":
        world.database.write("UPDATE job SET state = 'starting', pid = NULL WHERE id = 1", ())
        world.database.commit()
    world.stop()
    world.executor.close()
    world.executor = FakeExecutor(lambda: world.now, kept=True)
    world.executor.observe()
    world.begin()
    return world


def tell(world: World, *reports: Report) -> None:
    """Let the executor say this, all at once."""
    world.executor.say(*reports)
    world.engine.turn()


class TestClaimedAhead:
    """An attempt whose slot the supervisor alone knows, and which was killed before it recorded a process."""

    @pytest.fixture
    def world(self, make_world: MakeWorld) -> World:
        world = begin(make_world, "starting")
        world.database.write("UPDATE job SET slots = '' WHERE id = 1", ())
        world.database.commit()
        world.stop()
        world.begin()
        return world

    def test_what_may_still_run_keeps_its_slot(self, world: World) -> None:
        tell(world, Placed("1.1", "0"), KNOWN)

        (place,) = world.engine.board.places
        assert place.current is not None
        assert place.current.key == "1.1"

    @pytest.mark.parametrize("label", ["0", "7"], ids=["a slot of today", "one that is gone"])
    def test_a_lost_attempt_is_recorded_on_the_slot_that_took_it(
        self, world: World, label: str
    ) -> None:
        tell(world, Placed("1.1", label), LOST, KNOWN)

        recorded = world.database.execute("SELECT state, slots FROM job").fetchall()
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
        self, make_world: MakeWorld, state: str, reports: tuple[Report, ...], at_once: bool
    ) -> None:
        world = begin(make_world, state)
        for part in [reports] if at_once else [(report,) for report in reports]:
            tell(world, *part)

        assert world.states() == {1: "failed"}
        row = world.database.execute("SELECT status, ended_at_us, attempt FROM job").fetchone()
        assert row == (7 << 8, 6_000_000, 1)
        assert world.executor.acknowledged == ["1.1"]
        assert not world.engine.board.running
        assert world.started() == []

    @pytest.mark.parametrize("state", ["starting", "running"])
    @pytest.mark.parametrize("reports", [(END, KNOWN), (KNOWN, END)])
    def test_an_end_whose_start_is_not_told_is_an_end(
        self, make_world: MakeWorld, state: str, reports: tuple[Report, ...]
    ) -> None:
        world = begin(make_world, state)
        tell(world, *reports)

        assert world.states() == {1: "failed"}
        assert world.executor.acknowledged == ["1.1"]

    @pytest.mark.parametrize("state", ["starting", "running"])
    @pytest.mark.parametrize(
        "reports", [(LOST, KNOWN), (KNOWN, LOST), (START, LOST, KNOWN), (START, KNOWN, LOST)]
    )
    def test_what_was_lost_is_said_to_be_lost(
        self, make_world: MakeWorld, state: str, reports: tuple[Report, ...]
    ) -> None:
        world = begin(make_world, state)
        tell(world, *reports)

        assert world.attempts(1) == [(1, "lost", "nobody watched it")]
        assert world.executor.acknowledged == ["1.1"]

    @pytest.mark.parametrize("reports", [(START, KNOWN), (KNOWN, START)])
    @pytest.mark.parametrize("state", ["starting", "running"])
    def test_what_runs_runs_on_and_its_end_is_heard_later(
        self, make_world: MakeWorld, state: str, reports: tuple[Report, ...]
    ) -> None:
        world = begin(make_world, state)
        tell(world, *reports)
        assert world.states() == {1: "running"}
        assert world.executor.acknowledged == []
        assert world.column("pid", 1) == 77 or state == "running"

        tell(world, END)
        assert world.states() == {1: "failed"}

    def test_what_the_executor_does_not_know_never_began_and_starts_now(
        self, make_world: MakeWorld
    ) -> None:
        world = begin(make_world, "starting")
        tell(world, UNKNOWN)
        assert world.states() == {1: "waiting"}

        world.settle()
        assert world.states() == {1: "running"}
        assert world.executor.running == ["1.1"]

    def test_what_ran_and_is_not_known_any_more_is_lost_and_does_not_run_again(
        self, make_world: MakeWorld
    ) -> None:
        world = begin(make_world, "running")
        tell(world, UNKNOWN)
        world.settle()

        assert world.attempts(1) == [(1, "lost", "nobody knows what became of it")]
        assert world.executor.running == []

    def test_until_the_executor_has_spoken_it_keeps_its_slot(self, make_world: MakeWorld) -> None:
        world = begin(make_world, "running")
        world.add("b")

        assert world.started() == []


def test_what_nobody_knows_is_ignored_and_acknowledged(world: World) -> None:
    world.settle()
    world.executor.say(
        Started("9.9", 7, 8, 9.0),
        Ended("9.9", 0, 1, 2, 3),
        Ended("9.8", 0, 1, 2, 3),
        Lost("9.7", "nobody watched it"),
        Refused("9.6", 13, "Permission denied"),
        Revoked("9.5"),
    )
    world.settle()

    assert sorted(world.executor.acknowledged) == ["9.6", "9.7", "9.8", "9.9"]
    assert world.states() == {}


def test_ends_are_acknowledged_after_they_are_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("a")
    committed = []
    acknowledge = world.executor.acknowledge

    def look(keys: list[str]) -> None:
        committed.append(not world.database.connection.in_transaction and world.states())
        acknowledge(keys)

    monkeypatch.setattr(world.executor, "acknowledge", look)
    world.end("1.1")

    assert committed == [{1: "done"}]


def test_an_end_between_two_daemons_is_recorded_by_the_next(world: World) -> None:
    world.add("a", "b", "c")
    world.stop()
    world.executor.end("1.1", 3 << 8)
    world.executor.lose_client()
    world.begin()
    world.settle()

    assert world.states() == {1: "failed", 2: "running", 3: "running"}
    assert world.column("status", 1) == 3 << 8
    assert world.started() == ["1.1", "2.1", "3.1"]


def test_what_stood_next_in_line_and_never_began_starts_once(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 4)
    world.run_short_jobs("1.1")
    assert world.executor.queued == ["3.1", "4.1"]
    world.restart()
    world.settle()
    assert world.states() == {1: "done", 2: "running", 3: "waiting", 4: "waiting"}

    world.now += 5
    for key in ("2.1", "3.1", "4.1"):
        world.end(key)
        world.now += 5
    assert set(world.states().values()) == {"done"}


def test_what_followed_another_keeps_the_slot_when_that_one_has_ended(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 4)
    world.run_short_jobs("1.1")
    world.executor.end("2.1")
    assert world.executor.running == ["3.1"]
    world.restart()
    world.settle()

    assert world.executor.running == ["3.1"]
    assert world.states() == {1: "done", 2: "done", 3: "running", 4: "waiting"}


def test_a_gpu_is_given_back_when_what_was_adopted_on_it_has_ended(world: World) -> None:
    world.add("a")
    world.restart()
    world.settle()
    assert world.executor.leased == {"GPU-0"}
    world.end("1.1")

    assert world.executor.leased == set()


def test_with_the_shepherd_gone_too_a_gpu_is_not_given_away_while_its_job_lives(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    world.restart(shepherd_too=True)
    world.settle()
    assert world.executor.running == ["1.1"]
    world.wait(5)
    assert world.executor.running == ["1.1"]

    world.end("1.1")
    world.wait(1)
    assert world.executor.running == ["2.1"]


def test_when_only_the_shepherd_dies_what_it_had_not_started_starts_once(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 4)
    world.run_short_jobs("1.1")
    assert world.executor.queued == ["3.1", "4.1"]
    world.lose_shepherd()
    assert world.states() == {1: "done", 2: "running", 3: "waiting", 4: "waiting"}

    world.end("2.1")
    world.wait(1)
    world.now += 5
    for key in ("3.1", "4.1"):
        world.end(key)
        world.now += 5
    assert set(world.states().values()) == {"done"}


def test_slots_cut_anew_are_not_given_away_while_an_old_job_has_their_gpus(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=(Slot(0, ("0", "1"), ("GPU-0", "GPU-1")),))
    world.add("a")
    world.restart(gpus=3)
    world.add("b", "c")
    assert sorted(world.executor.running) == ["1.1", "2.1"]
    assert world.executor.launched[-1].slots == (2,)

    world.now += 5
    world.end("1.1")
    assert sorted(world.executor.running) == ["2.1", "3.1"]


def test_a_job_on_a_gpu_that_is_no_longer_ours_goes_on(make_world: MakeWorld) -> None:
    world = make_world(gpus=3)
    world.add("big", gpus=3)
    world.restart(gpus=2)
    world.settle()
    assert world.executor.running == ["1.1"]
    assert [each.label for each in world.engine.board.running.values()] == ["0,1"]

    world.end("1.1")
    assert world.states() == {1: "done"}


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
    board = Board(tuple(Slot(n, gpus, gpus) for n, gpus in enumerate(names)))

    assert tuple(slot.index for slot in find_slots(board, label)) == indices


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
    board = Board(
        tuple(Slot(n, gpus, gpus, node) for n, (node, gpus) in enumerate(names)), head="h1"
    )

    assert tuple(slot.index for slot in find_slots(board, label)) == indices
    assert find_node(board, label) == node


def test_a_label_from_a_cluster_that_this_machine_has_left_names_its_own_slots_only() -> None:
    board = Board((Slot(0, ("0",), ("0",)),), head="h1")

    assert [slot.index for slot in find_slots(board, "h1/0")] == [0]
    assert find_slots(board, "h2/0") == ()


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
        self.world = World(Path(self.folder.name), gpus=3, cpu_places=1, script=self.on_start)

    def on_start(self, launch: Launch) -> int | None:
        self.starts[launch.key] += 1
        assert self.starts[launch.key] == 1, f"{launch.key} was started twice"
        job = int(launch.key.split(".")[0])
        return {0: 0, 1: FAILED}.get(hash_of(launch.key) % 5) if job % 4 == 0 else None

    @rule(count=st.integers(1, 6), gpus=st.integers(0, 3), retries=st.integers(0, 2))
    def add(self, count: int, gpus: int, retries: int) -> None:
        with self.unless_the_disk_is_full():
            added = self.world.add(*["a"] * count, gpus=gpus, retries=retries)
            self.retries |= dict.fromkeys(range(added.first, added.last + 1), retries)

    @precondition(lambda self: self.world.executor.running)
    @rule(
        data=st.data(),
        how=st.sampled_from([0, 0, FAILED, 9, None]),
        seconds=st.sampled_from([0.001, 5.0]),
        heard=st.booleans(),
    )
    def end(self, data: st.DataObject, how: int | None, seconds: float, heard: bool) -> None:
        self.world.now += seconds
        key = data.draw(st.sampled_from(self.world.executor.running))
        if how is None:
            self.world.executor.lose(key)
        else:
            self.world.executor.end(key, how)
        if heard:
            self.world.settle()

    @precondition(lambda self: self.retries)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.retries)))
        with self.unless_the_disk_is_full():
            # What was ordered already may still start, and is ended then.
            for ended in self.world.kill(str(job), grace_s=0).ids:
                self.killed.setdefault(ended, self.tries()[ended] + 1)

    @precondition(lambda self: self.retries)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.retries)))
        with self.unless_the_disk_is_full():
            for again in self.world.retry(str(job)).ids:
                self.by_hand[again] += 1 + self.retries[again]
                self.killed.pop(again, None)

    @rule(errno=st.sampled_from([28, 13]))
    def refuse_a_start(self, errno: int) -> None:
        self.world.executor.refuse_next(errno, "refused")

    @rule(is_full=st.booleans())
    def fill_or_empty_the_disk(self, is_full: bool) -> None:
        self.world.disk_is_full = is_full
        self.was_full = self.was_full or is_full

    @contextlib.contextmanager
    def unless_the_disk_is_full(self) -> Iterator[None]:
        try:
            yield
        except FullDiskError:
            assert self.was_full

    @rule()
    def pass_time(self) -> None:
        self.world.wait(1.5)

    @rule(shepherd_too=st.booleans())
    def restart(self, shepherd_too: bool) -> None:
        self.world.restart(shepherd_too=shepherd_too)

    @rule()
    def lose_the_shepherd(self) -> None:
        self.world.lose_shepherd()

    @rule(
        point=st.sampled_from(["commit", "committed", "acknowledge", "launch", "launched", "hold"]),
        turns=st.integers(1, 3),
    )
    def die_within_a_turn(self, point: str, turns: int) -> None:
        world = self.world
        match point:
            case "commit":
                world.database.try_commit = die  # type: ignore[method-assign]
            case "committed":
                world.database.try_commit = then_die(  # type: ignore[method-assign]
                    world.database.try_commit
                )
            case "launched":
                world.executor.launch = then_die(world.executor.launch)  # type: ignore[method-assign]
            case _:
                setattr(world.executor, point, die)
        try:
            for _ in range(turns):
                world.engine.turn()
        except Crash:
            pass
        for name in ("acknowledge", "launch", "hold"):
            vars(world.executor).pop(name, None)
        world.restart()

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.world.close()
            self.folder.cleanup()

    def finish(self) -> None:
        """With nothing new coming, everything comes to its end, and is accounted for."""
        world = self.world
        world.disk_is_full = False
        world.settle()
        for _ in range(400):
            if not world.engine.board.running and not len(world.engine.queue):
                break
            for key in world.executor.running[:1]:
                world.executor.end(key)
            world.wait(1.5)
        world.wait(1.5)
        states = {job: State(state) for job, state in world.states().items()}
        assert set(states) == set(self.retries), "a job was lost"
        assert all(map(is_final, states.values())), states
        tries = self.tries()
        for job, state in states.items():
            assert tries[job] <= 1 + self.retries[job] + self.by_hand[job]
            assert tries[job] or state is not State.DONE
            if job in self.killed:
                assert state is not State.DONE
                assert tries[job] <= self.killed[job]
        assert world.executor.leased == set()
        assert not world.executor._stories, "an end was not acknowledged"
        assert world.engine.patience_s() is None
        world.check()

    def tries(self) -> Counter[int]:
        """How often each job was started."""
        return Counter(int(key.split(".")[0]) for key in self.starts)


def hash_of(key: str) -> int:
    return sum(key.encode())


def die(*_words: Any) -> Any:
    raise Crash


def then_die(call: Callable[..., Any]) -> Callable[..., Any]:
    def both(*words: Any) -> None:
        call(*words)
        raise Crash

    return both


class CarelessLife(Life):
    """The same story with an engine that starts first, and saves what it has started afterwards."""

    def __init__(self) -> None:
        super().__init__()
        begin = self.world.begin

        def begin_carelessly() -> None:
            begin()
            engine, executor = self.world.engine, self.world.executor
            claim = engine._claim

            def claim_and_launch(*words: Any) -> Launch | None:
                launch = claim(*words)
                executor.launch([launch] if launch else [])
                return launch

            engine._claim = claim_and_launch  # type: ignore[assignment,method-assign]

        self.world.begin = begin_carelessly  # type: ignore[method-assign]
        self.world.restart()


steady = settings(deadline=None, derandomize=True, max_examples=80, stateful_step_count=25)
TestLife = Life.TestCase
TestLife.settings = steady


def test_an_engine_that_starts_before_it_saves_is_caught() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CarelessLife, settings=settings(steady, phases=[Phase.generate]))
