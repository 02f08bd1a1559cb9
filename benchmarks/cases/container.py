"""Time from start to exit of a container: as a job with an image, and by `podman run` as typed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, ratios, spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 20
IMAGE = "localhost/busybox:bench"
# A storage of its own. Where this process may not raise limits, no container may.
_PODMAN = """#!/bin/sh
base="{podman} --root {root}/store --runroot {root}/run --storage-driver vfs --runtime runc"
base="$base --cgroup-manager cgroupfs --events-backend none --tmpdir {root}/podman"
case $1 in
run) shift; exec $base run --log-driver=none --ulimit=nofile=1024:1024 --ulimit=nproc=1000:1000 "$@" ;;
esac
exec $base "$@"
"""
# Each run has a name of its own, as each attempt has.
_AS_ATTEMPT = 'STOKER_COOKIE=bench:$$.1 exec "$@"'
_BY_HAND = ("run", "--rm", "--network=host", "--ipc=host")


def run(arena: Arena) -> Result:
    """Start both in turns; a turn begins when the container before is removed."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    with _podman(arena.env) as env:
        contestants = [
            _container("by hand", [_find_podman(env), *_BY_HAND, IMAGE, "true"], env),
            _container("stoker", ["/bin/sh", "-c", _AS_ATTEMPT, "sh", *_words(env)], env),
        ]
        walls = _time(arena, contestants, env)
    rows = []
    for name, values in walls.items():
        wall_ms = spread(values).scaled(1e3)
        rows.append([name, f"{wall_ms.median:.0f} ({wall_ms.q1:.0f} – {wall_ms.q3:.0f})"])
    return Result(
        name="container",
        what=f"Start to exit of `true` in podman, {arena.rounds} interleaved rounds; the words that the "
        "supervisor starts for `stoker add --image`.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name="wall time, --image ÷ podman run by hand",
                spread=ratios(walls["stoker"], walls["by hand"]),
                target=Target(Bound.AT_MOST, 1.15),
            )
        ],
        commands=[command_line(contestants[0])],
    )


def _time(
    arena: Arena, contestants: list[Contestant], env: Mapping[str, str]
) -> dict[str, list[float]]:
    walls: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(arena.rounds + 1):
        for each in contestants:
            wall_s = arena.run(each).wall_s
            if number:  # the first round warms up
                walls[each.name].append(wall_s)
            _await_removal(env)
    return walls


def _words(env: Mapping[str, str]) -> list[str]:
    from stoker.containers.command import ContainerSettings, container_words

    return container_words(IMAGE, ["true"], env, ContainerSettings("podman"), gpus=0)


def _container(name: str, argv: list[str], env: Mapping[str, str]) -> Contestant:
    return Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=env)


def _await_removal(env: Mapping[str, str]) -> None:
    give_up_at = time.monotonic() + 30
    while _run(env, "ps", "-aq"):
        if time.monotonic() > give_up_at:
            raise BenchError("a container was not removed")
        time.sleep(0.05)


@contextmanager
def _podman(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Lend an environment whose podman has an image with busybox alone."""
    podman, busybox = shutil.which("podman"), shutil.which("busybox")
    if podman is None or busybox is None or shutil.which("runc") is None:
        raise BenchError("the container benchmark needs podman: make .venv/.podman")
    with tempfile.TemporaryDirectory(prefix="pod") as folder:  # podman takes only short paths
        for name in ("bin", "rootfs/bin"):
            os.makedirs(os.path.join(folder, name))
        wrapper = os.path.join(folder, "bin", "podman")
        with open(wrapper, "w", encoding="ascii") as file:
            file.write(_PODMAN.format(podman=podman, root=folder))
        os.chmod(wrapper, 0o700)
        shutil.copy(busybox, os.path.join(folder, "rootfs/bin/true"))
        archive = os.path.join(folder, "rootfs.tar")
        subprocess.run(["tar", "-C", f"{folder}/rootfs", "-cf", archive, "."], check=True)
        own = {**env, "PATH": f"{folder}/bin:{env.get('PATH', os.defpath)}"}
        _run(own, "import", "-q", archive, IMAGE)
        yield own


def _find_podman(env: Mapping[str, str]) -> str:
    return shutil.which("podman", path=env["PATH"]) or "podman"


def _run(env: Mapping[str, str], *words: str) -> str:
    command = [_find_podman(env), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"podman: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()
