"""The table of ten thousand runs that wrote only TensorBoard files, read for the first and second time."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant, spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from benchmarks.measure import Sample

RUNS = 10_000
STEPS = 100
CACHE = ".metrics_cache"


def run(arena: Arena) -> Result:
    """Read the same folders again and again, without and with what the first time left."""
    folder = os.path.join(arena.folder, "tensorboard")
    shutil.rmtree(folder, ignore_errors=True)
    _fill(folder)
    with arena.home() as env:
        contestant = Contestant(
            name="stoker results",
            argv=[arena.peers.stoker.path, "results", folder],
            stdin=os.devnull,
            jobs=1,
            env=env,
        )
        samples: dict[str, list[Sample]] = {"first time": [], "second time": []}
        for _round in range(max(1, arena.rounds // 5)):
            cache = os.path.join(folder, CACHE)
            if os.path.exists(cache):
                os.unlink(cache)
            for taken in samples.values():
                taken.append(arena.run(contestant))
    shutil.rmtree(folder)
    cpu = {name: spread([run.cpu_s for run in runs]) for name, runs in samples.items()}
    wall = {name: spread([run.wall_s for run in runs]) for name, runs in samples.items()}
    return Result(
        name="metric_files",
        what=f"{RUNS:,} runs, each with an event file of {STEPS} steps and two scalars;"
        f" {len(samples['first time'])} rounds.",
        details=Table(
            ("read", "s", "s of CPU (quartiles)"),
            [
                [name, f"{wall[name].median:.2f}", f"{s.median:.2f} ({s.q1:.2f} – {s.q3:.2f})"]
                for name, s in cpu.items()
            ],
        ),
        figures=[
            Figure(
                name="second time",
                spread=cpu["second time"],
                target=Target(Bound.AT_MOST, 2.0),
                unit="s of CPU",
                digits=2,
            )
        ],
        commands=[command_line(contestant)],
    )


def _fill(folder: str) -> None:
    """Make what runs leave behind."""
    for number in range(RUNS):
        path = os.path.join(folder, str(number), "tb")
        os.makedirs(path)
        with open(os.path.join(folder, str(number), "params.json"), "w", encoding="utf-8") as file:
            file.write(f'{{"lr":{number}}}')
        with open(os.path.join(path, "events.out.tfevents.1.host.1.0"), "wb") as events:
            events.write(b"".join(_event(step) for step in range(STEPS)))


def _event(step: int) -> bytes:
    values = b"".join(
        _field(1, _field(1, tag) + b"\x15" + struct.pack("<f", 1 / (step + 1)))
        for tag in (b"train/loss", b"val/acc")
    )
    event = b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + bytes([step]) + _field(5, values)
    return struct.pack("<Q", len(event)) + b"crc0" + event + b"crc1"


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content
