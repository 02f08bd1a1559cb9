"""`stoker plot`: draws curves of a sweep's runs on the terminal, or writes a picture."""

from __future__ import annotations

import os
import shutil
import sys

from stoker.cli.arguments import Args, arg
from stoker.errors import UsageError

SUMMARY = """\
Draw what runs have reported, over their steps: on the terminal, or into a picture. Needs the extra
[plot]: pip install 'stoker[plot]'."""
EXAMPLES = """\
  stoker plot pacgan --y val_acc                    over the steps
  stoker plot pacgan --x time --y loss              over another
  stoker plot pacgan --y loss --where 'lr < 0.01'   some of the runs
  stoker plot pacgan --y val_acc --save plot.png    as a picture
"""
ARGUMENTS = (
    arg("name", metavar="NAME", help="a sweep, or the folder of its runs"),
    arg("--x", default="step", metavar="NAME", help="what is along the bottom (default: step)"),
    arg("--y", metavar="NAME", help="the metric (default: the sweep's)"),
    arg("--where", metavar="CONDITION", help="only the runs for which it holds"),
    arg("--save", metavar="FILE", help="write a picture: .png, .pdf, .svg"),
)


def run(args: Args) -> int:
    """Draw the curves."""
    from stoker.sweep_results.collect import collect, find_root, read_manifest
    from stoker.sweep_results.curves import read_curves
    from stoker.sweep_results.plot import draw, save
    from stoker.sweep_results.table import filter_records

    root = find_root(args.name)
    y = args.y or read_manifest(root).metric
    if y is None:
        raise UsageError(f"which metric? stoker plot {args.name} --y val_acc")
    records = collect(root)
    if args.where is not None:
        records = filter_records(records, args.where)
    curves = read_curves(records, args.x, y)
    if args.save is not None:
        save(curves, args.x, y, args.save)
        return 0
    size = shutil.get_terminal_size((80, 24))
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(draw(curves, args.x, y, width=size.columns, height=size.lines - 2, coloured=coloured))
    return 0
