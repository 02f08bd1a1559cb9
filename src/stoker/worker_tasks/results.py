"""Results of a sweep for the page, from the folders of its runs and from the queue."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec

from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import NotFoundError
from stoker.sweep_results.collect import SweepManifest, find_manifest, read_run
from stoker.sweep_results.curves import read_curve
from stoker.sweep_results.formats import to_csv
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import make_table, metric_names, varied_params
from stoker.wire import CurvePoints, Outcome, SweepResults, SweepRun, from_wire

MOST_RUNS = 5000
_MOST_CURVES = 300
_MOST_POINTS = 300
_FACTS = ("job", "state", "attempt", "slots", "reason")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The sweep; for curves also the metric."""

    name: str
    cwd: str
    metric: str = ""


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
    """Return the curves of a metric that the newest runs reported."""
    found = []
    for run in _runs(home, question)[-_MOST_CURVES:]:
        xs, ys = read_curve(_dir(run), "step", question.metric)
        if xs:
            every = -(-len(xs) // _MOST_POINTS)
            # The last point is the final value, so it stays.
            places = sorted({*range(0, len(xs), every), len(xs) - 1})
            points = [(xs[place], ys[place]) for place in places]
            found.append(
                CurvePoints(job=run.job, xs=[x for x, _y in points], ys=[y for _x, y in points])
            )
    return found


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
