"""Workloads to simulate: jobs with memory and load over time, drawn from a seed or read from a trace."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Sequence

import msgspec

from stoker.core.sharing.parameters import Params
from stoker.core.sharing.rules import Share
from stoker.core.size import parse_size
from stoker.errors import UsageError

COLUMNS = ("arrival_s", "duration_s", "memory", "sm")


class Machine(msgspec.Struct, frozen=True):
    """A machine with a number of equal GPUs."""

    gpus: int
    mem_bytes: int

    @property
    def text(self) -> str:
        """The form that users type: 8x80G."""
        return f"{self.gpus}x{self.mem_bytes / 2**30:g}G"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A job: its duration alone on a GPU, the share of a GPU that it keeps busy, and its memory.

    `memory` lists the memory from each part of its duration on, both rising. `share` and `declared_bytes` are
    the job's own request, if it differs from the policy's default.
    """

    arrival_s: float
    duration_s: float
    memory: tuple[tuple[float, int], ...]
    sm: float
    kind: str
    params: Params = ()
    can_be_capped: bool = False
    share: Share | None = None
    declared_bytes: int | None = None

    @property
    def peak_bytes(self) -> int:
        """Its largest memory."""
        return max(held for _part, held in self.memory)

    @property
    def byte_seconds(self) -> float:
        """Its memory integrated over its duration."""
        ends = [part for part, _held in self.memory[1:]] + [1.0]
        parts = zip(self.memory, ends, strict=True)
        return sum((end - part) * held for (part, held), end in parts) * self.duration_s


class Sort(msgspec.Struct, frozen=True, kw_only=True):
    """A sort of sweep: the ranges of its figures; memory is given as parts of a GPU."""

    name: str
    weight: float
    memory: tuple[float, float]
    sm: tuple[float, float]
    minutes: tuple[float, float]
    grows: float  # share of sweeps that reach their peak late


# Three in ten runs saturate a GPU, most are small: figures of real machines.
SORTS = (
    Sort(
        name="small", weight=0.46, memory=(0.02, 0.10), sm=(0.05, 0.30), minutes=(5, 20), grows=0.2
    ),
    Sort(
        name="medium",
        weight=0.26,
        memory=(0.08, 0.35),
        sm=(0.25, 0.60),
        minutes=(10, 40),
        grows=0.2,
    ),
    Sort(
        name="saturating",
        weight=0.28,
        memory=(0.10, 0.80),
        sm=(0.90, 1.0),
        minutes=(8, 25),
        grows=0.1,
    ),
)
SWEEPS = 11
RUNS = (24, 32)
SUBMITTED_WITHIN_S = 1800.0
_PEAK_SPREAD = 0.03  # spread of a run's peak around that of its sweep
_SIZE_SPREAD = 0.01  # the same for runs with equal parameters
_TIME_SPREAD = 0.20
_CONTEXT_BYTES = 450 << 20
_WARM_UP = (0.01, 0.05)
_LATE = (0.3, 0.8)


def draw(seed: int, machine: Machine, sweeps: int = SWEEPS) -> list[Work]:
    """Draw sweeps for a machine: the same for the same seed, and more for larger machines."""
    dice = random.Random(seed)
    count = max(1, round(sweeps * machine.gpus / 4))
    # Every sort gets its share of the sweeps, however few there are.
    sorts = [sort for sort in SORTS for _ in range(max(1, round(sort.weight * count)))]
    works = [
        work for number, sort in enumerate(sorts) for work in _sweep(dice, sort, number, machine)
    ]
    return sorted(works, key=lambda work: work.arrival_s)


def _sweep(dice: random.Random, sort: Sort, number: int, machine: Machine) -> Iterable[Work]:
    arrival_s = dice.uniform(0.0, SUBMITTED_WITHIN_S)
    peak = dice.uniform(*sort.memory) * machine.mem_bytes
    sm = dice.uniform(*sort.sm)
    seconds = 60.0 * math.exp(dice.uniform(*map(math.log, sort.minutes)))
    late = dice.uniform(*_LATE) if dice.random() < sort.grows else None
    for _ in range(dice.randint(*RUNS)):
        held = max(_CONTEXT_BYTES, int(peak * dice.gauss(1.0, _PEAK_SPREAD)))
        memory = [(0.0, _CONTEXT_BYTES), (dice.uniform(*_WARM_UP), held)]
        if late is not None:
            memory[1] = (memory[1][0], int(held * 0.7))
            memory.append((late, held))
        yield Work(
            arrival_s=arrival_s,
            duration_s=seconds * math.exp(dice.gauss(0.0, _TIME_SPREAD)),
            memory=tuple(memory),
            sm=min(1.0, sm * dice.uniform(0.95, 1.05)),
            kind=f"{sort.name} {number}",
        )


def draw_sizes(seed: int, machine: Machine, sweeps: int = SWEEPS) -> list[Work]:
    """Draw sweeps over batch size, width and learning rate: their memory follows the first two.

    The jobs keep to a memory cap, as torch does.
    """
    dice = random.Random(seed)
    count = max(1, round(sweeps * machine.gpus / 4))
    works = [work for number in range(count) for work in _sized_sweep(dice, number, machine)]
    return sorted(works, key=lambda work: work.arrival_s)


def _sized_sweep(dice: random.Random, number: int, machine: Machine) -> Iterable[Work]:
    arrival_s = dice.uniform(0.0, SUBMITTED_WITHIN_S)
    largest = dice.uniform(0.05, 0.6) * machine.mem_bytes
    sizes = [float(2**power) for power in range(3, 9)]
    widths = dice.choice(([256.0], [128.0, 256.0], [128.0, 256.0, 512.0]))
    per_unit = (largest - _CONTEXT_BYTES) / (max(sizes) * max(widths))
    seconds = 60.0 * math.exp(dice.uniform(math.log(5), math.log(30)))
    load = dice.uniform(0.2, 0.9)
    for _ in range(dice.randint(*RUNS)):
        size, width = dice.choice(sizes), dice.choice(widths)
        rate = 10.0 ** dice.uniform(-4.0, -1.0)
        part = size * width / (max(sizes) * max(widths))
        held = int((_CONTEXT_BYTES + per_unit * size * width) * dice.gauss(1.0, _SIZE_SPREAD))
        yield Work(
            arrival_s=arrival_s,
            duration_s=seconds * (0.3 + 0.7 * part) * math.exp(dice.gauss(0.0, 0.05)),
            memory=((0.0, min(_CONTEXT_BYTES, held)), (dice.uniform(*_WARM_UP), held)),
            sm=min(1.0, load * (0.3 + 0.7 * part)),
            kind=f"sizes {number}",
            params=(("batch_size", size), ("lr", rate), ("width", width)),
            can_be_capped=True,
        )


def saturating_share(works: Sequence[Work]) -> float:
    """Return the share of jobs that leave little of a GPU to others."""
    return sum(work.sm >= 0.85 for work in works) / len(works)


def read_trace(path: str) -> list[Work]:
    """Read jobs from a CSV file; raise UsageError that names the line of an invalid job."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = set(COLUMNS) - set(reader.fieldnames or ())
            if missing:
                raise UsageError(f"{path}: no column {min(missing)}; it needs {', '.join(COLUMNS)}")
            works = [_read_row(path, reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if not works:
        raise UsageError(f"{path} contains no job")
    return sorted(works, key=lambda work: work.arrival_s)


def _read_row(path: str, line: int, row: dict[str, str]) -> Work:
    try:
        work = Work(
            arrival_s=float(row["arrival_s"]),
            duration_s=float(row["duration_s"]),
            memory=_read_memory(row["memory"]),
            sm=float(row["sm"]),
            kind=row.get("kind") or "trace",
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}, line {line}: {error}") from None
    if not (work.arrival_s >= 0 and 0 < work.duration_s < math.inf and 0 <= work.sm <= 1):
        raise UsageError(
            f"{path}, line {line}: times must be seconds from 0 on, and sm a share from 0 to 1"
        )
    return work


def _read_memory(text: str) -> tuple[tuple[float, int], ...]:
    """Parse `5G`, or a curve `0:1G;0.1:5G`: the memory from each part of the duration on."""
    if ":" not in text:
        return ((0.0, parse_size(text)),)
    points = [point.partition(":") for point in text.split(";")]
    curve = tuple((float(part), parse_size(held)) for part, _, held in points)
    parts = [part for part, _held in curve]
    if parts != sorted(set(parts)) or parts[0] != 0 or parts[-1] >= 1:
        raise ValueError(f"the parts of the curve {text!r} must rise from 0 to below 1")
    return curve
