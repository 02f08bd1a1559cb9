"""The daemon's queue on its engine: what starts when, and what becomes of it."""

from __future__ import annotations

import base64
import errno
import signal

import pytest

from stoker.core.slot import Slot
from stoker.engine.slot_state import QUICK_S, ClosedBy
from stoker.service.add import add
from stoker.wire import Base64
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def test_jobs_start_in_the_order_of_their_ids_and_the_next_when_one_ends(harness: Harness) -> None:
    added = harness.add("a", "b", "c")
    assert (added.first, added.last, added.repeated) == (1, 3, False)
    assert harness.executor.running == ["1.1", "2.1"]

    harness.now += 5
    harness.end("2.1")
    assert harness.executor.running == ["1.1", "3.1"]
    assert harness.states() == {1: "running", 2: "done", 3: "running"}


def test_a_higher_priority_starts_first_and_equal_ones_by_age(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("first")
    harness.add("low", priority=-1)
    harness.add("a", "b")
    harness.add("high", priority=7)

    for key in ("1.1", "5.1", "3.1", "4.1", "2.1"):
        assert harness.executor.running == [key]
        harness.now += 5
        harness.end(key)


def test_priorities_count_across_projects_and_time_limits(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("first")
    harness.add("a", project="one", timeout_s=100)
    harness.add("b", project="two", priority=1)

    harness.now += 5
    harness.end("1.1")
    assert harness.executor.running == ["3.1"]


def test_nothing_of_a_job_is_launched_before_its_claim_is_committed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    launch = harness.executor.launch

    def look(launches: list[object]) -> None:
        seen.append(harness.database.connection.in_transaction)
        launch(launches)  # type: ignore[arg-type]

    monkeypatch.setattr(harness.executor, "launch", look)
    harness.add("a")

    assert seen == [False]


class TestSeveralGpus:
    def test_a_job_on_two_gpus_waits_for_both_and_nothing_passes_it(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("small", "small")
        harness.add("big", gpus=2)
        harness.add("small")
        harness.now += 5
        harness.end("1.1")
        assert harness.executor.running == ["2.1"]

        harness.now += 5
        harness.end("2.1")
        assert harness.executor.running == ["3.1"]
        assert harness.executor.launched[-1].slots == (0, 1)
        assert harness.column("slots", 3) == "0,1"

        harness.now += 5
        harness.end("3.1")
        assert harness.executor.running == ["4.1"]

    def test_what_its_time_limit_ends_in_time_may_pass_a_big_job(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("small", timeout_s=1000)
        harness.add("big", gpus=2)
        harness.add("quick", timeout_s=500)
        harness.add("slow", timeout_s=2000)

        assert harness.executor.running == ["1.1", "3.1"]

    def test_its_end_frees_all_its_slots(self, harness: Harness) -> None:
        harness.add("big", gpus=2)
        harness.add("a", "b")
        harness.now += 5
        harness.end("1.1", FAILED)

        assert harness.executor.running == ["2.1", "3.1"]
        assert harness.states()[1] == "failed"

    def test_a_job_larger_than_the_machine_never_blocks_others(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=4)
        harness.add("huge", gpus=4, priority=9, retries=1)
        harness.executor.end("1.1", FAILED)
        harness.restart(gpus=2)
        harness.add("a", "b", "c")

        assert sorted(harness.executor.running) == ["2.1", "3.1"]
        harness.now += 5
        for key in ("2.1", "3.1", "4.1"):
            harness.end(key)
        assert harness.states() == {1: "waiting", 2: "done", 3: "done", 4: "done"}
        assert harness.executor.leased == set()
        assert harness.engine.patience_s() is None

    def test_a_job_that_needs_a_gpu_that_is_closed_lets_others_pass(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.engine.slot_table.states[1].close(ClosedBy.GPU, "lost")
        harness.add("big", gpus=2)
        harness.add("small")
        assert harness.executor.running == ["2.1"]

        harness.engine.slot_table.states[1].close(ClosedBy.GPU, None)
        harness.add("small")
        assert harness.executor.running == ["2.1"]
        harness.now += 5
        harness.end("2.1")
        assert harness.executor.running == ["1.1"]

    def test_a_slot_of_somebody_else_is_asked_for_again_while_a_big_job_waits_for_it(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=3)
        harness.executor.foreign.add("GPU-0")
        harness.add("big", gpus=3)
        assert harness.executor.running == []
        for _ in range(3):
            assert harness.engine.patience_s() == 1.0
            harness.wait(1.0)

        harness.executor.foreign.clear()
        harness.wait(1.0)
        assert harness.executor.running == ["1.1"]


class TestWithoutGpu:
    def test_as_many_run_at_once_as_there_are_places(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1, cpu_places=2)
        harness.add("a", "b", "c", gpus=0)
        assert harness.executor.running == ["1.1", "2.1"]
        assert harness.executor.launched[0].slots == ()

        harness.end("1.1")
        assert harness.executor.running == ["2.1", "3.1"]

    def test_they_take_no_gpu_and_wait_for_none(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1, cpu_places=1)
        harness.add("train")
        harness.add("light", gpus=0)
        assert sorted(harness.executor.running) == ["1.1", "2.1"]

    def test_they_pass_a_big_job_that_waits(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2, cpu_places=1)
        harness.add("small")
        harness.add("big", gpus=2)
        harness.add("light", gpus=0)
        assert sorted(harness.executor.running) == ["1.1", "3.1"]

    def test_they_need_no_gpu_to_exist(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=0)
        harness.add("light", gpus=0)
        harness.end("1.1")
        assert harness.states() == {1: "done"}

    def test_gpus_are_left_to_others_while_only_they_wait(self, harness: Harness) -> None:
        harness.add(*["light"] * 5, gpus=0)
        assert harness.executor.leased == set()

        harness.add("train")
        assert harness.executor.leased == {"GPU-0", "GPU-1"} or harness.executor.leased == {"GPU-0"}
        harness.now += 5
        harness.end("6.1")
        assert harness.executor.leased == set()
        assert harness.engine.patience_s() is None

    def test_a_gpu_of_somebody_else_costs_no_time_while_only_they_wait(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1, cpu_places=1)
        harness.executor.foreign.add("GPU-0")
        harness.add("train")
        harness.add("light", "light", gpus=0)
        assert harness.engine.patience_s() == 1.0
        harness.kill("1")

        harness.wait(10)
        assert harness.engine.patience_s() is None

    def test_they_have_time_limits_too(self, harness: Harness) -> None:
        harness.add("light", gpus=0, timeout_s=60)
        assert harness.engine.patience_s() == 60
        harness.wait(60)
        assert harness.attempts(1) == [(1, "killed", "over the time limit of 1m")]


class TestTimeLimits:
    def test_each_job_has_its_own(self, harness: Harness) -> None:
        harness.add("a", timeout_s=60)
        harness.add("b", timeout_s=90)
        harness.wait(60)
        assert harness.executor.running == ["2.1"]
        harness.wait(30)
        assert harness.executor.running == []
        assert harness.attempts(2) == [(1, "killed", "over the time limit of 1m30s")]

    def test_what_is_over_time_is_tried_again_if_it_has_retries(self, harness: Harness) -> None:
        harness.add("a", timeout_s=60, retries=1)
        harness.wait(60)
        assert harness.executor.running == ["1.2"]

    def test_one_that_is_killed_by_request_while_over_time_is_not_tried_again(
        self, harness: Harness
    ) -> None:
        harness.add("a", timeout_s=60, retries=5)
        harness.executor.ignore_signals("1.1")
        harness.wait(60)
        harness.kill("1", grace_s=1)
        harness.wait(1)

        assert harness.executor.running == []
        assert harness.attempts(1) == [(1, "killed", "killed by request")]

    def test_it_counts_on_through_a_restart(self, harness: Harness) -> None:
        harness.add("a", timeout_s=60)
        harness.wait(40)
        harness.restart()
        harness.settle()
        assert harness.engine.patience_s() == 20
        harness.wait(20)
        assert harness.attempts(1) == [(1, "killed", "over the time limit of 1m")]


class TestRetries:
    def test_a_failure_is_tried_as_often_as_allowed(self, harness: Harness) -> None:
        harness.add("a", retries=2)
        for number in (1, 2, 3):
            harness.end(f"1.{number}", FAILED)

        assert [attempt[:2] for attempt in harness.attempts(1)] == [
            (1, "failed"),
            (2, "failed"),
            (3, "failed"),
        ]

    def test_a_restart_does_not_forget_how_often_it_was_tried(self, harness: Harness) -> None:
        harness.add("a", retries=2)
        for number in (1, 2, 3):
            harness.restart()
            harness.settle()
            harness.end(f"1.{number}", FAILED)

        assert harness.executor.running == []
        assert harness.states() == {1: "failed"}

    def test_what_was_lost_is_tried_again_only_if_retries_allow(self, harness: Harness) -> None:
        harness.add("a", retries=1)
        harness.add("b")
        for key in ("1.1", "2.1"):
            harness.executor.lose(key)
        harness.settle()

        assert harness.executor.running == ["1.2"]
        assert harness.states() == {1: "running", 2: "lost"}

    def test_a_kill_by_request_is_final(self, harness: Harness) -> None:
        harness.add("a", retries=5)
        harness.kill("1")
        assert harness.states() == {1: "killed"}
        assert harness.executor.running == []

    def test_a_revoked_claim_is_no_try(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b", "c", retries=1)
        for _ in range(3):
            harness.run_short_jobs(
                harness.executor.running[0]
            ) if "3.1" not in harness.started() else None
            harness.wait(QUICK_S + 0.01)
        assert harness.executor.revoked
        while harness.executor.running != ["3.1"]:
            harness.now += 5
            harness.end(harness.executor.running[0])
        harness.end("3.1", FAILED)

        assert harness.executor.running == ["3.2"]

    def test_by_hand_all_of_them_are_open_again(self, harness: Harness) -> None:
        harness.add("a", retries=1)
        harness.end("1.1", FAILED)
        harness.end("1.2", FAILED)
        harness.retry("1")
        harness.end("1.3", FAILED)
        assert harness.executor.running == ["1.4"]
        harness.end("1.4", FAILED)
        assert harness.states() == {1: "failed"}


class TestKill:
    def test_what_waits_is_taken_out_of_the_queue(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        assert harness.kill("2").ids == [2]
        harness.now += 5
        harness.end("1.1")

        assert harness.executor.running == []
        assert harness.states() == {1: "done", 2: "killed"}
        assert harness.column("reason", 2) == "killed by request"

    def test_what_runs_gets_term_and_kill_when_its_grace_is_over(self, harness: Harness) -> None:
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.kill("1", grace_s=3)
        assert harness.executor.signals == [("1.1", signal.SIGTERM)]
        assert harness.states() == {1: "running"}
        harness.wait(2.9)
        assert harness.executor.running == ["1.1"]
        assert harness.engine.patience_s() == pytest.approx(0.1)

        harness.wait(0.1)
        assert harness.executor.signals == [("1.1", signal.SIGTERM), ("1.1", signal.SIGKILL)]
        assert harness.attempts(1) == [(1, "killed", "killed by request")]
        assert harness.column("status", 1) == 9

    def test_a_second_one_may_shorten_the_grace(self, harness: Harness) -> None:
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.kill("1", grace_s=100)
        harness.wait(5)
        harness.kill("1", grace_s=0)

        assert harness.executor.running == []

    def test_what_exits_with_0_when_asked_to_end_was_killed_and_has_not_succeeded(
        self, harness: Harness
    ) -> None:
        harness.add("a", retries=3)
        harness.executor.ignore_signals("1.1")
        harness.kill("1")
        harness.end("1.1", 0)

        assert harness.attempts(1) == [(1, "killed", "killed by request")]

    def test_what_stands_next_in_line_is_taken_back_and_counts_as_killed(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add(*["a"] * 4)
        harness.run_short_jobs("1.1")
        assert harness.executor.queued == ["3.1", "4.1"]
        harness.kill("3")

        assert harness.executor.queued == ["4.1"]
        assert harness.states()[3] == "killed"
        assert "3.1" not in harness.executor.running
        harness.now += 5
        harness.end("2.1")
        assert harness.executor.running == ["4.1"]

    def test_what_was_started_before_the_revoke_arrived_is_ended(
        self, make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add(*["a"] * 3)
        harness.run_short_jobs("1.1")
        assert harness.executor.queued == ["3.1"]
        monkeypatch.setattr(harness.executor, "revoke", lambda _key: None)
        signal_tree = harness.executor.signal
        monkeypatch.setattr(harness.executor, "signal", lambda _key, _signum: None)
        harness.kill("3", grace_s=5)
        monkeypatch.setattr(harness.executor, "signal", signal_tree)

        harness.end("2.1")
        assert harness.executor.signals == [("3.1", signal.SIGTERM)]
        assert harness.states() == {1: "done", 2: "done", 3: "killed"}

    def test_what_is_being_revoked_already_is_killed_too(
        self, make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add(*["a"] * 3)
        harness.run_short_jobs("1.1")
        harness.now += QUICK_S + 0.01
        harness.engine.turn()
        assert harness.executor.revoked == ["3.1"]
        harness.kill("3")

        assert harness.states()[3] == "killed"

    def test_what_is_about_to_start_is_killed_before_or_after_its_start(
        self, harness: Harness
    ) -> None:
        claim_one(harness)
        harness.kill("1")

        assert harness.states() == {1: "killed"}
        assert harness.executor.running == []

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
    def test_what_could_not_start_after_all_does_not_come_back(
        self, harness: Harness, number: int
    ) -> None:
        harness.executor.refuse_next(number, "refused")
        claim_one(harness)
        harness.kill("1")
        harness.wait(5)

        assert harness.states()[1] in {"killed", "failed"}
        assert harness.started() == ["1.1"]

    def test_it_outlives_a_crash(self, harness: Harness) -> None:
        harness.add("a", retries=3)
        harness.executor.ignore_signals("1.1")
        harness.kill("1", grace_s=20)
        harness.restart()
        harness.settle()
        assert harness.executor.running == ["1.1"]
        assert harness.executor.signals == [("1.1", signal.SIGTERM)] * 2
        harness.wait(19)
        assert harness.executor.running == ["1.1"]
        harness.wait(1)

        assert harness.executor.signals[-1] == ("1.1", signal.SIGKILL)
        assert harness.attempts(1) == [(1, "killed", "killed by request")]

    def test_a_crash_before_its_start_does_not_bring_it_back(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(harness.executor, "launch", lambda _launches: None)
        harness.add("a")
        monkeypatch.undo()
        harness.kill("1")
        harness.restart()
        harness.settle()

        assert harness.states() == {1: "killed"}
        assert harness.executor.running == []


def claim_one(harness: Harness) -> None:
    """Add a job, and stop at the moment at which its order is out and its start not yet heard of."""
    harness.run(add(harness.context, harness.submission("train")))
    while harness.states() != {1: "starting"}:
        harness.engine.turn()


class TestRefusals:
    def test_a_full_disk_pauses_starts_and_costs_no_try(self, harness: Harness) -> None:
        harness.executor.refuse_next(errno.ENOSPC, "No space left on device")
        harness.add("a", retries=1)
        assert harness.states() == {1: "waiting"}
        assert "cannot start commands for now" in harness.notices()
        harness.wait(1)

        assert harness.executor.running == ["1.1"]
        harness.end("1.1", FAILED)
        assert harness.executor.running == ["1.2"]

    def test_a_folder_that_is_gone_fails_the_job_with_the_reason(self, harness: Harness) -> None:
        harness.executor.refuse_next(errno.ENOENT, "/gone: No such file or directory")
        harness.add("a")

        assert harness.attempts(1) == [
            (1, "failed", "could not start: /gone: No such file or directory")
        ]

    def test_a_log_that_cannot_be_made_fails_the_job_and_the_next_one_runs(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        (harness.home / "file").write_text("in the way")
        harness.add("a", log="file/{id}.log")
        harness.add("b")

        ((_, state, reason),) = harness.attempts(1)
        assert (state, reason) == ("failed", f"could not start: File exists: {harness.home}/file")
        assert harness.executor.running == ["2.1"]

    def test_a_reason_may_name_a_path_that_is_no_text(self, harness: Harness) -> None:
        (harness.home / "\udcff").write_text("in the way")
        harness.add("a", log=Base64(base64.b64encode(b"\xff/{id}.log").decode()))

        ((_, state, reason),) = harness.attempts(1)
        assert state == "failed"
        assert reason == rf"could not start: File exists: {harness.home}/\xff"


class TestLeases:
    def test_gpus_are_held_only_while_there_is_something_to_run(self, harness: Harness) -> None:
        assert harness.executor.leased == set()
        harness.add("a")
        assert "GPU-0" in harness.executor.leased
        harness.now += 5
        harness.end("1.1")
        assert harness.executor.leased == set()

    def test_the_slots_of_one_gpu_share_its_lease(self, make_harness: MakeHarness) -> None:
        shared = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("0",), ("GPU-0",)))
        harness = make_harness(gpus=shared)
        harness.add("a", "b")
        harness.now += 5
        harness.end("1.1")
        assert harness.executor.leased == {"GPU-0"}
        harness.end("2.1")
        assert harness.executor.leased == set()
