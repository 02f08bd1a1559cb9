"""The first job of a day: from `add` with no daemon running until the job has started."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.process import no_leftovers
from benchmarks.queues.stoker import run_stoker
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.arena import Arena

_PATIENCE_S = 60.0
_GLANCE_S = 0.0005
_STOP = {"stoker": ("daemon", "stop", "--kill"), "tsp": ("-K",)}


def run(arena: Arena) -> Result:
    """Add a job in a fresh home, and look for the file that it makes."""
    stoker, tsp = os.path.abspath(arena.peers.stoker.path), arena.peers.tsp.path
    contestants = [
        Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=arena.env)
        for name, argv in (("stoker", [stoker, "add", "-q", "-g", "0"]), ("tsp", [tsp]))
    ]
    taken_s = interleave(
        contestants, arena.rounds, lambda each: _first_start_s(arena, each), arena.progress
    )
    rows = []
    for name, values in taken_s.items():
        ms = spread(values).scaled(1e3)
        rows.append([name, f"{ms.median:.0f} ({ms.q1:.0f} – {ms.q3:.0f})"])
    return Result(
        name="first_add",
        what=f"From `add` with no daemon running until the job has started, {arena.rounds} rounds.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name="from add to the job's start",
                spread=spread(taken_s["stoker"]).scaled(1e3),
                target=Target(Bound.AT_MOST, 250.0),
                unit="ms",
                digits=0,
            ),
            Figure(
                name="wall time, stoker ÷ tsp",
                spread=ratios(taken_s["stoker"], taken_s["tsp"]),
                target=Target(Bound.AT_MOST, 2.0),
            ),
        ],
        notes=["tsp is a C program of one file; Stoker starts four Pythons and opens a database."],
        commands=[
            f"{arena.peers.stoker.path} add -q -g 0 touch started",
            f"{tsp} touch started",
        ],
    )


def _first_start_s(arena: Arena, contestant: Contestant) -> float:
    """Return how long it takes until the first job has made its file."""
    with (
        arena.home() as home_env,
        tempfile.TemporaryDirectory(prefix="first-", dir=arena.folder) as folder,
        no_leftovers(contestant.name),
    ):
        started = os.path.abspath(os.path.join(folder, "started"))
        socket = os.path.abspath(os.path.join(folder, "socket"))
        env = {**home_env, "TS_SOCKET": socket, "TMPDIR": os.path.abspath(folder)}
        began_s = time.monotonic()
        try:
            subprocess.run(
                [*contestant.argv, "touch", started], env=env, check=True, stdout=subprocess.DEVNULL
            )
            _await(started, began_s)
            return time.monotonic() - began_s
        finally:
            _stop(contestant, env)


def _await(path: str, began_s: float) -> None:
    while not os.path.exists(path):
        if time.monotonic() > began_s + _PATIENCE_S:
            raise BenchError(f"the job has not started after {_PATIENCE_S:.0f} s")
        time.sleep(_GLANCE_S)


def _stop(contestant: Contestant, env: Mapping[str, str]) -> None:
    run_stoker(contestant.argv[0], _STOP[contestant.name], env)
