"""What Stoker relies on NVML for, over both fakes; by hand on a machine with an idle GPU as well:

STOKER_TEST_REAL_NVML=1 pytest tests/contract/test_nvml.py
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
import pytest

from stoker.core.gpu_links import Link
from stoker.gpus.driver import Gpu, GpuProcess, Reading
from stoker.testing.library import build
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = os.environ.get("STOKER_TEST_REAL_NVML") == "1"
FAKES = [] if REAL else ["c", "pure"]
FAR_PID = 1 << 30  # beyond every kernel's pid_max: nobody of our namespace

# A library is found when a process starts, so each machine is looked at from one of its own.
PROBE = """
import itertools, sys, msgspec
from stoker.gpus.driver import Reading
from stoker.gpus.drivers import open_driver, why_unavailable
nvml = open_driver()
for line in sys.stdin:
    match line.split():
        case ["open"]: answer = why_unavailable()
        case ["gpus"]: answer = nvml.gpus()
        case ["read"]: answer = [nvml.read(gpu) for gpu in nvml.gpus()]
        case ["glance"]: answer = [nvml.update_usage(Reading(gpu)) for gpu in nvml.gpus()]
        case ["signs"]: answer = nvml.may_have_changed()
        case ["anew"]: answer = nvml.enumerate_again()
        case ["sm"]: answer = [nvml.sm_by_pid(gpu, 0) for gpu in nvml.gpus()]
        case ["listen"]: events = nvml.listen_for_faults(); answer = events is not None
        case ["fault", wait_ms]: answer = nvml.next_fault(events, int(wait_ms))
        case ["links"]: answer = [
            nvml.link(a, b) for a, b in itertools.combinations(nvml.gpus(), 2)
        ]
        case ["close"]: answer = nvml.close()
    print(msgspec.json.encode(answer).decode(), flush=True)
"""

HOLD_REAL_MEMORY = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]))) == 0
print("held", flush=True)
sys.stdin.read()
"""


class Fakes(Protocol):
    """GPUs that do not exist."""

    def env(self) -> dict[str, str]:
        """The variables with which Stoker sees them."""

    def use(self, pid: int, gpu: int, count: int) -> None:
        """Let a process hold memory."""

    def release(self, pid: int) -> None:
        """Let a process end."""


_F = TypeVar("_F", bound=Fakes)


class Machine(Generic[_F]):
    """A machine whose driver a process of its own looks at."""

    def __init__(self, fakes: _F | None, env: dict[str, str] | None = None) -> None:
        self.fakes = fakes
        self._env = env or {}
        self._probe: subprocess.Popen[str] | None = None

    def ask(self, question: str) -> bytes:
        if self._probe is None:
            env = {**os.environ, **(self.fakes.env() if self.fakes else {}), **self._env}
            self._probe = _talk(PROBE, env=env)
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write(question + "\n")
        self._probe.stdin.flush()
        return self._probe.stdout.readline().encode()

    def gpus(self) -> list[Gpu]:
        return msgspec.json.decode(self.ask("gpus"), type=list[Gpu])

    def read(self, question: str = "read") -> list[Reading]:
        return msgspec.json.decode(self.ask(question), type=list[Reading])

    def links(self) -> list[Link | None]:
        return msgspec.json.decode(self.ask("links"), type=list[Link | None])

    def used_by_process(self) -> list[dict[int, int]]:
        return msgspec.json.decode(self.ask("sm"), type=list[dict[int, int]])

    @contextlib.contextmanager
    def memory_held(self, count: int) -> Iterator[None]:
        """Let some process hold memory of the first GPU."""
        if self.fakes is not None:
            self.fakes.use(os.getpid(), 0, count)
            yield
            self.fakes.release(os.getpid())
            return
        with _talk(HOLD_REAL_MEMORY, str(count)) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield
            holder.kill()

    def close(self) -> None:
        if self._probe is not None:
            with self._probe:
                self._probe.kill()


def _talk(script: str, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script, *args]
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)


@pytest.fixture(params=FAKES)
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> FakeGpus:
    library = request.getfixturevalue("nvml_library") if request.param == "c" else None
    return FakeGpus(tmp_path / "state", library).create(2, 8 * GIB, "Fake A100")


@pytest.fixture
def faked(fake: FakeGpus) -> Iterator[Machine[FakeGpus]]:
    machine = Machine(fake)
    yield machine
    machine.close()


@pytest.fixture(params=["real"] if REAL else FAKES)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine[FakeGpus]]:
    library = request.getfixturevalue("nvml_library") if request.param == "c" else None
    machine = Machine(None if REAL else FakeGpus(tmp_path / "state", library).create(2))
    yield machine
    machine.close()


def test_nvml_opens(machine: Machine[FakeGpus]) -> None:
    assert machine.ask("open") == b"null\n"


def test_gpus_are_numbered_and_have_a_uuid_a_name_and_memory(machine: Machine[FakeGpus]) -> None:
    gpus = machine.gpus()

    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    assert len({gpu.uuid for gpu in gpus}) == len(gpus) > 0
    assert all(gpu.uuid.startswith("GPU-") and not gpu.is_mig for gpu in gpus)
    assert all(gpu.name and gpu.mem_total_bytes > GIB for gpu in gpus)


def test_used_and_free_memory_fit_into_the_total(machine: Machine[FakeGpus]) -> None:
    for reading in machine.read():
        assert not reading.lost
        assert reading.mem_used_bytes + reading.mem_free_bytes <= reading.gpu.mem_total_bytes
        assert reading.mem_free_bytes > 0


def test_an_idle_gpu_reports_utilisation_temperature_and_power(machine: Machine[FakeGpus]) -> None:
    for reading in machine.read():
        assert reading.utilisation_pct == 0
        assert reading.temperature_c is not None
        assert reading.power_w is not None
        assert 0 < reading.temperature_c < 120
        assert 0 < reading.power_w < 2000


def test_memory_of_a_process_is_used_until_it_ends(machine: Machine[FakeGpus]) -> None:
    before = machine.read()[0]
    with machine.memory_held(GIB):
        during = machine.read()[0]
    after = machine.read()[0]

    assert during.mem_used_bytes - before.mem_used_bytes >= GIB
    assert len(during.processes or ()) == len(before.processes or ()) + 1
    assert len(after.processes or ()) == len(before.processes or ())
    assert after.mem_used_bytes - before.mem_used_bytes < GIB


def test_a_usage_update_reads_memory_but_not_the_process_list(machine: Machine[FakeGpus]) -> None:
    with machine.memory_held(GIB):
        reading = machine.read("glance")[0]
    assert reading.mem_used_bytes >= GIB
    assert reading.processes == ()


def test_no_process_uses_an_idle_gpu(machine: Machine[FakeGpus]) -> None:
    assert all(not sum(used.values()) for used in machine.used_by_process())


def test_faults_can_be_waited_for(machine: Machine[FakeGpus]) -> None:
    assert machine.ask("listen") == b"true\n"
    assert machine.ask("fault 1") == b"null\n"


def test_a_closed_nvml_reads_every_gpu_as_lost_and_does_not_fail(
    machine: Machine[FakeGpus],
) -> None:
    machine.ask("close")

    assert all(reading.lost for reading in machine.read())


def test_a_process_is_listed_with_its_pid_and_memory_on_its_gpu_alone(
    faked: Machine[FakeGpus],
) -> None:
    assert faked.fakes is not None
    faked.fakes.use(os.getpid(), 1, 3 * GIB)

    first, second = faked.read()

    assert first.processes == ()
    assert second.processes == (GpuProcess(os.getpid(), 3 * GIB),)
    assert second.mem_free_bytes == 5 * GIB
    assert second.utilisation_pct == 50


def test_a_dead_process_holds_nothing(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.use(FAR_PID, 0, GIB)

    assert faked.read()[0].processes == ()
    assert faked.read()[0].mem_used_bytes == 0


def test_a_process_of_another_pid_namespace_is_listed(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.use(FAR_PID, 0, GIB, host=True)

    assert faked.read()[0].processes == (GpuProcess(FAR_PID, GIB),)


def test_memory_that_the_driver_does_not_attribute_is_none(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.use(os.getpid(), 0, GIB)
    faked.fakes.hide_process_memory(0)

    reading = faked.read()[0]

    assert reading.processes == (GpuProcess(os.getpid(), None),)
    assert reading.mem_used_bytes == GIB


def test_processes_that_the_driver_does_not_list_are_not_none_at_all(
    faked: Machine[FakeGpus],
) -> None:
    assert faked.fakes is not None
    faked.fakes.use(os.getpid(), 0, GIB)
    faked.fakes.hide_processes(0)

    first, second = faked.read()

    assert first.processes is None
    assert (first.mem_used_bytes, first.lost) == (GIB, False)
    assert second.processes == ()


def test_every_process_is_listed_with_its_share_of_the_gpu(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.use(os.getpid(), 0, GIB, sm_pct=70)
    faked.fakes.use(os.getppid(), 1, GIB)

    assert faked.used_by_process() == [{os.getpid(): 70}, {os.getppid(): 50}]


def test_a_fault_is_reported_once_with_its_gpu_even_if_that_is_lost(
    faked: Machine[FakeGpus],
) -> None:
    assert faked.fakes is not None
    faked.fakes.fault(0, 13)
    faked.ask("listen")
    faked.fakes.fault(1, 79)
    faked.fakes.lose(1)
    faked.fakes.fault(0, 0)

    told = [msgspec.json.decode(faked.ask("fault 1000")) for _ in range(2)]

    first, second = faked.gpus()
    assert told == [{"uuid": second.uuid, "xid": 79}, {"uuid": first.uuid, "xid": None}]
    assert faked.ask("fault 1") == b"null\n"


def test_a_gpu_that_falls_off_the_bus_reads_as_lost_and_the_others_go_on(
    faked: Machine[FakeGpus],
) -> None:
    assert faked.fakes is not None
    assert [reading.lost for reading in faked.read()] == [False, False]
    faked.fakes.lose(0)

    assert [reading.lost for reading in faked.read()] == [True, False]


def test_a_gpu_lost_before_keeps_its_number(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.lose(0)

    assert [gpu.index for gpu in faked.gpus()] == [0, 1]
    assert [reading.lost for reading in faked.read()] == [True, False]


def test_the_instances_of_a_mig_gpu_replace_it(faked: Machine[FakeGpus]) -> None:
    assert faked.fakes is not None
    faked.fakes.split(0, parts=2)
    faked.fakes.use(os.getpid(), 2, GIB)

    gpus = faked.gpus()
    readings = faked.read()

    assert [(gpu.index, gpu.is_mig) for gpu in gpus] == [(0, True), (0, True), (1, False)]
    assert [gpu.uuid[:4] for gpu in gpus] == ["MIG-", "MIG-", "GPU-"]
    assert [gpu.mem_total_bytes for gpu in gpus] == [4 * GIB, 4 * GIB, 8 * GIB]
    assert [len(reading.processes or ()) for reading in readings] == [0, 1, 0]
    assert readings[0].utilisation_pct is None


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]
)
def test_an_older_driver_answers_by_its_older_function(
    fake: FakeGpus, tmp_path: Path, function: str
) -> None:
    if fake.library is None:
        fake.lack(function)
    else:
        fake.library = os.path.dirname(build(tmp_path / "older", without=[function]))
    fake.use(os.getpid(), 0, GIB)
    machine = Machine(fake)

    reading = machine.read()[0]
    machine.close()

    assert reading.mem_used_bytes == GIB
    assert reading.processes == (GpuProcess(os.getpid(), GIB),)


def test_a_machine_without_a_driver_says_so(fake: FakeGpus) -> None:
    os.unlink(os.path.join(fake.folder, "gpus"))
    machine = Machine(fake)

    answer = machine.ask("open")
    machine.close()

    assert answer == b'"Driver Not Loaded"\n'


def test_a_new_enumeration_finds_the_same_gpus(machine: Machine[FakeGpus]) -> None:
    before = machine.gpus()

    assert machine.ask("signs") == b"false\n"
    assert machine.ask("anew") == b"false\n"
    assert machine.gpus() == before
    assert not any(reading.lost for reading in machine.read())


def test_an_added_gpu_is_noticed_and_enumerated(fake: FakeGpus, faked: Machine[FakeGpus]) -> None:
    before = faked.gpus()
    fake.plug()

    assert faked.gpus() == before
    assert faked.ask("signs") == b"true\n"
    assert faked.ask("anew") == b"true\n"
    assert faked.gpus()[:2] == before
    assert [gpu.index for gpu in faked.gpus()] == [0, 1, 2]
    assert faked.ask("signs") == b"false\n"


def test_a_lost_gpu_keeps_its_name_and_is_found_again(
    fake: FakeGpus, faked: Machine[FakeGpus]
) -> None:
    before = faked.gpus()
    fake.lose(1)
    faked.ask("anew")
    assert faked.gpus() == before
    assert [reading.lost for reading in faked.read()] == [False, True]

    fake.find(1)
    faked.ask("anew")
    assert [reading.lost for reading in faked.read()] == [False, False]


@pytest.mark.parametrize(
    ("matrix", "links"),
    [
        ("equal", [Link.NODE] * 6),
        ("nvswitch", [Link.NVLINK] * 6),
        ("pcie-2x4", [Link.SWITCH] * 6),
        ("pairs", [Link.NVLINK, *[Link.NODE] * 4, Link.NVLINK]),
    ],
)
def test_links_are_those_of_the_machine(fake: FakeGpus, matrix: str, links: list[Link]) -> None:
    fake.create(4).join(matrix)
    machine = Machine(fake)
    assert machine.links() == links
    fake.lose(0)
    assert machine.links()[:3] == [None] * 3
    machine.close()


def test_cards_of_different_switches_or_without_peer_to_peer_are_no_better_than_one_processor(
    fake: FakeGpus,
) -> None:
    fake.create(5).join("pcie-2x4")
    machine = Machine(fake)
    assert machine.links()[3] == Link.OTHER
    Path(fake.folder, "links").write_text("0 1 10 1 5\n0 2 20 0 5\n0 3 20 5 5\n")
    assert machine.links()[:4] == [Link.NODE, Link.SWITCH, Link.NODE, Link.NODE]
    machine.close()


def test_mig_instances_have_no_links(fake: FakeGpus) -> None:
    fake.split(0, 2)
    machine = Machine(fake)
    assert machine.links() == [None] * 3
    machine.close()


def test_the_links_of_a_real_machine_are_known(machine: Machine[FakeGpus]) -> None:
    assert None not in machine.links()


@pytest.mark.parametrize(
    ("absent", "links"),
    [
        (["nvmlDeviceGetP2PStatus"], [Link.SWITCH]),
        (["nvmlDeviceGetTopologyCommonAncestor"], [None]),
        (["nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"], [None]),
    ],
)
def test_a_driver_without_these_functions_knows_fewer_links(
    fake: FakeGpus, tmp_path: Path, absent: list[str], links: list[Link | None]
) -> None:
    if fake.library is None:
        fake.lack(*absent)
    else:
        fake.library = os.path.dirname(build(tmp_path / "older", without=absent))
    fake.join("pcie-2x4")
    machine = Machine(fake)
    assert machine.links() == links
    machine.close()
