"""Latency of a request to the daemon."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from benchmarks import echo
from benchmarks.errors import BenchError
from benchmarks.line import Line
from benchmarks.measure import spread
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena

TARGET = "/v1/status"
REQUESTS = 2000
WARM_UP = 200
_PATIENCE_S = 10.0


def run(arena: Arena) -> Result:
    """Ask over one connection each, in turns."""
    p50s: dict[str, list[float]] = {"bare asyncio": [], "stoker": []}
    p99s: dict[str, list[float]] = {name: [] for name in p50s}
    with open_queue(arena) as queue, open_echo(arena) as bare:
        queue.add(arena.lines("request", "true", 100))
        queue.settle()
        lines = {"bare asyncio": bare, "stoker": queue.line}
        for line in lines.values():
            times_us(line, WARM_UP)
        for round_no in range(arena.rounds):
            arena.progress(round_no)
            for name, line in lines.items():
                times = times_us(line, REQUESTS)
                p50s[name].append(statistics.median(times))
                p99s[name].append(statistics.quantiles(times, n=100)[98])
    rows = []
    for name in p50s:
        p50, p99 = spread(p50s[name]), spread(p99s[name])
        rows.append([name, f"{p50.median:.0f} ({p50.q1:.0f} – {p50.q3:.0f})", f"{p99.median:.0f}"])
    return Result(
        name="request",
        what=f"`GET {TARGET}` over one kept connection, {arena.rounds} rounds of {REQUESTS} requests.",
        details=Table(("contestant", "p50 µs (quartiles)", "p99 µs"), rows),
        figures=[
            Figure(
                name="request p50",
                spread=spread(p50s["stoker"]).scaled(1e-3),
                target=Target(Bound.AT_MOST, 0.5),
                unit="ms",
            )
        ],
        notes=["Bare asyncio: a server that reads no request and always answers the same 2 bytes."],
    )


def times_us(line: Line, count: int) -> list[float]:
    """Return how long each of so many requests took."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(count):
        began = clock()
        line.get(TARGET)
        times.append((clock() - began) / 1e3)
    return times


@contextlib.contextmanager
def open_echo(arena: Arena) -> Iterator[Line]:
    """Start the bare server; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="echo-", dir=arena.folder) as folder:
        path = os.path.abspath(os.path.join(folder, "stoker.sock"))
        server = subprocess.Popen([sys.executable, echo.__file__, path], env=arena.env)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not os.path.exists(path):
                if time.monotonic() > deadline:
                    raise BenchError("the bare server does not come up")
                time.sleep(0.02)
            line = Line(os.path.dirname(path))
            try:
                yield line
            finally:
                line.close()
        finally:
            server.kill()
            server.wait()
