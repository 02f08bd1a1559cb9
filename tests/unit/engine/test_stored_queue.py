"""The daemon's queue on its engine: what starts when, and what becomes of it."""

from __future__ import annotations

import base64
import errno
import signal

import pytest

from stoker.core.slot import Slot
from stoker.engine.board import QUICK_S
from stoker.engine.service.add import add
from stoker.wire import Base64
from unit.engine.world import FAILED, MakeWorld, World


def test_jobs_start_in_the_order_of_their_ids_and_the_next_when_one_ends(world: World) -> None:
    added = world.add("a", "b", "c")
    assert (added.first, added.last, added.repeated) == (1, 3, False)
    assert world.executor.running == ["1.1", "2.1"]

    world.now += 5
    world.end("2.1")
    assert world.executor.running == ["1.1", "3.1"]
    assert world.states() == {1: "running", 2: "done", 3: "running"}


def test_a_higher_priority_starts_first_and_equal_ones_by_age(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("first")
    world.add("low", priority=-1)
    world.add("a", "b")
    world.add("high", priority=7)

    for key in ("1.1", "5.1", "3.1", "4.1", "2.1"):
        assert world.executor.running == [key]
        world.now += 5
        world.end(key)


def test_priorities_count_across_projects_and_time_limits(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("first")
    world.add("a", project="one", timeout_s=100)
    world.add("b", project="two", priority=1)

    world.now += 5
    world.end("1.1")
    assert world.executor.running == ["3.1"]


def test_nothing_of_a_job_is_launched_before_its_claim_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    launch = world.executor.launch

    def look(launches: list[object]) -> None:
        seen.append(world.database.connection.in_transaction)
        launch(launches)  # type: ignore[arg-type]

    monkeypatch.setattr(world.executor, "launch", look)
    world.add("a")

    assert seen == [False]


class TestSeveralGpus:
    def test_a_job_on_two_gpus_waits_for_both_and_nothing_passes_it(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=2)
        world.add("small", "small")
        world.add("big", gpus=2)
        world.add("small")
        world.now += 5
        world.end("1.1")
        assert world.executor.running == ["2.1"]

        world.now += 5
        world.end("2.1")
        assert world.executor.running == ["3.1"]
        assert world.executor.launched[-1].slots == (0, 1)
        assert world.column("slots", 3) == "0,1"

        world.now += 5
        world.end("3.1")
        assert world.executor.running == ["4.1"]

    def test_what_its_time_limit_ends_in_time_may_pass_a_big_job(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=2)
        world.add("small", timeout_s=1000)
        world.add("big", gpus=2)
        world.add("quick", timeout_s=500)
        world.add("slow", timeout_s=2000)

        assert world.executor.running == ["1.1", "3.1"]

    def test_its_end_frees_all_its_slots(self, world: World) -> None:
        world.add("big", gpus=2)
        world.add("a", "b")
        world.now += 5
        world.end("1.1", FAILED)

        assert world.executor.running == ["2.1", "3.1"]
        assert world.states()[1] == "failed"

    def test_a_job_larger_than_the_machine_never_blocks_others(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=4)
        world.add("huge", gpus=4, priority=9, retries=1)
        world.executor.end("1.1", FAILED)
        world.restart(gpus=2)
        world.add("a", "b", "c")

        assert sorted(world.executor.running) == ["2.1", "3.1"]
        world.now += 5
        for key in ("2.1", "3.1", "4.1"):
            world.end(key)
        assert world.states() == {1: "waiting", 2: "done", 3: "done", 4: "done"}
        assert world.executor.leased == set()
        assert world.engine.patience_s() is None

    def test_a_job_that_needs_a_gpu_that_is_closed_lets_others_pass(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=2)
        world.engine.board.places[1].closed = "lost"
        world.add("big", gpus=2)
        world.add("small")
        assert world.executor.running == ["2.1"]

        world.engine.board.places[1].closed = None
        world.add("small")
        assert world.executor.running == ["2.1"]
        world.now += 5
        world.end("2.1")
        assert world.executor.running == ["1.1"]

    def test_a_slot_of_somebody_else_is_asked_for_again_while_a_big_job_waits_for_it(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=3)
        world.executor.foreign.add("GPU-0")
        world.add("big", gpus=3)
        assert world.executor.running == []
        for _ in range(3):
            assert world.engine.patience_s() == 1.0
            world.wait(1.0)

        world.executor.foreign.clear()
        world.wait(1.0)
        assert world.executor.running == ["1.1"]


class TestWithoutGpu:
    def test_as_many_run_at_once_as_there_are_places(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1, cpu_places=2)
        world.add("a", "b", "c", gpus=0)
        assert world.executor.running == ["1.1", "2.1"]
        assert world.executor.launched[0].slots == ()

        world.end("1.1")
        assert world.executor.running == ["2.1", "3.1"]

    def test_they_take_no_gpu_and_wait_for_none(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1, cpu_places=1)
        world.add("train")
        world.add("light", gpus=0)
        assert sorted(world.executor.running) == ["1.1", "2.1"]

    def test_they_pass_a_big_job_that_waits(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=2, cpu_places=1)
        world.add("small")
        world.add("big", gpus=2)
        world.add("light", gpus=0)
        assert sorted(world.executor.running) == ["1.1", "3.1"]

    def test_they_need_no_gpu_to_exist(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=0)
        world.add("light", gpus=0)
        world.end("1.1")
        assert world.states() == {1: "done"}

    def test_gpus_are_left_to_others_while_only_they_wait(self, world: World) -> None:
        world.add(*["light"] * 5, gpus=0)
        assert world.executor.leased == set()

        world.add("train")
        assert world.executor.leased == {"GPU-0", "GPU-1"} or world.executor.leased == {"GPU-0"}
        world.now += 5
        world.end("6.1")
        assert world.executor.leased == set()
        assert world.engine.patience_s() is None

    def test_a_gpu_of_somebody_else_costs_no_time_while_only_they_wait(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1, cpu_places=1)
        world.executor.foreign.add("GPU-0")
        world.add("train")
        world.add("light", "light", gpus=0)
        assert world.engine.patience_s() == 1.0
        world.kill("1")

        world.wait(10)
        assert world.engine.patience_s() is None

    def test_they_have_time_limits_too(self, world: World) -> None:
        world.add("light", gpus=0, timeout_s=60)
        assert world.engine.patience_s() == 60
        world.wait(60)
        assert world.attempts(1) == [(1, "killed", "over the time limit of 60 s")]


class TestTimeLimits:
    def test_each_job_has_its_own(self, world: World) -> None:
        world.add("a", timeout_s=60)
        world.add("b", timeout_s=90)
        world.wait(60)
        assert world.executor.running == ["2.1"]
        world.wait(30)
        assert world.executor.running == []
        assert world.attempts(2) == [(1, "killed", "over the time limit of 90 s")]

    def test_what_is_over_time_is_tried_again_if_it_has_retries(self, world: World) -> None:
        world.add("a", timeout_s=60, retries=1)
        world.wait(60)
        assert world.executor.running == ["1.2"]

    def test_one_that_is_killed_by_request_while_over_time_is_not_tried_again(
        self, world: World
    ) -> None:
        world.add("a", timeout_s=60, retries=5)
        world.executor.ignore_signals("1.1")
        world.wait(60)
        world.kill("1", grace_s=1)
        world.wait(1)

        assert world.executor.running == []
        assert world.attempts(1) == [(1, "killed", "killed by request")]

    def test_it_counts_on_through_a_restart(self, world: World) -> None:
        world.add("a", timeout_s=60)
        world.wait(40)
        world.restart()
        world.settle()
        assert world.engine.patience_s() == 20
        world.wait(20)
        assert world.attempts(1) == [(1, "killed", "over the time limit of 60 s")]


class TestRetries:
    def test_a_failure_is_tried_as_often_as_allowed(self, world: World) -> None:
        world.add("a", retries=2)
        for number in (1, 2, 3):
            world.end(f"1.{number}", FAILED)

        assert [attempt[:2] for attempt in world.attempts(1)] == [
            (1, "failed"),
            (2, "failed"),
            (3, "failed"),
        ]

    def test_a_restart_does_not_forget_how_often_it_was_tried(self, world: World) -> None:
        world.add("a", retries=2)
        for number in (1, 2, 3):
            world.restart()
            world.settle()
            world.end(f"1.{number}", FAILED)

        assert world.executor.running == []
        assert world.states() == {1: "failed"}

    def test_what_was_lost_is_tried_again_only_if_retries_allow(self, world: World) -> None:
        world.add("a", retries=1)
        world.add("b")
        for key in ("1.1", "2.1"):
            world.executor.lose(key)
        world.settle()

        assert world.executor.running == ["1.2"]
        assert world.states() == {1: "running", 2: "lost"}

    def test_a_kill_by_request_is_final(self, world: World) -> None:
        world.add("a", retries=5)
        world.kill("1")
        assert world.states() == {1: "killed"}
        assert world.executor.running == []

    def test_a_revoked_claim_is_no_try(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b", "c", retries=1)
        for _ in range(3):
            world.run_short_jobs(
                world.executor.running[0]
            ) if "3.1" not in world.started() else None
            world.wait(QUICK_S + 0.01)
        assert world.executor.revoked
        while world.executor.running != ["3.1"]:
            world.now += 5
            world.end(world.executor.running[0])
        world.end("3.1", FAILED)

        assert world.executor.running == ["3.2"]

    def test_by_hand_all_of_them_are_open_again(self, world: World) -> None:
        world.add("a", retries=1)
        world.end("1.1", FAILED)
        world.end("1.2", FAILED)
        world.retry("1")
        world.end("1.3", FAILED)
        assert world.executor.running == ["1.4"]
        world.end("1.4", FAILED)
        assert world.states() == {1: "failed"}


class TestKill:
    def test_what_waits_is_taken_out_of_the_queue(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b")
        assert world.kill("2").ids == [2]
        world.now += 5
        world.end("1.1")

        assert world.executor.running == []
        assert world.states() == {1: "done", 2: "killed"}
        assert world.column("reason", 2) == "killed by request"

    def test_what_runs_gets_term_and_kill_when_its_grace_is_over(self, world: World) -> None:
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.kill("1", grace_s=3)
        assert world.executor.signals == [("1.1", signal.SIGTERM)]
        assert world.states() == {1: "running"}
        world.wait(2.9)
        assert world.executor.running == ["1.1"]
        assert world.engine.patience_s() == pytest.approx(0.1)

        world.wait(0.1)
        assert world.executor.signals == [("1.1", signal.SIGTERM), ("1.1", signal.SIGKILL)]
        assert world.attempts(1) == [(1, "killed", "killed by request")]
        assert world.column("status", 1) == 9

    def test_a_second_one_may_shorten_the_grace(self, world: World) -> None:
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.kill("1", grace_s=100)
        world.wait(5)
        world.kill("1", grace_s=0)

        assert world.executor.running == []

    def test_what_exits_with_0_when_asked_to_end_was_killed_and_has_not_succeeded(
        self, world: World
    ) -> None:
        world.add("a", retries=3)
        world.executor.ignore_signals("1.1")
        world.kill("1")
        world.end("1.1", 0)

        assert world.attempts(1) == [(1, "killed", "killed by request")]

    def test_what_stands_next_in_line_is_taken_back_and_counts_as_killed(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add(*["a"] * 4)
        world.run_short_jobs("1.1")
        assert world.executor.queued == ["3.1", "4.1"]
        world.kill("3")

        assert world.executor.queued == ["4.1"]
        assert world.states()[3] == "killed"
        assert "3.1" not in world.executor.running
        world.now += 5
        world.end("2.1")
        assert world.executor.running == ["4.1"]

    def test_what_was_started_before_the_revoke_arrived_is_ended(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_world(gpus=1)
        world.add(*["a"] * 3)
        world.run_short_jobs("1.1")
        assert world.executor.queued == ["3.1"]
        monkeypatch.setattr(world.executor, "revoke", lambda _key: None)
        signal_tree = world.executor.signal
        monkeypatch.setattr(world.executor, "signal", lambda _key, _signum: None)
        world.kill("3", grace_s=5)
        monkeypatch.setattr(world.executor, "signal", signal_tree)

        world.end("2.1")
        assert world.executor.signals == [("3.1", signal.SIGTERM)]
        assert world.states() == {1: "done", 2: "done", 3: "killed"}

    def test_what_is_being_revoked_already_is_killed_too(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_world(gpus=1)
        world.add(*["a"] * 3)
        world.run_short_jobs("1.1")
        world.now += QUICK_S + 0.01
        world.engine.turn()
        assert world.executor.revoked == ["3.1"]
        world.kill("3")

        assert world.states()[3] == "killed"

    def test_what_is_about_to_start_is_killed_before_or_after_its_start(self, world: World) -> None:
        claim_one(world)
        world.kill("1")

        assert world.states() == {1: "killed"}
        assert world.executor.running == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
    def test_what_could_not_start_after_all_does_not_come_back(
        self, world: World, number: int
    ) -> None:
        world.executor.refuse_next(number, "refused")
        claim_one(world)
        world.kill("1")
        world.wait(5)

        assert world.states()[1] in {"killed", "failed"}
        assert world.started() == ["1.1"]

    def test_it_outlives_a_crash(self, world: World) -> None:
        world.add("a", retries=3)
        world.executor.ignore_signals("1.1")
        world.kill("1", grace_s=20)
        world.restart()
        world.settle()
        assert world.executor.running == ["1.1"]
        assert world.executor.signals == [("1.1", signal.SIGTERM)] * 2
        world.wait(19)
        assert world.executor.running == ["1.1"]
        world.wait(1)

        assert world.executor.signals[-1] == ("1.1", signal.SIGKILL)
        assert world.attempts(1) == [(1, "killed", "killed by request")]

    def test_a_crash_before_its_start_does_not_bring_it_back(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(world.executor, "launch", lambda _launches: None)
        world.add("a")
        monkeypatch.undo()
        world.kill("1")
        world.restart()
        world.settle()

        assert world.states() == {1: "killed"}
        assert world.executor.running == []


def claim_one(world: World) -> None:
    """Add a job, and stop at the moment at which its order is out and its start not yet heard of."""
    world.run(add(world.hub, world.submission("train")))
    while world.states() != {1: "starting"}:
        world.engine.turn()


class TestRefusals:
    def test_a_full_disk_pauses_starts_and_costs_no_try(self, world: World) -> None:
        world.executor.refuse_next(errno.ENOSPC, "No space left on device")
        world.add("a", retries=1)
        assert world.states() == {1: "waiting"}
        assert "cannot start commands for now" in world.notices()
        world.wait(1)

        assert world.executor.running == ["1.1"]
        world.end("1.1", FAILED)
        assert world.executor.running == ["1.2"]

    def test_a_folder_that_is_gone_fails_the_job_with_the_reason(self, world: World) -> None:
        world.executor.refuse_next(errno.ENOENT, "/gone: No such file or directory")
        world.add("a")

        assert world.attempts(1) == [
            (1, "failed", "could not start: /gone: No such file or directory")
        ]

    def test_a_log_that_cannot_be_made_fails_the_job_and_the_next_one_runs(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        (world.home / "file").write_text("in the way")
        world.add("a", log="file/{id}.log")
        world.add("b")

        ((_, state, reason),) = world.attempts(1)
        assert (state, reason) == ("failed", f"could not start: File exists: {world.home}/file")
        assert world.executor.running == ["2.1"]

    def test_a_reason_may_name_a_path_that_is_no_text(self, world: World) -> None:
        (world.home / "\udcff").write_text("in the way")
        world.add("a", log=Base64(base64.b64encode(b"\xff/{id}.log").decode()))

        ((_, state, reason),) = world.attempts(1)
        assert state == "failed"
        assert reason == rf"could not start: File exists: {world.home}/\xff"


class TestLeases:
    def test_gpus_are_held_only_while_there_is_something_to_run(self, world: World) -> None:
        assert world.executor.leased == set()
        world.add("a")
        assert "GPU-0" in world.executor.leased
        world.now += 5
        world.end("1.1")
        assert world.executor.leased == set()

    def test_the_slots_of_one_gpu_share_its_lease(self, make_world: MakeWorld) -> None:
        shared = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("0",), ("GPU-0",)))
        world = make_world(gpus=shared)
        world.add("a", "b")
        world.now += 5
        world.end("1.1")
        assert world.executor.leased == {"GPU-0"}
        world.end("2.1")
        assert world.executor.leased == set()
