"""Which cgroup a supervisor may divide for its attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cgroup_box
from patience import until
from stoker.supervisor import cgroups
from stoker.supervisor.cgroups import JobCgroups, find_cgroups, is_own_process

MIB = 1 << 20
NAME = f"test-{os.getpid()}"


@pytest.fixture
def box() -> Iterator[Path]:
    with cgroup_box.made(f"stoker-{NAME}") as folder:
        yield folder


@pytest.fixture
def other() -> Iterator[int]:
    """A process that has nothing to do with Stoker."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def find() -> JobCgroups | None:
    return find_cgroups(NAME, lambda pid: pid == os.getpid())


def test_own_processes_are_moved_to_a_leaf_of_a_delegated_cgroup(box: Path) -> None:
    cgroup_box.enter(box)
    assert find() is not None
    assert cgroup_box.members(box) == set()
    assert cgroup_box.members(box / "stoker") == {os.getpid()}
    assert "memory" in (box / "cgroup.subtree_control").read_text()
    assert find() is not None  # from the leaf
    assert cgroup_box.members(box / "stoker") == {os.getpid()}


def test_a_cgroup_with_a_process_of_others_is_left_as_it_is(box: Path, other: int) -> None:
    cgroup_box.enter(box)
    cgroup_box.enter(box, other)

    assert find() is None
    assert cgroup_box.members(box) == {os.getpid(), other}
    assert (box / "cgroup.subtree_control").read_text().split() == []


def unit(box: Path, name: str) -> Path:
    """A cgroup as systemd makes it."""
    found = box
    for each in ("app.slice", name):
        (found / "cgroup.subtree_control").write_text("+memory +cpu")
        found = found / each
        found.mkdir()
    return found


@pytest.mark.parametrize("marked", [False, True])
def test_what_systemd_manages_is_divided_only_if_it_was_delegated(box: Path, marked: bool) -> None:
    scope = unit(box, "run-1.scope")
    if marked:
        os.setxattr(scope, "user.delegate", b"1")
    cgroup_box.enter(scope)

    assert (find() is not None) is marked
    assert (scope / "stoker").exists() is marked


def test_a_service_is_divided_only_beside_its_own_subgroup(box: Path) -> None:
    service = unit(box, "stoker.service")
    os.setxattr(service, "user.delegate", b"1")
    cgroup_box.enter(service)
    assert find() is None

    (service / "main").mkdir()
    cgroup_box.enter(service / "main")
    assert find() is not None
    assert cgroup_box.members(service / "main") == {os.getpid()}


def test_limits_are_given_to_the_kernel_and_the_cgroup_is_removed(box: Path) -> None:
    cgroup_box.enter(box)
    found = find()
    assert found is not None
    with found.entered("1.1", 64 * MIB, 2):
        assert cgroup_box.cgroup_of(os.getpid()).endswith(f":{'1.1'}")
    folder = Path(found.folder("1.1"))
    figures = {
        name: (folder / name).read_text().strip()
        for name in ("memory.max", "memory.oom.group", "cpu.max")
    }
    assert figures == {
        "memory.max": str(64 * MIB),
        "memory.oom.group": "1",
        "cpu.max": "200000 100000",
    }
    assert cgroup_box.members(box / "stoker") == {os.getpid()}
    found.set_mem("1.1", 0)
    assert (folder / "memory.max").read_text() == "max\n"
    assert found.conclude("1.1") == 0
    assert not folder.exists()


def test_a_cgroup_that_is_not_empty_is_removed_later(box: Path, other: int) -> None:
    cgroup_box.enter(box)
    found = find()
    assert found is not None
    found.place("1.1", 64 * MIB, 0, other)
    found.conclude("1.1")
    assert Path(found.folder("1.1")).exists()

    again = find()  # the next supervisor
    assert again is not None
    cgroup_box.enter(box / "stoker", other)
    again.tidy()
    assert not Path(found.folder("1.1")).exists()


def test_an_attempt_that_the_kernel_killed_for_its_ram_is_known(box: Path) -> None:
    cgroup_box.enter(box)
    found = find()
    assert found is not None
    with found.entered("1.1", 64 * MIB, 0):
        process = subprocess.Popen([sys.executable, "-c", "x = bytearray(200 << 20)"])
    assert process.wait() == -9
    assert 60 * MIB < found.conclude("1.1") <= 64 * MIB


def test_a_limit_that_cannot_be_set_leaves_no_cgroup(box: Path) -> None:
    cgroup_box.enter(box)
    found = find()
    assert found is not None
    with pytest.raises(OSError), found.entered("1.1", -5, 0):
        pass
    assert not Path(found.folder("1.1")).exists()
    assert cgroup_box.members(box / "stoker") == {os.getpid()}


def test_without_cgroups_of_version_2_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text("36 24 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", str(tmp_path / "mounts"))
    assert find() is None


def test_a_cgroup_of_another_user_is_not_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text(f"36 24 0:31 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("0::/mine\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (mine / name).write_text("")
    (mine / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", str(tmp_path / "mounts"))
    monkeypatch.setattr(cgroups, "_OWN", str(tmp_path / "own"))
    assert cgroups._is_ours_to_divide(str(mine))

    monkeypatch.setattr("os.getuid", lambda: 4711)
    assert find() is None


def test_parts_of_stoker_and_its_jobs_are_own_processes(other: int) -> None:
    assert not is_own_process(other, "name:")
    assert not is_own_process(1, "")
    for variables in ({"STOKER_PART": "daemon"}, {"STOKER_COOKIE": "outer:9.1/name:1.1"}):
        with subprocess.Popen(["/bin/sleep", "600"], env=variables) as process:
            until(lambda pid=process.pid: is_own_process(pid, "name:"))  # type: ignore[misc]
            process.kill()
