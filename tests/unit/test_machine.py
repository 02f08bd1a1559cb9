"""How many CPUs and how much RAM there are, as affinity and cgroups limit them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stoker import machine
from stoker.machine import Memory, count_cpus, read_memory

GIB = 1 << 30
V2 = "35 24 0:30 {root} {folder} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "36 24 0:31 {root} {folder} rw,nosuid shared:9 - cgroup cgroup rw,{controller}"


class FakeMachine:
    """A machine with 16 CPUs and 64 GiB, whose cgroups are files of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounts: list[str] = []
        self.own: list[str] = []

    def cgroup(self, path: str, files: Mapping[str, str]) -> None:
        """Give a cgroup these files."""
        place = self.folder / path.strip("/")
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(f"{text}\n")

    def mount(self, kind: str, *, inside: str = "", root: str = "/", controller: str = "") -> None:
        folder = self.folder / inside if inside else self.folder
        self.mounts.append(kind.format(root=root, folder=folder, controller=controller))
        (self.folder / "mountinfo").write_text("".join(f"{line}\n" for line in self.mounts))

    def be_in(self, *lines: str) -> None:
        self.own += lines
        (self.folder / "own").write_text("".join(f"{line}\n" for line in self.own))


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {40 << 20} kB\n"
    )
    monkeypatch.setattr(machine, "_MEMINFO", str(tmp_path / "meminfo"))
    monkeypatch.setattr(machine, "_OWN_CGROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(machine, "_MOUNTS", str(tmp_path / "mountinfo"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)))
    machine.hierarchies.cache_clear()
    yield FakeMachine(tmp_path)
    machine.hierarchies.cache_clear()


def test_without_cgroups_all_of_the_machine_counts(box: FakeMachine) -> None:
    assert count_cpus() == 16
    assert read_memory() == Memory(64 * GIB, 40 * GIB)


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("max 100000", 16),
        ("400000 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("6400000 100000", 16),
        ("", 16),
        ("x 0", 16),
    ],
)
def test_a_quota_counts_in_whole_cpus(box: FakeMachine, quota: str, cpus: int) -> None:
    box.mount(V2)
    box.be_in("0::/user/job")
    box.cgroup("/user/job", {"cpu.max": quota})
    assert count_cpus() == cpus


def test_the_quota_of_every_cgroup_above_counts(box: FakeMachine) -> None:
    box.mount(V2)
    box.be_in("0::/user/a/job")
    box.cgroup("/user", {"cpu.max": "300000 100000"})
    box.cgroup("/user/a/job", {"cpu.max": "800000 100000"})
    assert count_cpus() == 3


def test_a_limit_of_memory_counts_and_cached_files_are_available(box: FakeMachine) -> None:
    box.mount(V2)
    box.be_in("0::/user")
    box.cgroup(
        "/user",
        {
            "memory.max": str(16 * GIB),
            "memory.current": str(12 * GIB),
            "memory.stat": f"anon {8 * GIB}\ninactive_file {3 * GIB}",
        },
    )
    assert read_memory() == Memory(16 * GIB, 7 * GIB)


@pytest.mark.parametrize("limit", ["max", str(1 << 60), "", "lots"])
def test_a_cgroup_without_a_limit_changes_nothing(box: FakeMachine, limit: str) -> None:
    box.mount(V2)
    box.be_in("0::/user")
    box.cgroup("/user", {"memory.max": limit, "memory.current": str(GIB)})
    assert read_memory() == Memory(64 * GIB, 40 * GIB)


def test_cgroups_of_version_1_count_too(box: FakeMachine) -> None:
    box.mount(V1, inside="cpu", controller="cpu,cpuacct")
    box.mount(V1, inside="memory", controller="memory")
    box.be_in("4:memory:/box", "2:cpu,cpuacct:/box", "0::/")
    box.cgroup("cpu/box", {"cpu.cfs_quota_us": "500000", "cpu.cfs_period_us": "100000"})
    box.cgroup(
        "memory/box",
        {
            "memory.limit_in_bytes": str(8 * GIB),
            "memory.usage_in_bytes": str(2 * GIB),
            "memory.stat": f"total_inactive_file {GIB}",
        },
    )
    assert count_cpus() == 5
    assert read_memory() == Memory(8 * GIB, 7 * GIB)


def test_no_quota_of_version_1_is_minus_one(box: FakeMachine) -> None:
    box.mount(V1, controller="cpu")
    box.be_in("2:cpu:/")
    box.cgroup("/", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    assert count_cpus() == 16


def test_in_a_container_the_mounted_part_is_searched(box: FakeMachine) -> None:
    box.mount(V1, root="/docker/4f", controller="memory")
    box.be_in("4:memory:/docker/4f")
    box.cgroup("/", {"memory.limit_in_bytes": str(GIB), "memory.usage_in_bytes": "0"})
    assert read_memory() == Memory(GIB, GIB)


def test_memory_that_the_kernel_does_not_tell_is_none(
    box: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MEMINFO", str(box.folder / "missing"))
    assert read_memory() == Memory(0, 0)
