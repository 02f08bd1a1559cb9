"""What the sampler makes of a driver's answers, second by second."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from patience import PATIENCE_S
from stoker.core.usage import Sight
from stoker.gpus.driver import Gpu, Reading
from stoker.gpus.gpu_discovery import GpuDiscovery, enumerate_within
from stoker.gpus.sampler import Sampler, peek_pause_s
from unit.gpus.driver import GIB, GPU, SECOND, Driver

FAR_PID = 1 << 30  # beyond every kernel's pid_max: nobody of our namespace
MINE, YOURS = os.getpid(), os.getppid()


class Scene:
    """A sampler that is asked to look by the test, second by second."""

    def __init__(self, *gpus: Gpu, period_s: float = 1.0) -> None:
        self.driver = Driver(*(gpus or (GPU,)))
        self.now = 1000.0
        self.running: dict[str, tuple[str, ...]] = {}
        self.starting: set[str] = set()
        self.owners: dict[int, str | None] = {}
        self.asked: list[int] = []
        self.changes = 0
        self.sampler = Sampler(
            self.driver,
            subjects=lambda: self.running,
            owner_of=self._owner_of,
            awaits=self._awaits,
            changed=self._on_change,
            period_s=period_s,
            clock=lambda: self.now,
        )

    def _owner_of(self, pid: int) -> str | None:
        self.asked.append(pid)
        return self.owners.get(pid)

    def _awaits(self, gpu_key: str) -> bool:
        return gpu_key in {*self.starting, *(key for keys in self.running.values() for key in keys)}

    def _on_change(self) -> None:
        self.changes += 1

    def start(self, key: str, pid: int, mem_bytes: int | None, *gpus: Gpu) -> None:
        self.running[key] = tuple(gpu.uuid for gpu in gpus or (GPU,))
        self.owners[pid] = key
        for gpu in gpus or (GPU,):
            self.driver.held[gpu.uuid][pid] = mem_bytes

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.sampler.sample()

    def sight(self) -> Sight:
        return self.sampler.look.gpus["GPU-0"].sight


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_job_s_memory_and_share_of_time_are_its_processes(scene: Scene) -> None:
    scene.start("1.1", MINE, 3 * GIB)
    scene.driver.sm = {MINE: 70, FAR_PID: 20}
    scene.pass_s(1)

    look = scene.sampler.look
    assert look.jobs["1.1"].mem_bytes == {"GPU-0": 3 * GIB}
    assert look.jobs["1.1"].sm_pct == 70
    assert look.gpus["GPU-0"].used_bytes == 3 * GIB
    assert look.gpus["GPU-0"].may_be_packed


def test_what_a_server_of_mps_computes_is_its_only_client_s(scene: Scene) -> None:
    scene.start("1.1", MINE, 3 * GIB)
    scene.owners[YOURS] = ""
    scene.driver.held["GPU-0"][YOURS] = GIB // 32
    scene.driver.sm = {YOURS: 70}
    scene.pass_s(1)
    assert scene.sampler.look.jobs["1.1"].sm_pct == 30, "what the GPU as a whole is kept busy"

    scene.start("2.1", 1, GIB)
    scene.pass_s(1)
    assert scene.sampler.look.jobs["1.1"].sm_pct is None, "whose of the two it is"


def test_peaks_and_means_are_kept_for_the_attempt(scene: Scene) -> None:
    scene.start("1.1", MINE, 2 * GIB)
    scene.driver.sm = {MINE: 20}
    scene.pass_s(1)
    scene.driver.held["GPU-0"][MINE] = 6 * GIB
    scene.driver.sm = {MINE: 80}
    scene.pass_s(1)

    use = scene.sampler.take("1.1")

    assert use is not None
    assert use.mem_peak_bytes == 6 * GIB
    assert use.mem_mean_bytes == 4 * GIB
    assert (use.sm_mean_pct, use.sm_p90_pct) == (50, 80)
    assert use.samples == 2
    assert scene.sampler.take("1.1") is None


def test_a_job_on_two_gpus_counts_the_larger_memory() -> None:
    scene = Scene(GPU, SECOND)
    scene.start("1.1", MINE, 2 * GIB, GPU, SECOND)
    scene.driver.held["GPU-1"][MINE] = 5 * GIB
    scene.pass_s(1)

    assert scene.sampler.look.jobs["1.1"].so_far.mem_peak_bytes == 5 * GIB


def test_a_foreign_process_is_reported_with_user_and_memory(scene: Scene) -> None:
    scene.driver.held["GPU-0"][MINE] = GIB
    scene.pass_s(1)

    use = scene.sampler.look.gpus["GPU-0"]
    assert use.foreign_bytes == GIB
    assert [(each.pid, each.user is None) for each in use.foreigners] == [(MINE, False)]


def test_memory_of_the_driver_is_neither_used_nor_free(scene: Scene) -> None:
    scene.driver.driver_bytes = GIB
    scene.driver.held["GPU-0"][MINE] = 2 * GIB
    scene.pass_s(1)

    use = scene.sampler.look.gpus["GPU-0"]
    assert (use.used_bytes, use.driver_bytes, use.free_bytes) == (2 * GIB, GIB, 5 * GIB)


def test_the_owner_of_a_process_is_looked_up_once(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(3)
    assert scene.asked == [MINE]
    process = scene.driver.held["GPU-0"].pop(MINE)
    scene.pass_s(1)
    scene.driver.held["GPU-0"][MINE] = process
    scene.pass_s(1)
    assert scene.asked == [MINE, MINE]


def test_the_list_is_read_each_second_only_while_a_job_is_new(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(60)
    new = scene.driver.lists
    scene.pass_s(60)
    later = scene.driver.lists - new
    scene.pass_s(600)
    before = scene.driver.lists
    scene.pass_s(60)

    assert new >= 60
    assert 29 <= later <= 32
    assert scene.driver.lists - before == 12


def test_growth_between_two_lists_belongs_to_a_job_that_is_alone(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(63)
    lists = scene.driver.lists
    scene.driver.more_bytes["GPU-0"] = GIB
    scene.pass_s(1)

    assert scene.driver.lists == lists
    assert scene.sampler.look.jobs["1.1"].mem_bytes == {"GPU-0": 2 * GIB}


def test_flat_and_growing_memory_are_distinguished(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(30)
    assert scene.sampler.look.jobs["1.1"].flat_s == 29
    scene.driver.held["GPU-0"][MINE] = 2 * GIB
    scene.pass_s(1)
    job = scene.sampler.look.jobs["1.1"]
    assert (job.flat_s, job.watched_s) == (0, 30)


def test_unattributed_memory_belongs_to_a_job_that_is_alone(scene: Scene) -> None:
    scene.driver.more_bytes["GPU-0"] = GIB // 2
    scene.pass_s(1)
    scene.start("1.1", MINE, None)
    scene.driver.more_bytes["GPU-0"] = 3 * GIB
    scene.pass_s(1)

    assert scene.sampler.look.gpus["GPU-0"].sight is Sight.DEVICE
    assert scene.sampler.look.jobs["1.1"].mem_bytes == {"GPU-0": 5 * GIB // 2}
    assert scene.sampler.look.jobs["1.1"].sm_pct == 30
    scene.start("2.1", YOURS, None)
    scene.pass_s(1)
    assert scene.sampler.look.jobs["1.1"].mem_bytes is None


def test_pids_of_another_namespace_end_the_sight_of_processes(scene: Scene) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, GIB)
    del scene.driver.held["GPU-0"][MINE]
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(1)

    use = scene.sampler.look.gpus["GPU-0"]
    assert use.sight is Sight.DEVICE
    assert use.foreigners == ()
    assert scene.sampler.look.jobs["1.1"].mem_bytes == {"GPU-0": GIB}


def test_an_invisible_process_from_before_any_job_is_foreign(scene: Scene) -> None:
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(1)

    use = scene.sampler.look.gpus["GPU-0"]
    assert use.sight is Sight.PROCESSES
    assert [(each.pid, each.user) for each in use.foreigners] == [(FAR_PID, None)]


def test_an_invisible_process_that_comes_without_a_job_is_foreign() -> None:
    scene = Scene(GPU, SECOND)
    scene.start("1.1", MINE, GIB, SECOND)
    scene.pass_s(1)
    scene.driver.held["GPU-0"][FAR_PID] = 7 * GIB
    scene.pass_s(2)

    use = scene.sampler.look.gpus["GPU-0"]
    assert [(each.pid, each.user) for each in use.foreigners] == [(FAR_PID, None)]
    scene.start("2.1", YOURS, GIB)
    scene.pass_s(1)
    assert scene.sampler.look.gpus["GPU-0"].foreigners == use.foreigners
    assert scene.sampler.look.jobs["2.1"].mem_bytes == {"GPU-0": GIB}


def test_an_invisible_process_that_comes_while_a_job_starts_may_be_the_job(scene: Scene) -> None:
    scene.pass_s(1)
    scene.starting.add("GPU-0")
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(2)

    assert scene.sampler.look.gpus["GPU-0"].foreigners == ()
    assert scene.sight() is Sight.DEVICE


def test_an_invisible_process_that_comes_during_a_memory_release_may_be_ours(
    scene: Scene,
) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.sampler.take("1.1")
    del scene.running["1.1"]
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(1)
    assert scene.sampler.look.gpus["GPU-0"].foreign_bytes == 0
    del scene.driver.held["GPU-0"][MINE]
    scene.pass_s(3)

    assert [each.pid for each in scene.sampler.look.gpus["GPU-0"].foreigners] == [FAR_PID]


def test_the_pid_of_a_gone_foreign_process_is_forgotten(scene: Scene) -> None:
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(1)
    del scene.driver.held["GPU-0"][FAR_PID]
    scene.pass_s(2)
    scene.running["1.1"] = ("GPU-0",)
    scene.driver.held["GPU-0"][FAR_PID] = GIB
    scene.pass_s(1)

    assert scene.sampler.look.gpus["GPU-0"].foreigners == ()


def test_a_driver_that_lists_no_processes_shows_the_sum_alone(scene: Scene) -> None:
    scene.driver.unlisted.add("GPU-0")
    scene.pass_s(1)
    lists = scene.driver.lists
    scene.start("1.1", MINE, 5 * GIB)
    scene.pass_s(12)

    assert scene.sight() is Sight.DEVICE
    assert scene.driver.lists == lists + 12
    use = scene.sampler.take("1.1")
    assert use is not None
    assert use.mem_peak_bytes == 5 * GIB


def test_a_process_list_without_the_running_job_is_not_trusted(scene: Scene) -> None:
    scene.driver.more_bytes["GPU-0"] = GIB // 4  # of a desktop, which no list tells of
    scene.pass_s(1)
    scene.start("1.1", MINE, 5 * GIB)
    del scene.driver.held["GPU-0"][MINE]
    scene.pass_s(2)
    assert scene.sight() is Sight.PROCESSES
    scene.driver.more_bytes["GPU-0"] += 5 * GIB
    scene.pass_s(2)

    assert scene.sight() is Sight.DEVICE
    assert scene.sampler.look.jobs["1.1"].mem_bytes == {"GPU-0": 5 * GIB}


def test_a_process_list_with_the_job_is_trusted_again(scene: Scene) -> None:
    scene.pass_s(1)
    scene.running["1.1"] = ("GPU-0",)
    scene.driver.more_bytes["GPU-0"] = GIB
    scene.pass_s(2)
    del scene.running["1.1"]
    scene.driver.more_bytes.clear()
    scene.pass_s(2)
    assert scene.sight() is Sight.DEVICE
    scene.start("2.1", MINE, GIB)
    scene.pass_s(2)

    assert scene.sight() is Sight.PROCESSES
    assert scene.sampler.look.jobs["2.1"].mem_bytes == {"GPU-0": GIB}


def test_a_process_list_that_explains_growth_is_trusted(scene: Scene) -> None:
    scene.driver.held["GPU-0"][YOURS] = GIB
    scene.pass_s(1)
    scene.running["1.1"] = ("GPU-0",)
    scene.driver.held["GPU-0"][YOURS] = 4 * GIB
    scene.pass_s(3)

    assert scene.sight() is Sight.PROCESSES


def test_memory_of_a_process_that_just_ended_does_not_discredit_the_list(
    scene: Scene,
) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    del scene.driver.held["GPU-0"][MINE]
    scene.driver.more_bytes["GPU-0"] = GIB
    scene.pass_s(1)
    scene.driver.more_bytes.clear()
    scene.pass_s(1)

    assert scene.sight() is Sight.PROCESSES


def test_foreign_processes_stay_while_the_driver_lists_none(scene: Scene) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        scene.driver.held["GPU-0"] = {stranger.pid: GIB, FAR_PID: 2 * GIB}
        scene.pass_s(1)
        scene.driver.unlisted.add("GPU-0")
        scene.pass_s(4)
        use = scene.sampler.look.gpus["GPU-0"]
        assert [each.pid for each in use.foreigners] == [stranger.pid, FAR_PID]
    scene.driver.held["GPU-0"] = {FAR_PID: 2 * GIB}
    scene.pass_s(4)
    assert [each.pid for each in scene.sampler.look.gpus["GPU-0"].foreigners] == [FAR_PID]
    scene.driver.held["GPU-0"] = {}
    scene.pass_s(4)
    assert scene.sampler.look.gpus["GPU-0"].foreigners == ()


def test_a_lost_gpu_shows_nothing_and_the_others_go_on() -> None:
    scene = Scene(GPU, SECOND)
    scene.start("1.1", MINE, GIB)
    scene.start("2.1", YOURS, GIB, SECOND)
    scene.pass_s(2)
    scene.driver.lost.add("GPU-0")
    scene.pass_s(1)

    look = scene.sampler.look
    assert look.gpus["GPU-0"].sight is Sight.NONE
    assert look.jobs["1.1"].mem_bytes is None
    assert look.jobs["2.1"].mem_bytes == {"GPU-1": GIB}


def test_measurements_from_before_a_gpu_was_lost_are_kept(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.driver.lost.add("GPU-0")
    scene.pass_s(1)

    use = scene.sampler.take("1.1")
    assert use is not None
    assert use.mem_peak_bytes == GIB


def test_memory_of_an_ended_job_is_waited_for(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.sampler.take("1.1")
    del scene.running["1.1"]
    scene.pass_s(1)
    assert scene.sampler.releasing("GPU-0")
    assert not scene.sampler.look.gpus["GPU-0"].may_be_packed

    del scene.driver.held["GPU-0"][MINE]
    scene.pass_s(1)
    assert not scene.sampler.releasing("GPU-0")


def test_memory_that_is_released_at_once_is_reported_too(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.sampler.take("1.1")
    del scene.running["1.1"], scene.driver.held["GPU-0"][MINE]
    before = scene.changes
    scene.pass_s(1)

    assert not scene.sampler.releasing("GPU-0")
    assert scene.changes == before + 1


def test_each_ended_job_is_waited_for_separately(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.start("2.1", YOURS, GIB)
    scene.pass_s(1)
    for key in ("1.1", "2.1"):
        scene.sampler.take(key)
        del scene.running[key]
        scene.now += 10
    del scene.driver.held["GPU-0"][YOURS]
    scene.pass_s(1)
    assert scene.sampler.releasing("GPU-0")
    assert not scene.sampler.look.gpus["GPU-0"].may_be_packed

    scene.pass_s(9)
    assert list(scene.sampler.overdue) == [("GPU-0", "1.1")]
    assert not scene.sampler.releasing("GPU-0")


def test_memory_that_is_not_released_is_waited_for_half_a_minute(
    scene: Scene,
) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.sampler.take("1.1")
    del scene.running["1.1"]
    scene.pass_s(29)
    assert scene.sampler.releasing("GPU-0")
    assert not scene.sampler.overdue
    scene.pass_s(1)
    assert not scene.sampler.releasing("GPU-0")
    assert list(scene.sampler.overdue) == [("GPU-0", "1.1")]


def test_the_wait_for_memory_ends_when_the_driver_hangs(
    scene: Scene,
) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.sampler.take("1.1")
    assert scene.sampler.release_wait_s() == 30
    scene.now += 29
    assert scene.sampler.releasing("GPU-0")
    scene.now += 1
    assert not scene.sampler.releasing("GPU-0")
    assert scene.sampler.release_wait_s() is None


def test_only_changes_are_reported(scene: Scene) -> None:
    scene.pass_s(3)
    assert scene.changes == 1
    scene.driver.more_bytes["GPU-0"] = GIB
    scene.pass_s(3)
    assert scene.changes == 1
    scene.driver.held["GPU-0"][MINE] = GIB
    scene.pass_s(3)
    assert scene.changes == 2


def test_the_history_of_the_last_minutes_is_kept(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(400)

    assert list(scene.sampler.history["GPU-0"])[-1] == (1400.0, GIB, 30)
    assert len(scene.sampler.history["GPU-0"]) == len(scene.sampler.histories()["1.1"]) == 300


def test_the_history_of_an_ended_attempt_is_kept_for_a_while(scene: Scene) -> None:
    scene.start("1.1", MINE, GIB)
    scene.pass_s(3)
    drawn = scene.sampler.history_of("1.1")
    assert [mem_bytes for _at_s, mem_bytes, _share in drawn] == [GIB] * 3
    scene.sampler.take("1.1")
    assert scene.sampler.history_of("1.1") == drawn
    for job in range(2, 70):
        scene.running.clear()
        scene.start(f"{job}.1", MINE, GIB)
        scene.pass_s(1)
        scene.sampler.take(f"{job}.1")
    assert scene.sampler.history_of("1.1") == []
    assert scene.sampler.history_of("69.1") != []


@pytest.fixture
def thread(scene: Scene) -> Iterator[Callable[[], bool]]:
    """A sampler at work, and a way to have it look."""
    scene.sampler.start()
    yield lambda: scene.sampler.sample_now(PATIENCE_S)
    scene.driver.answers.set()
    scene.sampler.stop()
    assert not scene.sampler.is_alive()


def test_an_idle_sampler_asks_the_driver_nothing(scene: Scene) -> None:
    scene.sampler.start()
    scene.sampler.stop()

    assert (scene.driver.lists, scene.driver.glances) == (0, 0)


def test_a_requested_sample_has_all_processes(scene: Scene, thread: Callable[[], bool]) -> None:
    assert thread()
    lists = scene.driver.lists
    scene.driver.held["GPU-0"][MINE] = GIB

    assert thread()
    assert scene.driver.lists > lists
    assert scene.sampler.look.gpus["GPU-0"].foreign_bytes == GIB


def test_a_hung_driver_delays_no_caller(scene: Scene, thread: Callable[[], bool]) -> None:
    assert thread()
    seen = scene.sampler.look
    scene.driver.answers.clear()

    assert not scene.sampler.sample_now(0.01)
    assert scene.sampler.look is seen


def test_signs_of_a_new_gpu_lead_to_an_enumeration() -> None:
    driver = Driver(GPU)
    told: list[int] = []
    renewal = GpuDiscovery(driver, lambda: told.append(driver.looks))
    latest = {"GPU-0": Reading(GPU)}
    renewal.follow(latest)
    assert not told
    driver.signs = True

    renewal.follow(latest)

    assert told == [1]


def test_an_enumeration_does_not_wait_for_a_hung_driver() -> None:
    driver = Driver(GPU)
    driver.answers.clear()
    assert not enumerate_within(driver, 0.01)
    driver.answers.set()
    assert enumerate_within(driver, PATIENCE_S)


def test_a_gpu_that_stays_lost_is_asked_for_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(GPU)
    now = [0.0]
    monkeypatch.setattr("stoker.gpus.gpu_discovery.time.monotonic", lambda: now[0])
    renewal = GpuDiscovery(driver, lambda: None)
    looked_at = []
    while now[0] < 200:
        before = driver.looks
        renewal.follow({"GPU-0": Reading(GPU, lost=True)})
        if driver.looks > before:
            looked_at.append(now[0])
        now[0] += 1

    assert looked_at == [0, 4, 12, 28, 60, 120, 180]


def test_memory_held_between_two_samples_counts_for_the_peak_of_a_new_lone_job(
    scene: Scene,
) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, 0)
    scene.pass_s(2)
    scene.driver.held[GPU.uuid][MINE] = 3 * GIB
    scene.sampler.peek()
    scene.driver.held[GPU.uuid][MINE] = GIB
    scene.pass_s(1)
    use = scene.sampler.look.jobs["1.1"]
    assert use.mem_bytes == {"GPU-0": GIB}
    assert use.so_far.mem_peak_bytes == 3 * GIB


def test_a_job_that_ends_between_two_samples_shows_its_peak(scene: Scene) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, 0)
    scene.pass_s(1)
    scene.driver.held[GPU.uuid][MINE] = 3 * GIB
    scene.sampler.peek()
    use = scene.sampler.take("1.1")
    assert use is not None
    assert use.mem_peak_bytes == 3 * GIB


def test_memory_between_two_samples_of_jobs_that_share_belongs_to_neither(scene: Scene) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, GIB)
    scene.start("2.1", YOURS, GIB)
    scene.pass_s(1)
    scene.driver.held[GPU.uuid][MINE] = 3 * GIB
    scene.sampler.peek()
    scene.driver.held[GPU.uuid][MINE] = GIB
    scene.pass_s(1)
    assert scene.sampler.look.jobs["2.1"].so_far.mem_peak_bytes == GIB


def test_memory_of_foreign_processes_between_two_samples_is_not_the_job_s(scene: Scene) -> None:
    scene.driver.held[GPU.uuid][YOURS] = GIB
    scene.pass_s(1)
    scene.start("1.1", MINE, GIB)
    scene.pass_s(1)
    scene.driver.held[GPU.uuid][YOURS] = 4 * GIB
    scene.sampler.peek()
    scene.pass_s(1)
    assert scene.sampler.look.jobs["1.1"].so_far.mem_peak_bytes == GIB


def test_a_job_that_starts_and_ends_between_two_samples_shows_its_peak(scene: Scene) -> None:
    scene.driver.more_bytes["GPU-0"] = GIB // 4  # of a desktop
    scene.pass_s(1)
    lists = scene.driver.lists
    scene.start("1.1", MINE, 3 * GIB)
    scene.sampler.peek()
    scene.driver.held[GPU.uuid][MINE] = GIB
    scene.sampler.peek()
    use = scene.sampler.take("1.1")
    assert use is not None
    assert (use.mem_peak_bytes, use.samples, use.alone) == (3 * GIB, 0, True)
    assert scene.driver.lists == lists


def test_a_job_that_was_watched_before_its_first_sample_is_sampled_with_its_processes(
    scene: Scene,
) -> None:
    scene.pass_s(1)
    lists = scene.driver.lists
    scene.start("1.1", MINE, 3 * GIB)
    scene.sampler.peek()
    scene.driver.held[GPU.uuid][MINE] = GIB
    scene.sampler.sample()
    assert scene.driver.lists == lists + 1
    use = scene.sampler.look.jobs["1.1"]
    assert (use.mem_bytes, use.so_far.mem_peak_bytes) == ({"GPU-0": GIB}, 3 * GIB)


def test_jobs_that_share_between_two_samples_show_only_what_one_used_alone(scene: Scene) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, GIB)
    scene.sampler.peek()
    scene.start("2.1", YOURS, 4 * GIB)
    scene.sampler.peek()
    first, second = scene.sampler.take("1.1"), scene.sampler.take("2.1")
    assert first is not None
    assert (first.mem_peak_bytes, first.alone) == (GIB, False)
    assert second is None


def test_memory_that_the_previous_job_has_not_released_is_not_the_next_one_s(scene: Scene) -> None:
    scene.pass_s(1)
    scene.start("1.1", MINE, 5 * GIB)
    scene.sampler.peek()
    scene.sampler.take("1.1")
    del scene.running["1.1"]
    scene.start("2.1", YOURS, 0)
    scene.sampler.peek()
    del scene.driver.held[GPU.uuid][MINE]
    scene.driver.held[GPU.uuid][YOURS] = 2 * GIB
    scene.sampler.peek()
    use = scene.sampler.take("2.1")
    assert use is not None
    assert use.mem_peak_bytes == 2 * GIB


def test_a_start_is_watched_at_once_although_an_older_job_runs() -> None:
    scene = Scene(GPU, SECOND, period_s=3600.0)
    scene.start("1.1", MINE, GIB, SECOND)
    scene.sampler.sample()
    scene.now += 100.0  # no longer new
    scene.sampler.start()
    try:
        assert scene.sampler.sample_now(PATIENCE_S)
        scene.start("2.1", YOURS, GIB)
        scene.sampler.on_start()
        deadline = time.monotonic() + PATIENCE_S
        while "2.1" not in scene.sampler.histories():
            assert time.monotonic() < deadline
    finally:
        scene.sampler.stop()


@pytest.mark.parametrize("gpus", [1, 4, 5, 8])
def test_new_jobs_are_watched_at_a_bounded_cost(gpus: int) -> None:
    readings_per_s = gpus / peek_pause_s(gpus)
    assert 10 * gpus <= readings_per_s <= 80
