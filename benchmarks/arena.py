"""Test bed of the contestants: folders, input files and one environment for all."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import interleave
from benchmarks.peers import need_program
from benchmarks.process import run_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.measure import Contestant, Sample
    from benchmarks.peers import Peers

FAKE_GPUS = 4
HOMES = "homes"
_FAKE_GPU_MEM_BYTES = 16 * 2**30
_WARM_UP_JOBS = 50
_REMOVED = "removed"
# It does not use an inode again that was deleted less than five minutes ago, but looks at each.
_SLOW_AFTER_REMOVAL_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """What every benchmark needs to run; `folder` is git-ignored and on a disk."""

    folder: str
    peers: Peers
    env: Mapping[str, str] = field(repr=False)
    rounds: int
    quick: bool

    def lines(self, name: str, line: str, count: int) -> str:
        """Write `count` equal lines and return the file's path."""
        path = os.path.join(self.folder, "inputs", f"{name}-{count}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for _ in range(count))
        return path

    @contextlib.contextmanager
    def home(self) -> Iterator[dict[str, str]]:
        """Lend an environment with a fresh Stoker home on disk.

        It stays until the whole run is over, for a daemon makes a file for every job, and ext4 makes
        files slowly for minutes after many were deleted.
        """
        homes = os.path.join(self.folder, HOMES)
        os.makedirs(homes, exist_ok=True)
        home = os.path.abspath(tempfile.mkdtemp(prefix="home-", dir=homes))
        leases = os.path.join(home, "leases")
        os.mkdir(leases)
        yield {**self.env, "STOKER_HOME": home, "STOKER_LEASE_DIR": leases}

    def run(
        self,
        contestant: Contestant,
        watch: Callable[[int], None] | None = None,
        watch_every_s: float = 0.1,
    ) -> Sample:
        """Run a contestant once, its stderr kept for an error message."""
        stderr = os.path.join(self.folder, "stderr")
        return run_once(contestant, stderr, watch, watch_every_s)

    def race(self, contestants: Sequence[Contestant], line: str) -> dict[str, list[Sample]]:
        """Warm up all contestants with a few jobs of `line`, then run the interleaved rounds."""
        for contestant in contestants:
            few = min(contestant.jobs, _WARM_UP_JOBS)
            self.run(replace(contestant, stdin=self.lines("warm-up", line, few), jobs=few))
        return interleave(contestants, self.rounds, self.run, self.progress)

    def progress(self, round_no: int) -> None:
        """Print which round begins."""
        if sys.stderr.isatty():
            last = round_no + 1 == self.rounds
            print(
                f"\r  round {round_no + 1} of {self.rounds}",
                end="\n" if last else "",
                file=sys.stderr,
                flush=True,
            )


def remove_homes(folder: str) -> None:
    """Delete every home that was lent, and note when."""
    homes = os.path.join(folder, HOMES)
    if not os.path.isdir(homes):
        return
    shutil.rmtree(homes, ignore_errors=True)
    with open(os.path.join(folder, _REMOVED), "w", encoding="utf-8"):
        pass


def warn_of_removal(folder: str) -> None:
    """Say so if homes were deleted a short while ago."""
    with contextlib.suppress(FileNotFoundError):
        ago_s = time.time() - os.stat(os.path.join(folder, _REMOVED)).st_mtime
        if ago_s < _SLOW_AFTER_REMOVAL_S:
            say(
                f"files were deleted here {ago_s:.0f} s ago: on ext4 new ones are made slowly until"
                f" {_SLOW_AFTER_REMOVAL_S} s have passed, and Stoker makes one for every queued job"
            )


def say(text: str) -> None:
    """Show progress; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


def command_line(contestant: Contestant) -> str:
    """Return the exact command as one would type it."""
    typed = f"{shlex.join(contestant.argv)} < {shlex.quote(contestant.stdin)}"
    return typed if contestant.cwd == "." else f"cd {shlex.quote(contestant.cwd)} && {typed}"


def common_environment(folder: str) -> dict[str, str]:
    """Return what all contestants run under, fake NVML included.

    The library's folder is on everybody's loader path: jobs inherit it and pay for the lookups.
    """
    # The fakes belong to Stoker, which is only there once it is installed.
    from stoker.testing import library
    from stoker.testing.state import FakeGpus

    nvml = os.path.abspath(os.path.join(folder, "nvml"))
    gpus = os.path.join(nvml, "gpus")
    shutil.rmtree(nvml, ignore_errors=True)
    os.makedirs(gpus)
    need_program("gcc", "gcc")
    library.build(nvml)
    fake = FakeGpus(gpus, library=nvml).create(FAKE_GPUS, mem_bytes=_FAKE_GPU_MEM_BYTES)
    return {
        # A long PATH would cost those a search per job who do not remember where programs are.
        "PATH": "/usr/bin:/bin",
        "HOME": os.path.abspath(folder),
        "LANG": "C.UTF-8",
        # GNU parallel runs its lines in $SHELL; all others in /bin/sh.
        "SHELL": "/bin/sh",
        **fake.env(),
    }


def check_gpus(stoker: str, env: Mapping[str, str]) -> None:
    """Make sure that Stoker sees the fake GPUs: else nothing would be watched while it runs."""
    ask = [stoker, "gpus", "--json"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, env=env)
    seen = len(json.loads(done.stdout)) if done.returncode == 0 else 0
    if seen != FAKE_GPUS:
        raise BenchError(f"stoker sees {seen} of {FAKE_GPUS} fake GPUs: {done.stderr.strip()}")


def check_on_disk(folder: str) -> str:
    """Return the kind of file system below `folder`; one in memory would flatter Stoker's store."""
    kind = _file_system(os.path.realpath(folder))
    if kind in {"tmpfs", "ramfs"}:
        raise BenchError(f"{folder} is on {kind}; run the benchmarks from a folder on a disk")
    return kind


def _file_system(path: str) -> str:
    found = ("", "unknown")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for mount in mounts:
            _, point, kind, *_ = mount.split()
            inside = path == point or path.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(found[0]):
                found = (point, kind)
    return found[1]
