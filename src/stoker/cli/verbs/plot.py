"""`stoker plot`: draws curves of a sweep's runs on the terminal, or writes a picture."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.sweep_results.run_record import RunRecord

SUMMARY = """\
Draw what runs have reported, over their steps: on the terminal, or into a picture. Runs that failed are
left out. Needs the extra [plot]: pip install 'stoker[plot]'."""
EXAMPLES = """\
  stoker plot pacgan --y val_acc                    over the steps
  stoker plot pacgan --x time --y loss              over another
  stoker plot pacgan --y loss --where 'lr < 0.01'   some of the runs
  stoker plot pacgan --y loss --over seed           means over the seeds
  stoker plot pacgan --y val_acc --save plot.png    as a picture
"""
ARGUMENTS = (
    arg("name", metavar="NAME", help="a sweep, or the folder of its runs"),
    arg("--x", default="step", metavar="NAME", help="what is along the bottom (default: step)"),
    arg("--y", metavar="NAME", help="the metric (default: the sweep's)"),
    arg("--where", metavar="CONDITION", help="only the runs for which it holds"),
    arg("--over", metavar="NAMES", help="means over these parameters, with bands of ± deviation"),
    arg("--all", action="store_true", help="also runs that did not succeed"),
    arg("--save", metavar="FILE", help="write a picture: .png, .pdf, .svg"),
)


def _leave_out(records: list[RunRecord]) -> list[RunRecord]:
    """Return the runs that count, and tell how many others there are."""
    from stoker.sweep_results.table import describe_left_out

    bad = describe_left_out(records)
    if bad is not None:
        note(f"left out: {bad} (--all draws them too)")
    return [record for record in records if record.counts]


def run(args: Args) -> int:
    """Draw the curves."""
    from stoker.sweep_results.curves import read_curves, read_mean_curves
    from stoker.sweep_results.load import load_sweep
    from stoker.sweep_results.plot import draw, save
    from stoker.sweep_results.run_facts import STATES_UNKNOWN
    from stoker.sweep_results.table import filter_records

    loaded = load_sweep(args.name)
    y = args.y or loaded.manifest.metric
    if y is None:
        raise UsageError(f"which metric? stoker plot {args.name} --y val_acc")
    if not loaded.has_states:
        note(STATES_UNKNOWN)
    records = loaded.records
    if args.where is not None:
        records = filter_records(records, args.where)
    if not args.all:
        records = _leave_out(records)
    over = [name.strip() for name in (args.over or "").split(",") if name.strip()]
    curves = read_mean_curves(records, args.x, y, over) if over else read_curves(records, args.x, y)
    if args.save is not None:
        save(curves, args.x, y, args.save, loaded.manifest.name)
        print(f"saved {os.path.abspath(args.save)}")
        return 0
    size = shutil.get_terminal_size((80, 24))
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(draw(curves, args.x, y, width=size.columns, height=size.lines - 2, coloured=coloured))
    return 0
