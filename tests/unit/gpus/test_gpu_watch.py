from __future__ import annotations

import queue
from typing import TYPE_CHECKING

import pytest

from stoker.gpus.nvml import Gpu, Nvml, Reading
from stoker.gpus.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = Gpu(0, "GPU-0", "A100", 8 << 30, is_mig=False)
PATIENCE_S = 10.0


class Counting(Nvml):
    """An NVML whose GPU's used memory is the number of times it was read."""

    def __init__(self) -> None:
        self._gpus = (GPU,)
        self.reads = 0
        self.failing = False

    def read(self, gpu: Gpu, processes: bool = True) -> Reading:
        self.reads += 1
        return Reading(gpu, mem_used_bytes=self.reads, lost=self.failing)


@pytest.fixture
def nvml() -> Counting:
    return Counting()


@pytest.fixture
def seen() -> queue.Queue[Reading]:
    return queue.Queue()


@pytest.fixture
def watch(nvml: Counting, seen: queue.Queue[Reading]) -> Iterator[Watch]:
    watch = Watch(nvml, period_s=0.001, changed=lambda _key, reading: seen.put(reading))
    watch.start()
    yield watch
    watch.stop()


def test_an_active_watch_reads_again_and_again_and_keeps_the_latest(
    watch: Watch, seen: queue.Queue[Reading]
) -> None:
    watch.active.set()

    assert [seen.get(timeout=PATIENCE_S).mem_used_bytes for _ in range(3)] == [1, 2, 3]
    assert watch.latest["GPU-0"].mem_used_bytes >= 3


def test_an_idle_watch_reads_nothing(watch: Watch, nvml: Counting) -> None:
    watch.stop()

    assert nvml.reads == 0
    assert watch.latest == {}


def test_a_lost_gpu_is_news_and_the_watch_lives_on(
    watch: Watch, nvml: Counting, seen: queue.Queue[Reading]
) -> None:
    nvml.failing = True
    watch.active.set()
    assert seen.get(timeout=PATIENCE_S).lost
    nvml.failing = False

    while seen.get(timeout=PATIENCE_S).lost:
        pass
    assert watch.is_alive()


def test_a_stopped_watch_ends(watch: Watch) -> None:
    watch.active.set()
    watch.stop()

    assert not watch.is_alive()


class Growing(Counting):
    """An NVML that shows signs of a second GPU, which it knows of once it has looked anew."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.signs = False

    def may_have_changed(self) -> bool:
        return self.signs

    def look_anew(self) -> bool:
        self.looks += 1
        self.signs = False
        self._gpus = (GPU, Gpu(1, "GPU-1", "A100", 8 << 30, is_mig=False))
        return True


def test_signs_of_a_new_gpu_are_followed_up_and_told() -> None:
    nvml = Growing()
    told: queue.Queue[None] = queue.Queue()
    watch = Watch(nvml, period_s=0.001, renewed=lambda: told.put(None))
    watch.start()
    watch.active.set()
    while "GPU-0" not in watch.latest:
        pass
    assert nvml.looks == 0
    nvml.signs = True

    told.get(timeout=PATIENCE_S)
    while "GPU-1" not in watch.latest:
        pass
    watch.stop()
    assert nvml.looks == 1


def test_a_gpu_that_stays_lost_is_asked_for_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = Growing()
    nvml.failing = True
    now = [0.0]
    monkeypatch.setattr("stoker.gpus.watch.time.monotonic", lambda: now[0])
    watch = Watch(nvml, renewed=lambda: None)
    looked_at = []
    while now[0] < 200:
        before = nvml.looks
        for gpu in nvml.gpus():
            watch._sample(gpu)
        watch._renew_if_need_be()
        if nvml.looks > before:
            looked_at.append(now[0])
        now[0] += 1

    assert looked_at == [0, 4, 12, 28, 60, 120, 180]
