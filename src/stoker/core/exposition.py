"""Metrics in Prometheus' text format, version 0.0.4. Values only: what is measured is elsewhere."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = Mapping[str, str]


class Histogram(msgspec.Struct):
    """Counts observed values in buckets. `bounds` are the upper ends, in ascending order."""

    bounds: Sequence[float]
    counts: list[int] = []  # of each bucket, and at the end of what is above the last bound
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value; one below zero counts as zero."""
        value = max(0.0, value)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Sample(msgspec.Struct, frozen=True):
    """One time series of a family: its labels and its present value."""

    value: float | Histogram
    labels: Labels = {}


class Family(msgspec.Struct, frozen=True):
    """All time series of one name. The `meaning` is shown by Prometheus and Grafana."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    samples: Sequence[Sample]


def write_families(families: Iterable[Family]) -> bytes:
    """Write families as text; those without samples are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {family.meaning}")
            lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            if isinstance(sample.value, Histogram):
                lines += _histogram(family.name, sample.value, sample.labels)
            else:
                lines.append(_line(family.name, sample.labels, sample.value))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _histogram(name: str, histogram: Histogram, labels: Labels) -> Iterable[str]:
    count = 0
    for bound, in_bucket in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        count += in_bucket
        yield _line(f"{name}_bucket", {**labels, "le": _number(bound)}, count)
    yield _line(f"{name}_sum", labels, histogram.total)
    yield _line(f"{name}_count", labels, count)


def _line(name: str, labels: Labels, value: float) -> str:
    """Write one sample. Names of labels are ours; their values can hold any character."""
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) else repr(float(value))
