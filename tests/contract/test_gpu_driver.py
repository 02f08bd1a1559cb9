"""What Stoker relies on every GPU driver for, over the fake of each: NVML, AMD's files, and both at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from contract.test_nvml import Machine
from stoker.core.gpu_links import Link
from stoker.gpus.driver import GpuProcess
from stoker.testing.amd_tree import AmdTree
from stoker.testing.state import GIB, FakeGpus


class Mixed:
    """A machine with a card of each maker, behind the calls of both fakes: GPU 1 is AMD's."""

    def __init__(self, nvidia: FakeGpus, amd: AmdTree) -> None:
        self.nvidia, self.amd = nvidia, amd

    def env(self) -> dict[str, str]:
        return {**self.nvidia.env(), **self.amd.env()}

    def use(self, pid: int, gpu: int, count: int) -> None:
        (self.amd if gpu else self.nvidia).use(pid, 0, count)

    def release(self, pid: int) -> None:
        self.nvidia.release(pid)

    def lose(self, gpu: int) -> None:
        (self.amd if gpu else self.nvidia).lose(0)

    def plug(self) -> None:
        self.amd.plug()


Box = FakeGpus | AmdTree | Mixed


@pytest.fixture(params=["nvidia", "amd", "both"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    if request.param == "amd":
        return AmdTree(tmp_path / "amd").create(2)
    if request.param == "nvidia":
        return FakeGpus(tmp_path / "nvidia").create(2, 8 * GIB)
    amd = AmdTree(tmp_path / "amd").create(1)
    return Mixed(FakeGpus(tmp_path / "nvidia").create(1, 8 * GIB), amd)


@pytest.fixture
def machine(box: Box) -> Iterator[Machine[Box]]:
    machine: Machine[Box] = Machine(box)
    yield machine
    machine.close()


def test_gpus_have_names_keys_and_memory_of_their_own(machine: Machine[Box]) -> None:
    gpus = machine.gpus()

    assert machine.ask("open") == b"null\n"
    assert len({gpu.label for gpu in gpus}) == len({gpu.uuid for gpu in gpus}) == 2
    assert all(gpu.name and gpu.mem_total_bytes == 8 * GIB for gpu in gpus)


def test_memory_and_its_process_are_those_of_the_gpu_that_is_used(
    machine: Machine[Box], box: Box
) -> None:
    box.use(os.getpid(), 1, 3 * GIB)
    first, second = machine.read()

    assert (first.processes, first.mem_used_bytes) == ((), 0)
    assert second.processes == (GpuProcess(os.getpid(), 3 * GIB),)
    assert (second.mem_used_bytes, second.mem_free_bytes) == (3 * GIB, 5 * GIB)
    assert machine.read("glance")[1].mem_used_bytes == 3 * GIB
    assert machine.read("glance")[1].processes == ()


def test_an_idle_gpu_tells_load_temperature_and_power(machine: Machine[Box]) -> None:
    for reading in machine.read():
        assert reading.utilisation_pct == 0
        assert 0 < (reading.temperature_c or 0) < 120
        assert 0 < (reading.power_w or 0) < 2000


def test_a_lost_gpu_reads_as_lost_and_the_other_goes_on(machine: Machine[Box], box: Box) -> None:
    before = machine.gpus()
    box.lose(1)

    assert [reading.lost for reading in machine.read()] == [False, True]
    assert [reading.lost for reading in machine.read("glance")] == [False, True]
    assert machine.gpus() == before


def test_a_new_gpu_shows_signs_and_is_found(machine: Machine[Box], box: Box) -> None:
    assert machine.ask("signs") == b"false\n"
    box.plug()

    assert machine.ask("signs") == b"true\n"
    assert machine.ask("anew") == b"true\n"
    assert len(machine.gpus()) == 3


def test_a_closed_driver_reads_every_gpu_as_lost(machine: Machine[Box]) -> None:
    machine.ask("close")

    assert all(reading.lost for reading in machine.read())


def test_xgmi_counts_as_nvlink_and_one_numa_node_as_such(tmp_path: Path) -> None:
    tree = AmdTree(tmp_path).create(4)
    tree.join(0, 2)
    machine = Machine(tree)
    links = machine.links()
    machine.close()

    other = [Link.OTHER] * 3
    assert links == [Link.NODE, Link.NVLINK, Link.OTHER, *other[:2], Link.NODE]


def test_rocr_visible_devices_leaves_out_gpus_and_keeps_their_numbers(tmp_path: Path) -> None:
    tree = AmdTree(tmp_path).create(4)
    for visible in ("1,3", "GPU-0000000000000001,GPU-0000000000000003"):
        machine = Machine(tree, {"ROCR_VISIBLE_DEVICES": visible})
        assert [(gpu.label, gpu.uuid) for gpu in machine.gpus()] == [
            ("1", tree.key(1)),
            ("3", tree.key(3)),
        ]
        machine.close()


def test_a_kernel_driver_without_gpus_is_told_in_one_line(tmp_path: Path) -> None:
    machine = Machine(AmdTree(tmp_path).create(0))
    told = msgspec.json.decode(machine.ask("open"))
    machine.close()

    assert told.endswith("AMD's KFD lists no GPU")
    assert "\n" not in told


def test_files_that_make_no_sense_hide_only_their_own_gpu(tmp_path: Path) -> None:
    tree = AmdTree(tmp_path).create(3)
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    (nodes / "1" / "properties").write_bytes(b"\xff\xfe garbage\nlocation_id x\n")
    (nodes / "2" / "gpu_id").write_text("many\n")
    machine = Machine(tree)
    gpus = machine.gpus()
    machine.close()

    assert [gpu.uuid for gpu in gpus] == [tree.key(2)]
