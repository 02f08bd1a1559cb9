"""Results of a sweep for the page, from the folders of its runs and from the queue."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Literal

import msgspec

from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import NotFoundError
from stoker.sweep_results.collect import SweepManifest, find_manifest, read_run
from stoker.sweep_results.curves import read_thin_curves
from stoker.sweep_results.formats import to_csv
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import make_table, metric_names, varied_params
from stoker.wire import CurvePoints, Outcome, SweepResults, SweepRun, from_wire

MOST_RUNS = 5000
_MOST_CURVES = 300
_MOST_POINTS = 300
_FACTS = ("job", "state", "attempt", "slots", "reason")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The sweep; for curves also the metrics, what they are drawn over, and the jobs of the runs."""

    name: str
    cwd: str
    metric: list[str] = []
    x: Literal["step", "time"] = "step"
    jobs: list[int] = []


def collect_results(home: str, question: Question) -> SweepResults:
    """Return the newest runs of a sweep, each once, with their parameters and metrics."""
    runs = _runs(home, question)
    shown = runs[-MOST_RUNS:]
    manifest, records = _read(shown)
    varied = varied_params(records)
    fixed = {n: v for n, v in records[0].params.items() if n not in varied}
    return SweepResults(
        name=question.name,
        cwd=question.cwd,
        metric=manifest.metric,
        goal="maximize" if manifest.goal == "maximize" else "minimize" if manifest.metric else None,
        params=varied,
        fixed=fixed,
        metrics=metric_names(records),
        runs=[_outcome(run, record) for run, record in zip(shown, records, strict=True)],
        left_out=len(runs) - len(shown),
    )


def collect_curves(home: str, question: Question) -> list[CurvePoints]:
    """Return the curves of metrics that these runs reported, or else the newest runs."""
    runs, wanted = _runs(home, question), set(question.jobs)
    shown = [run for run in runs if run.job in wanted] if wanted else runs
    return [
        CurvePoints(
            job=run.job, metric=metric, xs=xs, ys=[y if math.isfinite(y) else None for y in ys]
        )
        for run in shown[-_MOST_CURVES:]
        for metric, xs, ys in read_thin_curves(_dir(run), question.x, question.metric, _MOST_POINTS)
    ]


def export(home: str, question: Question) -> bytes:
    """Return all runs as CSV: facts, all parameters, all metrics."""
    runs = _runs(home, question)
    _manifest, records = _read(runs)
    for run, record in zip(runs, records, strict=True):
        facts = {name: getattr(run, name) for name in _FACTS}
        record.facts = {**facts, "state": run.state.value}
    params = list(dict.fromkeys(name for record in records for name in record.params))
    columns = dict.fromkeys((*_FACTS, *params, *metric_names(records)))
    return to_csv(make_table(records, list(columns))).encode()


def _runs(home: str, question: Question) -> list[SweepRun]:
    """Return each run once: its successful job, or else its last one."""
    latest: dict[str, SweepRun] = {}
    with Client(home, restart=False) as client:
        for run in client.sweep(question.name, question.cwd, params=True):
            known = latest.get(run.identity)
            if known is None or known.state is not State.DONE:
                latest[run.identity] = run
    if not latest:
        raise NotFoundError(f"no sweep {question.name!r} was queued from {question.cwd}")
    return sorted(latest.values(), key=lambda run: run.job)


def _read(runs: list[SweepRun]) -> tuple[SweepManifest, list[RunRecord]]:
    manifest = find_manifest(_dir(runs[0]))
    regex = manifest.compiled_regex
    records = []
    for run in runs:
        folder = _dir(run)
        if run.attempt > 0 or run.params is None:
            record = read_run(folder, manifest.metric, regex)
        else:
            record = RunRecord(dir=folder, id=os.path.basename(folder), params={})
        if run.params is not None:
            record.params = _params(run.params)
        records.append(record)
    return manifest, records


def _params(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _dir(run: SweepRun) -> str:
    return os.fsdecode(from_wire(run.dir))


def _outcome(run: SweepRun, record: RunRecord) -> Outcome:
    return Outcome(
        job=run.job,
        id=record.id,
        state=run.state,
        params=record.params,
        metrics=record.metrics,
        attempt=run.attempt,
        slots=run.slots,
        reason=run.reason,
        failure=run.failure,
        started_at=run.started_at,
        ended_at=run.ended_at,
        problem=record.problem,
    )
