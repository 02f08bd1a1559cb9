"""`stoker simulate`: estimates how long work would take on other GPUs, or shared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import print_json
from stoker.cli.tables import Column, print_table
from stoker.core.durations import format_duration
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.simulator.comparison import Comparison
    from stoker.simulator.workload import Machine, Work

SUMMARY = """\
Tell how long work would take, and how many jobs would share a GPU, without running any of it: a sweep
that you describe, jobs from a trace file, or sweeps drawn at random. Beside Stoker's sharing stand a
GPU for each job, gpulimit's rule, and sharing with everything known beforehand."""
EXAMPLES = """\
  stoker simulate --runs 200 --minutes 30 --memory 5G --sm 0.3 --gpus 4x24G,8x24G
                                       how long on 4 GPUs, how long on 8
  stoker simulate --trace jobs.csv --gpus 8x80G
  stoker simulate --seeds 20           20 random weeks on 8x80G and on 4x24G
a trace has the columns arrival_s,duration_s,memory,sm and perhaps kind; memory is 5G, or what a job
holds from which part of its time on: 0:1G;0.1:5G;0.5:6G. sm is the share of a GPU it keeps busy.
"""

_COLUMNS = (
    Column("POLICY"),
    Column("TIME", right=True),
    Column("FASTER", right=True),
    Column("× LEAST", right=True),
    Column("JOBS/GPU", right=True),
    Column("OOM", right=True),
    Column("LOST", right=True),
)
_ORDER_COLUMNS = (
    Column("ORDER"),
    Column("MEAN", right=True),
    Column("95%", right=True),
    Column("LONGEST", right=True),
)
_DEFAULT = "8x80G,4x24G"
_MOST_GPUS = 1024

ARGUMENTS = (
    arg("--gpus", default=_DEFAULT, metavar="NxMEM", help=f"machines to try (default: {_DEFAULT})"),
    arg("--trace", metavar="FILE", help="jobs from a CSV file"),
    arg("--runs", type=int, metavar="N", help="a sweep of so many runs, all at once"),
    arg("--minutes", type=float, default=10.0, metavar="M", help="of each alone (default: 10)"),
    arg("--memory", default="5G", metavar="MEM", help="that each holds (default: 5G)"),
    arg("--sm", type=float, default=0.3, metavar="X", help="of a GPU it keeps busy (default: 0.3)"),
    arg("--seeds", type=int, default=5, metavar="N", help="how many to draw (default: 5)"),
    arg("--sizes", action="store_true", help="draw sweeps whose memory follows their parameters"),
    arg("--orders", action="store_true", help="compare the orders fifo and shortest instead"),
    JSON,
)


def run(args: Args) -> int:
    """Simulate, and print a table for each machine."""
    from stoker.simulator.comparison import CONTENDERS, ONE_NUMBER, compete
    from stoker.simulator.workload import draw, draw_sizes, read_trace

    machines = [_machine(word) for word in args.gpus.split(",")]
    if args.trace is not None and args.runs is not None:
        raise UsageError("--trace and --runs exclude each other: give one of them")
    if args.seeds < 1:
        raise UsageError(f"--seeds {args.seeds}: write 1 or more")
    if args.orders:
        return _compare_orders(args, machines)
    found = []
    for machine in machines:
        if args.trace is not None:
            workloads = [read_trace(args.trace)]
        elif args.runs is not None:
            workloads = [_sweep(args)]
        else:
            drawn = draw_sizes if args.sizes else draw
            workloads = [drawn(seed, machine) for seed in range(args.seeds)]
        for works in workloads:
            _check_fit(works, machine)
        contenders = (*CONTENDERS, ONE_NUMBER) if args.sizes else CONTENDERS
        found.append((machine, [compete(works, machine, contenders) for works in workloads]))
    if args.json:
        _print_json(found)
        return 0
    for machine, contests in found:
        _print(machine, contests)
    return 0


def _compare_orders(args: Args, machines: Sequence[Machine]) -> int:
    """Print completion times with each order of the queue, with a GPU for each job."""
    from stoker.simulator.order_comparison import ORDERS, complete, draw_mixed
    from stoker.simulator.workload import read_trace

    if args.runs is not None or args.sizes:
        raise UsageError(
            "--orders takes --trace, or draws jobs at random: leave --runs and --sizes out"
        )
    found = []
    for machine in machines:
        workloads = (
            [read_trace(args.trace)]
            if args.trace is not None
            else [draw_mixed(seed, machine.gpus) for seed in range(args.seeds)]
        )
        outcomes = {
            order: [complete(works, machine.gpus, order) for works in workloads] for order in ORDERS
        }
        found.append({"machine": machine.text, "orders": outcomes})
        if not args.json:
            print(f"{machine.text}: {sum(map(len, workloads))} jobs, from arrival to end")
            rows = [
                [
                    order,
                    *(
                        format_duration(
                            statistics.median(getattr(each, name) for each in outcomes[order])
                        )
                        for name in ("mean_s", "p95_s", "longest_s")
                    ),
                ]
                for order in ORDERS
            ]
            print_table(_ORDER_COLUMNS, rows)
    if args.json:
        print_json(found, indent=None)
    return 0


def _machine(word: str) -> Machine:
    from stoker.core.size import parse_size
    from stoker.simulator.workload import Machine

    count, _, size = word.strip().partition("x")
    hint = "write 4x24G for four GPUs of 24 GB"
    if not count.isdecimal() or not 1 <= int(count) <= _MOST_GPUS:
        raise UsageError(f"--gpus {word}: how many are there? {hint}")
    try:
        return Machine(int(count), parse_size(size))
    except ValueError as error:
        raise UsageError(f"--gpus {word}: {error}; {hint}") from None


def _sweep(args: Args) -> list[Work]:
    from stoker.core.size import parse_size
    from stoker.simulator.workload import Work

    try:
        held = parse_size(args.memory)
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from None
    if args.runs < 1 or not args.minutes > 0 or not 0 <= args.sm <= 1:
        raise UsageError("--runs is at least 1, --minutes more than 0, --sm a share from 0 to 1")
    work = Work(
        arrival_s=0.0, duration_s=args.minutes * 60, memory=((0.0, held),), sm=args.sm, kind="sweep"
    )
    return [work] * args.runs


def _check_fit(works: Sequence[Work], machine: Machine) -> None:
    largest = max(work.peak_bytes for work in works)
    if largest > machine.mem_bytes:
        from stoker.core.size import format_bytes

        raise UsageError(
            f"a job holds {format_bytes(largest)}, more than a GPU of {machine.text} has"
        )


def _print(machine: Machine, contests: Sequence[Comparison]) -> None:
    names = list(contests[0].outcomes)
    jobs = sum(next(iter(contest.outcomes.values())).jobs for contest in contests)
    least_s = statistics.median(contest.bound_s for contest in contests)
    gain = statistics.median(contest.share_of_gain for contest in contests)
    print(f"{machine.text}: {jobs} jobs, at the least {format_duration(least_s)}")
    print_table(_COLUMNS, [_row(name, contests) for name in names])
    print(f"Of what full knowledge would save, stoker saves {gain:.0%}.")
    ours = [contest.outcomes["stoker"] for contest in contests]
    predicted = sum(outcome.predicted for outcome in ours)
    if predicted:
        under = sum(outcome.underestimated for outcome in ours)
        print(
            f"Of {predicted} runs with sizes not seen before whose memory stoker predicted, {under} needed "
            f"more than was reserved ({under / predicted:.1%})."
        )


def _row(name: str, contests: Sequence[Comparison]) -> list[str]:
    outcomes = [contest.outcomes[name] for contest in contests]
    return [
        name,
        format_duration(statistics.median(outcome.makespan_s for outcome in outcomes)),
        f"{statistics.median(contest.speedup(name) for contest in contests):.2f}×",
        f"{statistics.median(contest.over_bound(name) for contest in contests):.2f}",
        f"{statistics.fmean(outcome.mean_tenants for outcome in outcomes):.1f}",
        str(sum(outcome.ooms for outcome in outcomes)),
        str(sum(outcome.lost for outcome in outcomes)),
    ]


def _print_json(found: Sequence[tuple[Machine, Sequence[Comparison]]]) -> None:
    rows = [
        {
            "machine": machine.text,
            "least_s": contest.bound_s,
            "share_of_gain": contest.share_of_gain,
            "policies": contest.outcomes,
        }
        for machine, contests in found
        for contest in contests
    ]
    print_json(rows, indent=None)
