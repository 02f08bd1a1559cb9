"""Latency of `stoker add`, compared with the start of Python."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.peers import need_program
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from benchmarks.measure import Sample

MIN_ROUNDS = 30
FILES = 1000
CHANGED = 10
_IN_REPOSITORY = "stoker, in a repository"


def run(arena: Arena) -> Result:
    """Add one job after another to a daemon that has nothing else to do."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    # The benchmarks' own folder is inside of a repository; this one must not be.
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as outside, open_queue(arena) as queue:
        inside = make_dirty_repository(os.path.abspath(os.path.join(arena.folder, "repository")))
        python = os.path.abspath(arena.peers.python.path)
        contestants = [
            Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=queue.env, cwd=cwd)
            for name, argv, cwd in (
                ("python", [python, "-c", "pass"], outside),
                ("stoker", [queue.program, "add", "true"], outside),
                (_IN_REPOSITORY, [queue.program, "add", "true"], inside),
                ("git status", ["git", "status", "--porcelain"], inside),
            )
        ]

        def add_one(contestant: Contestant) -> Sample:
            sample = arena.run(contestant)
            queue.settle()
            return sample

        for contestant in contestants:
            add_one(contestant)
        samples = interleave(contestants, arena.rounds, add_one, arena.progress)
        shutil.rmtree(inside)
    return _result(arena, samples)


def make_dirty_repository(folder: str) -> str:
    """Make a repository of 1000 files, some of them changed since the commit."""
    git = need_program("git", "git")
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(FILES):
        path = os.path.join(folder, f"package{number // 50}", f"module{number}.py")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"VALUE = {number}\n" * 100)
    me = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "."], [*me, "commit", "-q", "-m", "All"]):
        subprocess.run([git, "-C", folder, *words], check=True, capture_output=True)
    for number in range(0, FILES, FILES // CHANGED):
        with open(
            os.path.join(folder, f"package{number // 50}", f"module{number}.py"),
            "a",
            encoding="utf-8",
        ) as file:
            file.write("CHANGED = True\n")
    return folder


def _result(arena: Arena, samples: dict[str, list[Sample]]) -> Result:
    walls = {name: [run.wall_s for run in runs] for name, runs in samples.items()}
    rows = []
    for name, values in walls.items():
        wall_ms = spread(values).scaled(1e3)
        rows.append([name, f"{wall_ms.median:.1f} ({wall_ms.q1:.1f} – {wall_ms.q3:.1f})"])
    return Result(
        name="add",
        what=f"Start to exit with a daemon that runs already, {arena.rounds} interleaved rounds;"
        f" the repository has {FILES} files, {CHANGED} of them changed.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name=f"wall time, stoker add true{where} ÷ python -c pass",
                spread=ratios(walls[name], walls["python"]),
                target=Target(Bound.AT_MOST, 2.5),
            )
            for name, where in (("stoker", ""), (_IN_REPOSITORY, " in a dirty repository"))
        ],
        commands=[
            f"{arena.peers.python.path} -c pass",
            f"{arena.peers.stoker.path} add true",
        ],
    )
