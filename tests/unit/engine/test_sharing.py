"""Jobs that share GPUs, from the queue to the executor, with GPUs that show what a test says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse, Foreigner, GpuUse, JobUse, Look, Sight
from stoker.engine import eta
from stoker.engine.gpu_features import GpuSource
from stoker.engine.gpu_models import Model
from stoker.engine.host_resources import HostCapacity
from stoker.engine.running_attempt import RunningAttempt
from stoker.errors import UsageError
from stoker.service.show import show
from stoker.service.status import status
from stoker.service.what_if import what_if
from stoker.store.sharing_records import SharingRecords
from stoker.wire import JobQuery, WhatIf
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"
    " of 24.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 5.00 GiB"
    " memory in use.\n"
)


class Machine(GpuSource):
    """What a GPU monitor would see: memory by job, taken as the peak when one ends."""

    def __init__(self, harness: Harness, **sizes: int) -> None:
        self.harness = harness
        self.held: dict[int, float] = {}
        self.age_s = 10.0
        self.sm_pct = 10.0
        self.foreigners: tuple[Foreigner, ...] = ()
        self.sight = Sight.PROCESSES
        self.measures = True
        self.sizes = {"GPU-0": 24, "GPU-1": 24, **{f"GPU-{k[1:]}": v for k, v in sizes.items()}}
        self.attach()

    def attach(self) -> None:
        self.harness.engine.gpus.watch(self, self.models)

    def models(self) -> Mapping[str, Model]:
        return {key: Model(f"{size} GB", size * GIB) for key, size in self.sizes.items()}

    def look(self) -> Look:
        running = self.harness.engine.slot_table.running.values()
        use = {each.key: self.use_of(each) for each in running if each.slots}
        gpus = {}
        for key, size in self.sizes.items():
            held = [u.mem_bytes[key] for u in use.values() if u.mem_bytes and key in u.mem_bytes]
            gpus[key] = GpuUse(
                key=key,
                label=key[-1],
                sight=self.sight,
                total_bytes=size * GIB,
                used_bytes=sum(held),
                foreign_bytes=sum(each.mem_bytes or 0 for each in self.foreigners),
                foreigners=self.foreigners,
            )
        return Look(self.harness.now, gpus, use)

    def use_of(self, running: RunningAttempt) -> JobUse:
        held = int(self.held.get(running.attempt.job, 5) * GIB)
        so_far = AttemptUse(mem_peak_bytes=held, sm_mean_pct=self.sm_pct)
        return JobUse(
            key=running.key,
            mem_bytes={running.slots[0].keys[0]: held},
            watched_s=self.age_s,
            so_far=so_far,
        )

    def gpus(self) -> Mapping[str, GpuUse]:
        return self.look().gpus

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        return self.use_of(running).so_far if running.slots and self.measures else None


@pytest.fixture
def machine(harness: Harness) -> Machine:
    """Return two GPUs of 24 GiB, on which a job holds 5 GiB unless told otherwise."""
    return Machine(harness)


def crowd(harness: Harness) -> dict[str, int]:
    """How many run on each GPU."""
    running = harness.engine.slot_table.running.values()
    return dict(Counter(each.label for each in running if each.slots))


def learn(harness: Harness, runs: int = 4) -> None:
    """Let jobs of a kind run and end, so that its need is known, and that its number does not matter."""
    for number in range(runs):
        added = harness.add(f"train {number}", share="auto")
        harness.now += 60
        harness.end(f"{added.first}.1")


def reserved(harness: Harness) -> dict[str, float]:
    """What is set aside on each GPU, in GiB."""
    return {
        slot.label: round(slot.shared.reserved_bytes / GIB, 1)
        for slot in status(harness.context).slots
        if slot.shared is not None
    }


def test_the_first_runs_go_one_to_a_gpu_and_then_four_share_each(
    harness: Harness, machine: Machine
) -> None:
    harness.add(*(f"train {n}" for n in range(40)), share="auto")
    assert crowd(harness) == {"0": 1, "1": 1}
    for key in harness.started()[:2]:
        harness.now += 60
        harness.end(key)
    assert crowd(harness) == {"0": 3, "1": 3}
    for key in harness.started()[2:8]:
        harness.now += 60
        harness.end(key)
    assert crowd(harness) == {"0": 4, "1": 4}
    assert reserved(harness) == {"0": 22.0, "1": 22.0}


def test_an_adopted_run_teaches_its_full_duration(harness: Harness, machine: Machine) -> None:
    harness.add("train 1", share="auto")
    harness.now += 50
    harness.restart()
    machine.attach()
    harness.now += 10
    harness.end("1.1")
    (profile,) = SharingRecords(harness.database).profiles().values()
    assert profile.alone_s == (60.0,)


@pytest.mark.parametrize(
    ("reported_gib", "peak_gib"), [(0, 5), (3, 5), (9, 9), (24, 24), (24.5, 5), (-9, 5), (2**40, 5)]
)
def test_the_larger_of_the_measured_and_the_reported_peak_is_learned(
    harness: Harness, machine: Machine, reported_gib: float, peak_gib: int
) -> None:
    harness.add("train 1", share="auto")
    harness.now += 60
    harness.end("1.1", gpu_peak_bytes=int(reported_gib * GIB))
    (profile,) = SharingRecords(harness.database).profiles().values()
    assert profile.peaks == (peak_gib * GIB,)
    use = show(harness.context, JobQuery("1")).attempts[0].gpu_use
    assert use is not None
    assert use.mem_peak_bytes == peak_gib * GIB


def test_a_report_teaches_of_its_own_kind_alone(harness: Harness, machine: Machine) -> None:
    for command in ("train --net a", "train --net b"):
        harness.add(command, share="auto")
    harness.now += 60
    harness.end("1.1", gpu_peak_bytes=20 * GIB)
    harness.end("2.1")
    profiles = SharingRecords(harness.database).profiles().values()
    assert sorted(profile.peaks for profile in profiles) == [(5 * GIB,), (20 * GIB,)]


def test_a_run_that_was_not_measured_teaches_what_it_reports(
    harness: Harness, machine: Machine
) -> None:
    machine.measures = False
    harness.add("train 1", share="auto")
    harness.now += 60
    harness.end("1.1", gpu_peak_bytes=3 * GIB)
    (profile,) = SharingRecords(harness.database).profiles().values()
    assert (profile.peaks, profile.alone_s, profile.sm) == ((3 * GIB,), (60.0,), ())


def test_what_a_kind_holds_beside_its_reports_is_added_to_the_report_of_a_run_that_was_missed(
    harness: Harness, machine: Machine
) -> None:
    harness.add("train 1", "train 2", "train 3", share="auto")
    harness.now += 60
    harness.end("1.1", gpu_peak_bytes=3 * GIB)  # 5 GiB were measured
    machine.measures = False
    harness.end("2.1", gpu_peak_bytes=4 * GIB)
    harness.now += 60
    harness.end("3.1", gpu_peak_bytes=23 * GIB)  # the GPU has 24 GiB
    (profile,) = SharingRecords(harness.database).profiles().values()
    assert profile.peaks == (5 * GIB, 6 * GIB, 24 * GIB)


def test_a_report_of_a_job_on_several_gpus_says_nothing_of_one(
    harness: Harness, machine: Machine
) -> None:
    machine.measures = False
    harness.add("train 1", gpus=2)
    harness.end("1.1", gpu_peak_bytes=3 * GIB)
    assert show(harness.context, JobQuery("1")).attempts[0].gpu_use is None


def test_a_reservation_is_recorded_before_the_start(harness: Harness, machine: Machine) -> None:
    learn(harness)
    harness.add("train 9", share="auto")
    rows = harness.database.execute("SELECT number, bytes, cold FROM reservation WHERE job = 5")
    assert rows.fetchall() == [(1, int(5.5 * GIB), 0)]
    assert show(harness.context, JobQuery("5")).attempts[0].reserved_bytes == int(5.5 * GIB)


def test_reservations_are_restored_after_a_crash(harness: Harness, machine: Machine) -> None:
    learn(harness)
    harness.add(*(f"train {n}" for n in range(12)), share="auto")
    before, there = reserved(harness), crowd(harness)
    assert there == {"0": 4, "1": 4}
    harness.restart()
    machine.attach()
    harness.settle()
    assert (reserved(harness), crowd(harness)) == (before, there)
    assert harness.states()[13] == "waiting"
    harness.now += 60
    harness.end("5.1")
    assert reserved(harness) == before
    assert harness.states()[13] == "running"


def test_a_job_that_does_not_share_waits_for_an_empty_gpu(
    harness: Harness, machine: Machine
) -> None:
    learn(harness)
    harness.add(*(f"train {n}" for n in range(3)), share="auto")
    harness.add("alone")
    assert harness.states()[8] == "waiting"
    assert "is shared: it needs the whole GPU: it does not share" in harness.why(8)
    for key in [
        each.key for each in harness.engine.slot_table.running.values() if each.label == "0"
    ]:
        harness.now += 1
        harness.end(key)
    assert crowd(harness)["0"] == 1
    assert harness.states()[8] == "running"


def test_a_gpu_is_kept_for_a_job_that_has_waited_long(harness: Harness, machine: Machine) -> None:
    learn(harness)
    harness.add(*(f"train {n}" for n in range(8)), share="auto")
    harness.add("alone", gpus=1)
    harness.add(*(f"train {n}" for n in range(20)), share="auto")
    harness.wait(61)
    sharing = harness.engine.gpus.sharing
    assert sharing is not None
    assert 13 in sharing.kept.values()
    for _ in range(40):
        if harness.states()[13] == "running":
            break
        harness.now += 30
        oldest = min(harness.engine.slot_table.running.values(), key=lambda each: each.attempt.job)
        harness.end(oldest.key)
    assert harness.states()[13] == "running"
    assert harness.states()[33] == "waiting"


def test_a_job_out_of_memory_beside_others_gets_more_memory_then_a_gpu_alone(
    harness: Harness, machine: Machine
) -> None:
    learn(harness)
    harness.add("train 1", "train 2", share="auto")
    harness.add("train 3", "train 4", share="auto")
    run_out(harness, "5.1")
    assert harness.states()[5] == "running"
    assert harness.attempts(5)[0][2] == (
        "exit 1: GPU out of memory: wanted 2.0 GiB more, 1.0 GiB of 24.0 GiB was free"
        " (itself 5.0 GiB); ran out of memory beside others with 5.5 GiB set aside:"
        " again with 7.7 GiB"
    )
    run_out(harness, "5.2")
    assert "once more: again on a GPU alone" in str(harness.attempts(5)[1][2])
    assert harness.states()[5] == "waiting"
    for job in (6, 7, 8):
        harness.now += 60
        harness.end(f"{job}.1")
    assert harness.states()[5] == "running"
    harness.end("5.3")
    assert harness.states()[5] == "done"


def run_out(harness: Harness, key: str) -> None:
    """Let a job die for want of GPU memory."""
    log = harness.engine.slot_table.running[key].log
    assert log is not None
    with open(log, "a") as file:  # as the executor does: a run has one log for all attempts
        file.write(OOM)
    harness.now += 1
    harness.end(key, FAILED)


def test_a_job_out_of_memory_alone_on_the_largest_gpu_fails(
    harness: Harness, machine: Machine
) -> None:
    harness.add("big", retries=3)
    run_out(harness, "1.1")
    assert harness.states()[1] == "failed"
    assert harness.column("reason", 1).endswith(
        "needs more than the 24.0 GiB of this GPU, and there is no larger one"
    )


def test_a_job_out_of_memory_alone_on_a_small_gpu_is_tried_on_a_larger_one(
    harness: Harness,
) -> None:
    Machine(harness, _1=80)
    harness.add("big")
    assert crowd(harness) == {"0": 1}
    run_out(harness, "1.1")
    assert crowd(harness) == {"1": 1}
    harness.restart()
    assert harness.states()[1] == "running"


def test_why_shows_the_size_of_a_gpu_that_is_too_small(harness: Harness) -> None:
    Machine(harness, _1=80)
    harness.add("declared", gpu_mem_bytes=40 * GIB)
    harness.add("big")
    run_out(harness, "2.1")
    assert "GPU 0 has 24.0 GiB, and 24.0 GiB did not suffice, GPU 1 held by job 1" in harness.why(2)
    harness.add("declared", gpu_mem_bytes=40 * GIB)
    assert "GPU 0 has 24.0 GiB, and it asks for 40.0 GiB, GPU 1 held by job 1" in harness.why(3)


def test_a_larger_gpu_of_another_project_does_not_count(harness: Harness) -> None:
    machine = Machine(harness, _1=80)
    harness.config("gpus.vision", "0")
    harness.add("big", project="vision")
    run_out(harness, "1.1")
    assert harness.column("reason", 1).endswith("24.0 GiB of this GPU, and there is no larger one")

    harness.add("big", project="vision")
    harness.restart()
    machine.attach()
    harness.settle()
    run_out(harness, "2.1")
    assert harness.states()[2] == "failed"


def test_a_drained_larger_gpu_does_not_count(harness: Harness) -> None:
    Machine(harness, _1=80)
    harness.gpus("drain", "1")
    harness.add("big")
    run_out(harness, "1.1")
    assert harness.states()[1] == "failed"


def test_the_need_for_a_larger_gpu_survives_a_failure_beside_others(
    harness: Harness,
) -> None:
    Machine(harness, _1=80)
    harness.add("train 1", share="always:2")
    run_out(harness, "1.1")
    harness.add("train 2", share="always:2")
    harness.add("train 3", share="always:2")
    assert crowd(harness) == {"0": 1, "1": 2}
    run_out(harness, "1.2")
    assert "again on a GPU alone" in str(harness.attempts(1)[1][2])
    small, large = sorted(harness.engine.slot_table.running.values(), key=lambda each: each.label)
    harness.end(small.key)
    assert harness.states()[1] == "waiting", "the GPU that is empty is too small for it"
    harness.end(large.key)
    assert crowd(harness) == {"1": 1}


def test_memory_that_others_have_does_not_make_a_job_too_big_for_its_gpu(
    harness: Harness, machine: Machine
) -> None:
    harness.add("plain", retries=1)
    machine.foreigners = (Foreigner(4711, "ada", 12 * GIB),)
    run_out(harness, "1.1")
    assert "while others had 12.0 GiB of this GPU" in str(harness.attempts(1)[0][2])
    assert crowd(harness) == {"1": 1}, "it keeps off the GPU where it met them"
    run_out(harness, "1.2")
    run_out(harness, "1.3")
    assert harness.states()[1] == "running", "its retry is its own"
    machine.foreigners = ()
    run_out(harness, "1.4")
    assert harness.states()[1] == "failed"
    assert "there is no larger one" in harness.column("reason", 1)


def test_slots_on_one_gpu_do_not_make_a_job_too_big_for_it(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=tuple(Slot(n, ("0",), ("GPU-0",)) for n in range(2)))
    Machine(harness)
    harness.add("one", "two")
    run_out(harness, "1.1")
    assert "ran out of memory while others had this GPU" in str(harness.attempts(1)[0][2])
    assert harness.states()[1] == "running"
    harness.end("2.1")
    run_out(harness, "1.2")
    assert "needs more than the 24.0 GiB" in harness.column("reason", 1)


def test_the_text_of_an_earlier_attempt_s_oom_does_not_judge_a_later_one(
    harness: Harness, machine: Machine
) -> None:
    learn(harness)
    log = f"{harness.home}/{{id}}.log"
    harness.add(*(f"train {n}" for n in range(4)), share="auto", log=log)
    run_out(harness, "5.1")
    assert harness.states()[5] == "running"
    harness.end("5.2", FAILED)
    assert harness.column("failure", 5) == "error"
    assert harness.column("reason", 5) == "exit 1"


def test_the_text_of_an_oom_in_a_successful_run_changes_nothing(
    harness: Harness, machine: Machine
) -> None:
    learn(harness)
    harness.add("train 9", share="auto")
    log = harness.engine.slot_table.running["5.1"].log
    assert log is not None
    Path(log).write_text(OOM)
    harness.end("5.1")
    assert harness.states()[5] == "done"
    assert harness.attempts(5) == [(1, "done", None)]


def test_a_job_that_outgrows_its_reservation_gets_more_and_no_job_joins_for_a_while(
    harness: Harness, machine: Machine
) -> None:
    learn(harness)
    harness.add("train 1", "train 2", "train 3", share="auto")
    machine.held = {5: 9}
    harness.settle()
    assert reserved(harness)[harness.engine.slot_table.running["5.1"].label] >= 9.9
    harness.add("train 4", "train 5", share="auto")
    place = harness.engine.slot_table.running["5.1"].label
    mates = [
        each.attempt.job
        for each in harness.engine.slot_table.running.values()
        if each.label == place
    ]
    assert not {8, 9} & set(mates)


def test_no_job_joins_beside_foreign_processes(harness: Harness, machine: Machine) -> None:
    learn(harness)
    machine.foreigners = (Foreigner(4711, "ada", GIB),)
    harness.add("train 1", "train 2", "train 3", share="auto")
    assert crowd(harness) == {"0": 1, "1": 1}
    assert "not shared while ada computes there too" in harness.why(7)
    harness.config("share.with-others", "yes")
    assert harness.states()[7] == "running"


def test_a_shared_gpu_is_drained_as_one(harness: Harness, machine: Machine) -> None:
    learn(harness)
    harness.add(*(f"train {n}" for n in range(12)), share="auto")
    changed = harness.gpus("drain", "0")
    assert changed.slots == ["0"]
    assert len(changed.jobs) == 4
    assert harness.context.config.text("gpus-drained") == "0"
    for job in changed.jobs:
        harness.now += 60
        harness.end(f"{job}.1")
    assert crowd(harness) == {"1": 4}
    harness.gpus("add", "0")
    assert crowd(harness) == {"0": 4, "1": 4}


def test_without_process_measurements_no_job_shares(harness: Harness, machine: Machine) -> None:
    learn(harness)
    machine.sight = Sight.DEVICE
    harness.add("train 1", "train 2", "train 3", share="auto")
    assert crowd(harness) == {"0": 1, "1": 1}
    assert "the driver does not show how much memory each process uses" in harness.why(7)


def test_without_nvml_no_job_shares(harness: Harness) -> None:
    harness.add("train 1", "train 2", "train 3", share="auto")
    assert crowd(harness) == {"0": 1, "1": 1}
    assert not harness.engine.slot_table.shared


def test_always_admits_as_many_jobs_as_requested(harness: Harness, machine: Machine) -> None:
    harness.add(*(f"train {n}" for n in range(9)), share="always:3")
    assert crowd(harness) == {"0": 3, "1": 3}


def test_jobs_share_a_gpu_only_as_far_as_the_ram_of_their_kind_goes(
    make_harness: MakeHarness,
) -> None:
    capacity = HostCapacity(16, 64 * GIB, lambda: 64 * GIB)  # 60.8 GiB of it can be set aside
    harness = make_harness(gpus=1, capacity=capacity)
    machine = Machine(harness)
    for number in range(4):
        added = harness.add(f"train {number}", share="auto")
        harness.now += 60
        harness.end(f"{added.first}.1", max_rss_kb=20 << 20)
    harness.add(*(f"train {n}" for n in range(4)), share="auto")

    assert crowd(harness) == {"0": 2}
    lack = (
        "it needs 22 GiB of RAM, and 16.8 GiB of 60.8 GiB are not set aside (learned from 4 runs)"
    )
    assert lack in harness.why(7)
    harness.restart()
    machine.attach()
    harness.settle()
    assert crowd(harness) == {"0": 2}
    harness.end("5.1")
    assert crowd(harness) == {"0": 2}


def test_declared_memory_is_reserved(harness: Harness, machine: Machine) -> None:
    harness.add(*(f"train {n}" for n in range(9)), share="auto", gpu_mem_bytes=11 * GIB)
    assert crowd(harness) == {"0": 2, "1": 2}
    assert "11.0 GiB (declared), and 22.0 GiB of 23.3 GiB are set aside" in harness.why(9)


def test_more_memory_than_any_gpu_has_is_refused_at_once(
    harness: Harness, machine: Machine
) -> None:
    with pytest.raises(UsageError, match=r"30\.0 GiB of GPU memory, and the largest GPU .* 24\.0"):
        harness.add("train", gpu_mem_bytes=30 * GIB)
    assert harness.states() == {}


def test_gpulimits_thresholds_are_settings(harness: Harness, machine: Machine) -> None:
    harness.add(*(f"train {n}" for n in range(9)), share="free")
    for _ in range(3):
        harness.wait(2)
    assert crowd(harness) == {"0": 3, "1": 3}
    assert "38% of its memory is free; 50% must stay free" in harness.why(9)
    harness.config("gpulimit.safety_keep_gpu_memory", "0.3")
    assert crowd(harness) == {"0": 4, "1": 4}
    harness.add("train 10", share="auto")
    assert "takes what it finds of its memory" in harness.why(10)


def test_frameworks_are_kept_from_taking_the_whole_gpu(harness: Harness, machine: Machine) -> None:
    env: dict[str, str] = {"TF_FORCE_GPU_ALLOW_GROWTH": "mine"}
    harness.add("train 1", share="auto", env=env)
    harness.add("train 1", env=env)
    first, second = (
        harness.executor.contexts[each.context].env for each in harness.executor.launched
    )
    assert first["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert first["TF_FORCE_GPU_ALLOW_GROWTH"] == "mine"
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in second


def test_sharing_jobs_do_not_starve_a_job_on_two_gpus(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness()
    Machine(harness)
    learn(harness)
    harness.add(*(f"train {n}" for n in range(6)), share="auto")
    harness.add("both", gpus=2)
    harness.add(*(f"train {n}" for n in range(30)), share="auto")
    harness.wait(61)
    for _ in range(60):
        if harness.states()[11] == "running":
            break
        harness.now += 30
        oldest = min(harness.engine.slot_table.running.values(), key=lambda each: each.attempt.job)
        harness.end(oldest.key)
    assert harness.states()[11] == "running"
    assert harness.states()[41] == "waiting"


def test_how_a_waiting_job_shares_can_be_set(harness: Harness) -> None:
    harness.add("train", hold=True)
    harness.set("1", share="always:2", gpu_mem_bytes=GIB)
    assert (
        show(harness.context, JobQuery("1")).share,
        show(harness.context, JobQuery("1")).gpu_mem_bytes,
    ) == (
        "always:2",
        GIB,
    )
    harness.set("1", share="never", gpu_mem_bytes=None)
    assert (
        show(harness.context, JobQuery("1")).share,
        show(harness.context, JobQuery("1")).gpu_mem_bytes,
    ) == (
        None,
        None,
    )


def test_a_reboot_does_not_make_a_kind_run_alone_for_longer(
    harness: Harness, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 1_700_000_000.0
    monkeypatch.setattr("time.time", lambda: day)
    harness.now = 950_000.0
    learn(harness)
    harness.add(*(f"train {n}" for n in range(4)), share="auto")
    run_out(harness, "5.1")
    run_out(harness, "6.1")
    while running := [*harness.engine.slot_table.running.values()]:
        harness.end(running[0].key)
    harness.wait(6)
    harness.add(*(f"train {n}" for n in range(4)), share="auto")
    assert crowd(harness) == {"0": 1, "1": 1}

    harness.now, day = 100.0, day + 3601
    harness.restart(supervisor_too=True)
    machine.attach()
    harness.add(*(f"train {n}" for n in range(4)), share="auto")
    assert sum(crowd(harness).values()) > 2


def foretell_at_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: harness.now)
    monkeypatch.setattr(eta, "_FRESH_S", -1.0)
    monkeypatch.setattr(eta, "_MAX_LOAD", float("inf"))


def test_the_forecast_of_the_queue_uses_the_simulator_for_sharing_jobs(
    harness: Harness, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    foretell_at_once(harness, monkeypatch)
    learn(harness)
    harness.pause(queue=True)
    harness.add(*(f"train {n}" for n in range(40)), share="auto")
    alone_s = 40 / 2 * 60
    shared_s = status(harness.context).eta_s
    # Four share each of two GPUs, each run slowed a little by the others.
    assert shared_s is not None
    assert alone_s / 4 <= shared_s < alone_s / 3

    harness.add(*(f"train {n}" for n in range(10)))
    with_others_s = status(harness.context).eta_s
    assert with_others_s is not None
    assert shared_s + 10 / 2 * 60 == pytest.approx(with_others_s, rel=0.2)


def test_starts_of_sharing_jobs_are_foretold_by_the_simulator(
    harness: Harness, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    foretell_at_once(harness, monkeypatch)
    learn(harness)
    harness.pause(queue=True)
    harness.add(*(f"train {n}" for n in range(12)), share="auto")
    planned = harness.context.eta.planned_starts()
    assert len(planned) == 12
    at_once = [each for each in planned if each.start_s == 0]
    assert len(at_once) == 8  # four share each of two GPUs
    assert {each.slots for each in at_once} == {("0",), ("1",)}
    assert all(each.start_s >= 60 for each in planned if each not in at_once)


def test_supposed_jobs_share_gpus_in_the_simulation_as_others_of_their_kind(
    harness: Harness, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    foretell_at_once(harness, monkeypatch)
    learn(harness)
    order = WhatIf(command="train 9", cwd=str(harness.home), runs=8)
    alone = what_if(harness.context, order)
    shared = what_if(harness.context, msgspec.structs.replace(order, share="auto"))
    assert alone.end_at is not None
    assert shared.end_at is not None
    assert len(shared.planned) == 8
    assert shared.end_at < alone.end_at


def test_the_forecast_assumes_that_an_unknown_kind_does_not_share(
    harness: Harness, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    foretell_at_once(harness, monkeypatch)
    learn(harness)
    harness.pause(queue=True)
    harness.add(*(f"other {n}" for n in range(10)), share="auto")
    harness.add("train 1")
    assert status(harness.context).eta_s == pytest.approx(11 / 2 * 60, rel=0.1)


class Crowded(Machine):
    """A machine on whose GPUs processes of others hold memory."""

    others: Mapping[str, float] = {}

    def look(self) -> Look:
        seen = super().look()
        gpus = {
            key: msgspec.structs.replace(
                use, used_bytes=use.used_bytes + int(self.others.get(key, 0) * GIB)
            )
            for key, use in seen.gpus.items()
        }
        return msgspec.structs.replace(seen, gpus=gpus)


class TestThresholdsForTheFirst:
    """gpulimit's thresholds hold also for the first task on a GPU, and count the memory of others."""

    def test_a_gpu_with_too_little_memory_free_gets_no_task(self, harness: Harness) -> None:
        machine = Crowded(harness)
        machine.others = {"GPU-0": 18, "GPU-1": 3}  # 25 % and 87 % are free
        harness.add("train 1", "train 2", share="free")

        assert crowd(harness) == {"1": 2}

    def test_a_task_starts_when_others_release_their_memory(self, harness: Harness) -> None:
        machine = Crowded(harness)
        machine.others = {"GPU-0": 18, "GPU-1": 18}
        harness.add("train 1", share="free")
        assert crowd(harness) == {}
        assert "25% of its memory is free; 50% must stay free" in harness.why(1)

        machine.others = {"GPU-0": 18}
        due_s = harness.engine.patience_s()
        assert due_s is not None
        harness.wait(due_s)
        assert crowd(harness) == {"1": 1}

    def test_too_little_ram_keeps_every_task_waiting(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Crowded(harness)
        monkeypatch.setattr("stoker.engine.sharing.read_free_ram", lambda: 0.1)
        harness.add("train 1", share="free")
        assert crowd(harness) == {}
        assert "10% of the RAM is free; 20% must stay free" in harness.why(1)

    def test_a_forced_start_ignores_thresholds(self, harness: Harness) -> None:
        machine = Crowded(harness)
        machine.others = {"GPU-0": 18, "GPU-1": 18}
        harness.add("train 1", "train 2", "train 3", share="free")
        for job in ("3", "1", "2"):
            harness.start(job)

        assert sum(crowd(harness).values()) == 3

    def test_a_forced_start_joins_tasks_beside_foreign_processes(self, harness: Harness) -> None:
        machine = Crowded(harness)
        machine.others = {"GPU-0": 18, "GPU-1": 18}
        machine.foreigners = (Foreigner(4711, "ada", 18 * GIB),)
        harness.add("train 1", "train 2", "train 3", share="free")
        for job in ("3", "1", "2"):
            harness.start(job)

        assert sum(crowd(harness).values()) == 3

    def test_a_task_joins_one_that_was_forced(self, harness: Harness, machine: Machine) -> None:
        harness.gpus("drain", "1")
        harness.config("gpulimit.safety_keep_gpu_memory", "1")
        harness.add("train 1", "train 2", share="free")
        harness.start("2")
        assert crowd(harness) == {"0": 2}

        harness.config("gpulimit.safety_keep_gpu_memory", "0.5")
        harness.add("train 3", share="free")
        assert crowd(harness) == {"0": 3}


def test_a_second_task_waits_2_seconds_for_a_first_that_shows_no_memory(
    harness: Harness, machine: Machine
) -> None:
    harness.gpus("drain", "1")
    machine.held = {1: 0}
    machine.age_s = 1.9
    harness.add("train 1", "train 2", share="free")
    assert crowd(harness) == {"0": 1}
    assert "the memory use of job 1 is not measured yet" in harness.why(2)

    machine.age_s = 2.0
    due_s = harness.engine.patience_s()
    assert due_s is not None
    assert due_s <= 2.0
    harness.wait(due_s)
    assert crowd(harness) == {"0": 2}
