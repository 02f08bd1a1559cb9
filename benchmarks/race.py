"""Throughput comparison: jobs per second relative to the lower bound, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measure import Sample, Spread, ratios, spread
from benchmarks.report import Figure, Table, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def standings(samples: Mapping[str, Sequence[Sample]], floor: str) -> Table:
    """Return the medians of all contestants and their ratio to the lower bound."""
    rows = []
    for name, runs in samples.items():
        pace = spread([run.jobs_per_s for run in runs])
        ratio = pace_ratio(samples, name, floor)
        cpu_ms = spread([run.cpu_per_job_s for run in runs]).scaled(1e3)
        rows.append(
            [
                name,
                f"{runs[0].jobs}",
                f"{pace.median:.0f} ({pace.q1:.0f} – {pace.q3:.0f})",
                f"{ratio.median:.3f} ({ratio.q1:.3f} – {ratio.q3:.3f})",
                f"{cpu_ms.median:.3f}",
            ]
        )
    header = ("contestant", "jobs", "jobs/s (quartiles)", f"jobs/s ÷ {floor}", "CPU ms/job")
    return Table(header, rows)


def pace_ratio(samples: Mapping[str, Sequence[Sample]], name: str, other: str) -> Spread:
    """Return how many times the jobs per second of `other` `name` reached, per round."""
    return ratios(
        [run.jobs_per_s for run in samples[name]],
        [run.jobs_per_s for run in samples[other]],
    )


def pace_figure(
    samples: Mapping[str, Sequence[Sample]], name: str, other: str, target: Target
) -> Figure:
    """Hold one contestant's pace against another's."""
    return Figure(
        name=f"jobs/s, {name} ÷ {other}",
        spread=pace_ratio(samples, name, other),
        target=target,
    )
