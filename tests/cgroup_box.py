"""A cgroup of a test's own, where root can make one: the controllers of RAM and CPUs have to be there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import until

_MOUNTS = "/proc/self/mountinfo"


def find_root() -> Path | None:
    """The root of the hierarchy of version 2; None if it is not mounted as a whole."""
    for line in Path(_MOUNTS).read_text().splitlines():
        mount, _, source = line.partition(" - ")
        words = mount.split(" ")
        if source.startswith("cgroup2 ") and words[3] == "/":
            return Path(words[4])
    return None


def why_not() -> str | None:
    """Why this machine gives tests no cgroup; None if it does."""
    root = find_root()
    if os.getuid() != 0:
        return "only root can make cgroups"
    if root is None:
        return "no cgroups of version 2 are mounted"
    enabled = (root / "cgroup.subtree_control").read_text().split()
    missing = [name for name in ("memory", "cpu") if name not in enabled]
    if missing:
        return f"cgroups of version 2 have no controller for {', '.join(missing)} here"
    return None


@contextlib.contextmanager
def made(name: str) -> Iterator[Path]:
    """A cgroup below the root, removed in the end with all below it, whose processes are moved out."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    root = find_root()
    assert root is not None
    folder = root / name
    folder.mkdir()
    before = root / _own_path().lstrip("/")
    try:
        yield folder
    finally:
        until(lambda: _is_removed(folder, before), f"{folder} is removed")


def enter(folder: Path, pid: int = 0) -> None:
    """Move a process into a cgroup; this one unless another is named."""
    (folder / "cgroup.procs").write_text(str(pid))


def members(folder: Path) -> set[int]:
    """The processes in a cgroup itself."""
    return {int(word) for word in (folder / "cgroup.procs").read_text().split()}


def cgroup_of(pid: int) -> str:
    """The path of a process's cgroup."""
    return _own_path(pid)


def _own_path(pid: int | str = "self") -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def _is_removed(folder: Path, before: Path) -> bool:
    """Move all processes out and remove the cgroups; False if more have come meanwhile."""
    below = sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True)
    for each in [*below, folder]:
        with contextlib.suppress(OSError):  # a process has ended, or the cgroup is removed already
            for pid in members(each):
                enter(before, pid)
            each.rmdir()
    return not folder.exists()
