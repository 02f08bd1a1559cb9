"""Images without a registry, with a system of busybox alone, and engines that may not raise limits."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

IMAGE = "localhost/busybox:test"
_TOOLS = ["sh", "sleep", "echo", "cat", "ls", "env", "id", "true", "false", "kill", "pwd", "touch"]
# Podman of the test's own storage. Where this process may not raise limits, no container may.
_PODMAN = """#!/bin/sh
base="{podman} --root {root}/store --runroot {root}/run --storage-driver vfs --runtime runc"
base="$base --cgroup-manager cgroupfs --events-backend none --tmpdir {root}/podman"
case $1 in
run) shift; exec $base run --log-driver=none --ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000 "$@" ;;
esac
exec $base "$@"
"""
# Writes down what it is called with, a line for each word, and then does what the test says.
_RECORDER = """#!/bin/sh
{{ printf '%s\\n' "$@"; echo --; }} >>{record}
case $1 in {first}) {act} ;; esac
"""


class ContainerBox:
    """Folders with engines, to be the first in PATH, and the files that a system in an image needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.rootfs = folder / "rootfs"
        self.bin.mkdir()
        for name in ("bin", "tmp", "etc", "proc", "dev", "sys"):
            (self.rootfs / name).mkdir(parents=True)
        shutil.copy(_find("busybox"), self.rootfs / "bin" / "busybox")
        for tool in _TOOLS:
            (self.rootfs / "bin" / tool).symlink_to("busybox")

    @property
    def path(self) -> str:
        """PATH with the engines of this box before those of the machine."""
        return f"{self.bin}:{os.environ['PATH']}"

    def add_podman(self) -> None:
        """Make the image, and a podman that has it."""
        self._write("podman", _PODMAN.format(podman=_find("podman"), root=self.folder))
        archive = self.folder / "rootfs.tar"
        subprocess.run(["tar", "-C", self.rootfs, "-cf", archive, "."], check=True)
        _try(self.bin / "podman", "import", "-q", archive, IMAGE)
        _try(self.bin / "podman", "run", "--rm", "--network=host", IMAGE, "true")

    def podman(self, *words: str) -> list[str]:
        """The lines that podman writes."""
        command = [str(self.bin / "podman"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    def containers(self) -> list[str]:
        """The names of all containers, also of those that have ended."""
        return self.podman("ps", "-a", "--format", "{{.Names}}")

    def add_recorder(self, engine: str, act: str = ":", first: str = "run|exec") -> Path:
        """Make an engine that records its arguments, and does `act` for `run` and `exec`."""
        record = self.folder / f"{engine}.calls"
        self._write(engine, _RECORDER.format(record=record, act=act, first=first))
        return record

    def _write(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)


def read_calls(record: Path) -> list[list[str]]:
    """The calls that a recorder has written down."""
    text = record.read_text() if record.exists() else ""
    return [call.split("\n") for call in text.split("\n--\n") if call]


def _try(*words: str | Path) -> None:
    """Run a command, or skip the test where this machine does not allow containers."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no container can run here: {done.stderr.strip()[-300:]}")


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no {program}: apt-get install podman runc bubblewrap busybox-static")
    return found
