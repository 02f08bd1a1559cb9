"""Adding very many jobs at once, while others start and end."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, spread
from benchmarks.proc import peak_bytes
from benchmarks.queues.stoker import SLOTS, open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target
from benchmarks.stamp import build_stamp, read_stamps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena

ADDED = 200_000
QUICK_ADDED = 100_000
LINE = "true"
# Short enough to show every stop of the daemon, and slow enough to leave the processors some rest.
SHORT_MS = 10
SHORT_JOBS = 4000
BEFORE_S = 1.5


@dataclass(frozen=True, slots=True)
class Observed:
    """One bulk add, and how the dispatch of short jobs went before and meanwhile."""

    wall_s: float
    before: Pace
    meanwhile: Pace
    daemon_peak_bytes: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How jobs started in a stretch of time."""

    starts_per_s: float
    largest_gap_ms: float


def run(arena: Arena) -> Result:
    """Add in bulk to a daemon whose slots are busy with short jobs, in a fresh home each round."""
    count = QUICK_ADDED if arena.quick else ADDED
    lines = arena.lines("bulk", LINE, count)
    stamp = os.path.abspath(build_stamp(arena.folder))
    short = arena.lines("short", f"exec {stamp} {SHORT_MS}", SHORT_JOBS)
    observed = []
    for round_no in range(arena.rounds):
        arena.progress(round_no)
        observed.append(_observe(arena, lines, count, short))
    return _result(arena, lines, count, observed)


def _observe(arena: Arena, lines: str, count: int, short: str) -> Observed:
    stamps = os.path.abspath(os.path.join(arena.folder, "stamps"))
    with open(stamps, "wb"), open_queue(arena, BENCH_STAMPS=stamps) as queue:
        queue.add(short, "-p", "1")
        queue.until(lambda: os.path.getsize(stamps) > 0, "the first job has run")
        time.sleep(BEFORE_S)
        argv = [queue.program, "add", "-q", "--batch", os.path.abspath(lines)]
        began_ns = time.monotonic_ns()
        sample = arena.run(
            Contestant(name="stoker", argv=argv, stdin=os.devnull, jobs=1, env=queue.env)
        )
        ended_ns = time.monotonic_ns()
        status = queue.status()
        if status["counts"]["waiting"] < count:
            raise BenchError("the short jobs ran out before all were added")
        starts = [start for start, _end in read_stamps(stamps)]
        return Observed(
            wall_s=sample.wall_s,
            before=pace(starts, began_ns - int(BEFORE_S * 1e9), began_ns),
            meanwhile=pace(starts, began_ns, ended_ns),
            daemon_peak_bytes=peak_bytes(status["pid"]),
        )


def pace(starts_ns: Sequence[int], since_ns: int, until_ns: int) -> Pace:
    """Return how jobs started between two moments; before the first and after the last is a gap too."""
    within = [start for start in starts_ns if since_ns <= start < until_ns]
    edges = [since_ns, *within, until_ns]
    gap_ns = max(after - before for before, after in itertools.pairwise(edges))
    return Pace(len(within) / (until_ns - since_ns) * 1e9, gap_ns / 1e6)


def _result(arena: Arena, lines: str, count: int, observed: Sequence[Observed]) -> Result:
    added = spread([count / one.wall_s for one in observed])
    kept = spread([one.meanwhile.starts_per_s / one.before.starts_per_s for one in observed])
    rows = []
    for when, paces in (
        ("before", [one.before for one in observed]),
        ("while adding", [one.meanwhile for one in observed]),
    ):
        starts = spread([one.starts_per_s for one in paces])
        gap = spread([one.largest_gap_ms for one in paces])
        rows.append(
            [
                when,
                f"{starts.median:.0f} ({starts.q1:.0f} – {starts.q3:.0f})",
                f"{gap.median:.0f} ({gap.q1:.0f} – {gap.q3:.0f})",
            ]
        )
    peak = spread([one.daemon_peak_bytes / 1e6 for one in observed])
    return Result(
        name="bulk_add",
        what=f"{count} lines `{LINE}` added by one command, while jobs of {SHORT_MS} ms run one after"
        f" another on 4 slots; {arena.rounds} rounds, each in a fresh home.",
        details=Table(("short jobs", "starts/s (quartiles)", "largest gap ms (quartiles)"), rows),
        figures=[
            Figure(
                name="jobs added per second, from the start of the command to its end",
                spread=added,
                target=Target(Bound.AT_LEAST, 320_000),
                unit="/s",
                digits=0,
            ),
            Figure(
                name="starts/s of short jobs, while adding ÷ before",
                spread=kept,
                target=Target(Bound.AT_LEAST, 0.85),
            ),
            Figure(
                name="daemon's peak memory",
                spread=peak,
                target=Target(Bound.AT_MOST, 150.0),
                unit="MB",
                digits=1,
            ),
        ],
        notes=["Client and daemon want a processor each, and so do the short jobs."],
        commands=[
            f"{arena.peers.stoker.path} daemon start --gpus {SLOTS}",
            f"{arena.peers.stoker.path} add -q --batch {lines}",
        ],
    )
