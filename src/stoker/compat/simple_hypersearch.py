"""`simple_hypersearch PATTERN -p NAME V…`: prints the same lines in the same order as the older tool."""

from __future__ import annotations

import itertools
import random
import sys
from typing import TYPE_CHECKING

from stoker.cli.main import report_errors
from stoker.cli.parser import Parser
from stoker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "simple_hypersearch"
SUMMARY = (
    "Print a command for each combination of parameters, in random order unless told otherwise."
)
EXAMPLES = """\
example:
  simple_hypersearch "python3 train.py --lr {lr} --bs {bs}" -p lr 0.001 0.0005 -p bs 32 64 \\
    | simple_gpu_scheduler --gpus 0,1,2

This is Stoker behind the old command line; natively the lines go to: stoker run --gpus 0,1,2
"""


def main() -> int:
    """Print the commands; 2 and no output if the pattern and the parameters do not match."""
    return report_errors(PROGRAM, _run)


def _run() -> int:
    parser = Parser(PROGRAM, SUMMARY, EXAMPLES)
    add = parser.add_argument
    add("pattern", metavar="PATTERN", help="a command with {names}; {{ and }} are braces")
    add(
        "-p",
        "--parameter",
        nargs="+",
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a parameter and the values it takes",
    )
    add("--sampling-mode", choices=["shuffled_grid", "grid"], default="shuffled_grid")
    add("--n-samples", type=int, metavar="N", help="print only the first N")
    add("--seed", type=int, metavar="N", help="the same seed prints the same lines")
    args = parser.parse_args()
    combinations = expand(args.parameter)
    if args.sampling_mode == "shuffled_grid":
        random.seed(args.seed)
        random.shuffle(combinations)
    if args.n_samples is not None and args.n_samples < 0:
        raise UsageError(f"--n-samples {args.n_samples}: write 0 or more")
    commands = [fill_in(args.pattern, each) for each in combinations[: args.n_samples]]
    sys.stdout.writelines(f"{command}\n" for command in commands)
    sys.stdout.flush()
    return 0


def expand(parameters: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Return all combinations; the last parameter varies fastest."""
    if not parameters:
        raise UsageError("no parameter is given: write -p NAME VALUE VALUE …")
    for name, *values in parameters:
        if not values:
            raise UsageError(f"parameter {name} has no values: write -p {name} VALUE VALUE …")
    names = [name for name, *_values in parameters]
    products = itertools.product(*(values for _name, *values in parameters))
    return [dict(zip(names, values, strict=True)) for values in products]


def fill_in(pattern: str, values: dict[str, str]) -> str:
    """Fill the values into the pattern with str.format."""
    try:
        return pattern.format(**values)
    except KeyError as error:
        fault = f"the pattern asks for {{{error.args[0]}}}, but -p only gives {', '.join(values)}"
    except IndexError:
        fault = "the pattern has {} without a name"
    except (ValueError, AttributeError) as error:
        fault = f"the pattern cannot be filled in: {error}"
    raise UsageError(f"{fault}; for braces write {{{{ and }}}}")
