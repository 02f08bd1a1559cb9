"""`stoker diff`: shows where two runs of a sweep differ."""

from __future__ import annotations

import glob
import os
import sys
from typing import TYPE_CHECKING, Any

from stoker.cli.arguments import JSON, Args, arg
from stoker.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from stoker.sweep_results.run_record import RunRecord

SUMMARY = """\
Show where two runs differ: in their parameters and in what they reported. A run is its folder, or
NAME/ID of a sweep, where the beginning of the id or its hash is enough."""
EXAMPLES = """\
  stoker diff pacgan/3bcc25ea pacgan/9a3d36be    by their hashes
  stoker diff results/a/run-1 results/b/run-2    by their folders
"""
ARGUMENTS = (
    arg("one", metavar="RUN", help="a run"),
    arg("other", metavar="RUN", help="the run to compare it with"),
    JSON,
)


def run(args: Args) -> int:
    """Print the differences."""
    from stoker.sweep_results.formats import to_json, to_text
    from stoker.sweep_results.table import Table

    one, other = _find(args.one), _find(args.other)
    rows = [*_compare(one.params, other.params), *_compare(one.metrics, other.metrics)]
    if args.json:
        sys.stdout.write(to_json(Table(["name", "one", "other"], rows)))
        return 0
    if not rows:
        print("no difference")
        return 0
    from stoker.cli.tables import Column, print_table

    columns = [Column(""), Column(one.id), Column(other.id)]
    print_table(columns, [[to_text(value) or "-" for value in row] for row in rows])
    return 0


def _compare(one: dict[str, Any], other: dict[str, Any]) -> list[list[Any]]:
    names = dict.fromkeys([*one, *other])
    return [[n, one.get(n), other.get(n)] for n in names if one.get(n) != other.get(n)]


def _find(text: str) -> RunRecord:
    from stoker.sweep_results.collect import PARAMS, read_run
    from stoker.sweep_results.load import locate

    if os.path.exists(os.path.join(text, PARAMS)):
        return read_run(os.path.abspath(text))
    sweep, _slash, own = text.partition("/")
    if not own:
        raise UsageError(f"'{text}' is not a run: write its folder, or NAME/ID")
    root, name = locate(sweep), glob.escape(own)
    found = {
        os.path.dirname(path)
        for pattern in (f"{name}*", f"*-{name}*")
        for path in glob.glob(
            os.path.join(glob.escape(root), "**", pattern, PARAMS), recursive=True
        )
    }
    if len(found) != 1:
        many = "no run" if not found else f"{len(found)} runs"
        raise NotFoundError(f"'{text}' names {many}: stoker results {sweep} shows all")
    return read_run(found.pop())
