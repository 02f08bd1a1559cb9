"""`stoker results`: shows the results of a sweep as a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.sweep_results.collect import SweepManifest
    from stoker.sweep_results.load import LoadedSweep
    from stoker.sweep_results.run_record import RunRecord
    from stoker.sweep_results.table import Table

SUMMARY = """\
Show what came of a sweep's runs: the parameters that vary, the metrics reported last, and the state.
With a metric in the sweep file, the best runs come first. The sweep is looked for in results/NAME, then
where it was submitted last; a folder will do as well."""
EXAMPLES = """\
  stoker results pacgan                        everything
  stoker results pacgan --sort -val_acc -n 10  the ten highest
  stoker results pacgan --over seed            mean ± std (n) over the seeds
  stoker results pacgan --where 'lr < 0.01'    some
  stoker results pacgan --importance           which parameters matter
  stoker results pacgan --failed               what failed, why, and its last line
  stoker results pacgan --csv > table.csv      also --md, --json, --latex
"""
ARGUMENTS = (
    arg("name", metavar="NAME", help="a sweep, or the folder of its runs"),
    arg(
        "--sort",
        signed=True,
        metavar="NAMES",
        help="by these, comma between; - before one: the largest first",
    ),
    arg("-n", "--limit", type=int, metavar="N", help="the first N alone"),
    arg("--where", metavar="CONDITION", help='only those for which it holds: "lr < 0.01"'),
    arg("--over", metavar="NAMES", help="means over these parameters, comma between"),
    arg("--all", action="store_true", help="with --over: count also runs that did not succeed"),
    arg("--columns", metavar="NAMES", help="these columns, comma between"),
    arg(
        "--importance",
        action="store_true",
        help="how much each parameter matters for the sweep's metric (or --columns METRIC)",
    ),
    arg("--failed", action="store_true", help="what did not succeed, and why"),
    *(
        arg(f"--{name}", action="store_true", exclusive="format", help=f"as {kind}")
        for name, kind in (("csv", "csv"), ("md", "Markdown"), ("json", "JSON"), ("latex", "LaTeX"))
    ),
)


def run(args: Args) -> int:
    """Print the table."""
    from stoker.sweep_results.load import load_sweep
    from stoker.sweep_results.run_facts import STATES_UNKNOWN

    if args.limit is not None and args.limit < 0:
        raise UsageError(f"-n {args.limit}: write 0 or more")
    loaded = load_sweep(args.name)
    records = loaded.records
    if not loaded.root.startswith(os.path.join(os.getcwd(), "")):
        note(f"results in {loaded.root}")
    if not loaded.has_states:
        note(STATES_UNKNOWN)
    for record in records:
        if record.problem is not None:
            note(f"{record.id}: {record.problem}")
    records, table = _tabulate(args, records, loaded.manifest)
    del table.rows[len(table.rows) if args.limit is None else args.limit :]
    _show(args, table)
    _note_unreported(loaded)
    if not args.failed:
        _note_failures(records, has_means=args.over is not None and not args.all)
    return 0


def _tabulate(
    args: Args, records: list[RunRecord], manifest: SweepManifest
) -> tuple[list[RunRecord], Table]:
    """Return the selected runs and their table, sorted as asked for or by the sweep's goal."""
    from stoker.sweep_results import table

    if args.where is not None:
        records = table.filter_records(records, args.where)
    if args.sort is not None:
        records = table.sort_records(records, _names(args.sort))
    elif manifest.metric is not None:
        records = table.sort_by_goal(records, manifest.metric, manifest.goal)
    columns = _names(args.columns) or None
    if args.failed:
        return records, _failures(records)
    if args.importance:
        return records, _importance(args.name, records, columns, manifest.metric)
    if args.over is None:
        return records, table.make_table(records, columns)
    means = table.aggregate(records, _names(args.over), columns, failed=args.all)
    if args.sort is None and manifest.metric is not None:
        table.sort_means(means, manifest.metric, manifest.goal)
    return records, means


def _importance(
    sweep: str, records: list[RunRecord], columns: list[str] | None, metric: str | None
) -> Table:
    from stoker.sweep_results.importance import measure_importance

    metric = columns[0] if columns else metric
    if metric is None:
        raise UsageError(f"which metric? stoker results {sweep} --importance --columns val_acc")
    return measure_importance(records, metric)


def _note_unreported(loaded: LoadedSweep) -> None:
    """Write that the metric of the sweep is none that its runs report: its name may be wrong."""
    from stoker.sweep_results.table import explain_unreported

    metric = loaded.manifest.metric
    problem = None if metric is None else explain_unreported(loaded.records, metric)
    if problem is not None:
        note(f"the metric of this sweep: {problem}")


def _note_failures(records: Sequence[RunRecord], *, has_means: bool) -> None:
    """Write how many runs did not succeed: their metrics are what they reported before they failed."""
    from stoker.sweep_results.table import BAD_STATES, describe_left_out

    counts = describe_left_out(records)
    if counts is not None:
        bad = sum(record.state in BAD_STATES for record in records)
        means = " no mean counts them;" if has_means else ""
        note(f"{bad} of {len(records)} runs did not succeed ({counts}):{means} --failed tells why")


def _failures(records: Sequence[RunRecord]) -> Table:
    from stoker.sweep_results.table import BAD_STATES, Table, varied_params

    bad = [record for record in records if record.state in BAD_STATES]
    varied = varied_params(records)
    rows = []
    for record in bad:
        last, reason = _last_line(record.dir), record.facts.get("reason")
        if isinstance(reason, str):
            reason = reason.removesuffix(f": {last}")  # once is enough
        params = [record.params.get(name) for name in varied]
        job = record.facts.get("job")
        rows.append([record.id, *params, record.state, job, reason, last])
    return Table(["run", *varied, "state", "job", "reason", "last line"], rows)


def _last_line(folder: str) -> str | None:
    from stoker.sweep_results.collect import LOG

    try:
        with open(os.path.join(folder, LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.strip()), None)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _show(args: Args, table: Table) -> None:
    from stoker.sweep_results import formats

    writers: dict[str, Callable[[Table], str]] = {
        "csv": formats.to_csv,
        "md": formats.to_markdown,
        "json": formats.to_json,
        "latex": formats.to_latex,
    }
    for name, write in writers.items():
        if getattr(args, name):
            sys.stdout.write(write(table))
            return
    if not table.rows:
        sys.stderr.write("no run failed\n" if args.failed else "no run matches\n")
        return
    from stoker.cli.tables import Column, print_table
    from stoker.sweep_results.table import shorten_ids

    table = shorten_ids(table)
    numbers = [formats.is_number_column(table, index) for index in range(len(table.columns))]
    columns = [Column(name, right=r) for name, r in zip(table.columns, numbers, strict=True)]
    print_table(columns, [[formats.to_text(value) for value in row] for row in table.rows])
