"""`stoker sweep`: runs a command with all combinations of its parameters."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from stoker.cli.arguments import JSON, PREEMPTION, Args, arg
from stoker.cli.messages import note, print_json
from stoker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from stoker.client.client import Client
    from stoker.sweeps.earlier_runs import EarlierRuns
    from stoker.sweeps.plan import Sweep
    from stoker.wire import Submission

SUMMARY = """\
Run a command with all combinations of its parameters, or with samples of them: as typed, or from a
YAML or TOML file (a W&B sweep file will do). Every run has a folder of its own, and submitted again
only those run that have not succeeded."""
EXAMPLES = """\
  stoker sweep 'python t.py --lr {lr} --bs {bs}' lr=1e-3,3e-4 bs=32,64
  stoker sweep 'python t.py {args}' lr='loguniform(1e-5,1e-1)' -n 50 --seed 0
  stoker sweep 'python t.py {args}' lr='loguniform(1e-5,1e-1)' -n 50 --method tpe --maximize acc
  stoker sweep 'python t.py {hydra}' opt=sgd,adam 'seed=range(3)'
  stoker sweep sweep.yaml                      from a file; -f sweep.yaml is the same
  stoker sweep -f sweep.yaml lr=1e-4 --dry-run  see what would run, with another lr
  stoker sweep -f sweep.yaml --rerun failed    only what failed
  stoker sweep --warm torch 'python t.py {args}' lr=1,2    runs find torch imported
  stoker sweep 'CMD {lr}' lr=1,2 --print | stoker run --gpus 0,1
values: 1,2,3  'range(3)'  'linspace(0,1,5)'  'logspace(-5,-1,5)'  'a,b=zip([1,2],[3,4])'
  drawn: 'uniform(0,1)'  'loguniform(1e-5,1e-1)'  'randint(1,6)'  'normal(0,1)'
in the command: {name}  {args}  {hydra}  {params_json}  {dir}  {id}  {index}  {seed}
"""

# Options that runs have as jobs of `stoker add` do.
_OPTIONS = (
    *("gpus", "gpu_mem", "cpus", "mem", "share", "node", "on", "node_label"),
    *("priority", "retries", "warm", "shell", "image", "on_nan", "stall", "idle", "on_cut"),
    *("preemptible", "preempt", "checkpoint", "signal", "grace"),
)
_SHOWN = 5

_WARM = "runs start warm, with their imports already made (--warm never: each imports for itself)"

ARGUMENTS = (
    arg("-f", "--file", metavar="FILE", help="the sweep, in YAML or TOML; -: from standard input"),
    arg("-n", "--samples", type=int, metavar="N", help="how many to draw"),
    arg(
        "--method",
        metavar="M",
        help="grid; random: random order, or -n samples; tpe: -n runs, each chosen by the results so far"
        " (default: grid)",
    ),
    arg("--minimize", action="append", metavar="METRIC", help="the metric to compare runs by"),
    arg("--maximize", action="append", metavar="METRIC", help="the same, greater is better"),
    arg("--seed", type=int, metavar="N", help="the same seed draws the same (default: 0)"),
    arg("--repeats", type=int, metavar="N", help="run each N times, with {seed} from 0 on"),
    arg("--name", help="the sweep's name (default: the file's, or the program's)"),
    arg(
        "--rerun",
        choices=("failed", "all", "none"),
        help="failed: only those; all: also what is done; none: only what is new"
        " (default: all that has not succeeded)",
    ),
    arg("--max-failures", type=int, metavar="N", help="pause the sweep once N runs have failed"),
    arg("--dry-run", action="store_true", help="show how many runs, the first ones, and the time"),
    arg("--print", action="store_true", help="print the commands and queue nothing"),
    arg("-0", "--null", action="store_true", help="end each printed command with NUL"),
    arg("--foreground", action="store_true", help="run here and now, without the queue"),
    arg(
        "--slots", metavar="SLOTS", help="with --foreground: GPUs to use, as for stoker run --gpus"
    ),
    arg("-j", "--jobs-per-gpu", type=int, default=1, metavar="N", help="with --foreground"),
    arg("-g", "--gpus", type=int, metavar="N", help="GPUs a run needs (default: 1; 0: none)"),
    arg("--gpu-mem", metavar="MEM", help="GPU memory a run needs: 10G (default: learned)"),
    arg("--cpus", type=int, metavar="N", help="CPUs to set aside for each run"),
    arg("--mem", metavar="MEM", help="RAM to set aside for each: 32G; with more it is ended"),
    arg("--share", default="auto", metavar="HOW", help="auto, never, always:N (default: auto)"),
    arg("--node", metavar="NAMES", help="on one of these nodes of the cluster: gpu1,gpu2"),
    arg("--on", metavar="MODEL", help="on GPUs of this kind: a100"),
    arg(
        "--node-label", action="append", metavar="K=V", help="on nodes with this label; repeatable"
    ),
    arg(
        "--on-cut",
        choices=("stop", "finish"),
        metavar="HOW",
        help="if its node is cut off: stop its runs, or finish there (default: stop)",
    ),
    arg("-p", "--priority", type=int, metavar="N", help="higher runs first (default: 0)"),
    arg("-t", "--timeout", metavar="TIME", help="end a run after this long: 90s, 2h, 1d12h"),
    arg("--retries", type=int, metavar="N", help="try a failed run N more times"),
    arg(
        "--on-nan",
        choices=("mark", "notify", "stop"),
        metavar="HOW",
        help="if a run reports nan or inf: mark (the default), notify, stop",
    ),
    arg("--stall", metavar="TIME", help="end a run after so long without output or change"),
    arg("--idle", metavar="TIME", help="end a run whose GPU computes nothing for so long"),
    *PREEMPTION,
    arg(
        "--warm",
        metavar="MODULES",
        help="torch,numpy: find these imported; auto; never (default: auto)",
    ),
    arg("--sync", action="store_true", help="ship a copy of the code to whatever node, now"),
    arg("--image", metavar="IMG", help="run each in a container: an image, a .sif file, a folder"),
    arg("--shell", metavar="SH", help="the shell for commands; login: your own (default: /bin/sh)"),
    JSON,
    arg("words", nargs="*", metavar="CMD|NAME=VALUES", help="the command, and its parameters"),
)


def run(args: Args) -> int:
    """Queue the runs, or show or print them; in the foreground 0 only if all succeeded."""
    _check(args)
    sweep = plan(args)
    for remark in sweep.notes:
        note(remark)
    if args.print and sweep.is_adaptive:
        raise UsageError(
            "--print: the parameters of this method depend on the results of earlier runs"
        )
    if args.print:
        return _print(sweep, null=args.null)
    _note_other_sweep(sweep)
    common = make_submission(args, sweep)
    if args.dry_run:
        return _dry_run(args, sweep, common)
    if sweep.is_adaptive:
        from stoker.cli.adaptive_sweep import begin_search

        return begin_search(args, sweep, common)
    if args.foreground:
        from stoker.cli.foreground_sweep import run_here

        return run_here(args, sweep, common)
    return _queue(args, sweep, common)


def _note_other_sweep(sweep: Sweep) -> None:
    """Tell that the runs go beside those of another sweep: the default name is that of the program."""
    from stoker.sweep_results.collect import describe_other_sweep

    remark = describe_other_sweep(sweep)
    if remark is not None:
        note(remark)


def _check(args: Args) -> None:
    if sum((args.dry_run, args.print, args.foreground)) > 1:
        raise UsageError("--dry-run, --print and --foreground exclude each other: give one of them")
    if args.json and (args.print or args.foreground):
        raise UsageError("--json tells what was queued: leave --print and --foreground out")
    if args.max_failures is not None and args.max_failures < 1:
        raise UsageError(f"--max-failures {args.max_failures}: write 1 or more")
    for option, number in (("-g", args.gpus), ("--retries", args.retries)):
        if number is not None and number < 0:
            raise UsageError(f"{option} {number}: write 0 or more")
    if args.idle is not None and args.gpus == 0:
        raise UsageError("--idle is for runs with a GPU: leave it out with -g 0")
    if args.cpus is not None and args.cpus < 1:
        raise UsageError(f"--cpus {args.cpus}: write 1 or more")
    if args.sync and (args.print or args.foreground):
        raise UsageError("--sync is for runs in the queue: leave --print and --foreground out")
    if args.null and not args.print:
        raise UsageError("-0 needs --print")


def plan(args: Args) -> Sweep:
    """Read and check the whole sweep."""
    from stoker.sweeps.files import is_sweep_file, read_file
    from stoker.sweeps.plan import plan_sweep
    from stoker.sweeps.tree import Map, as_tree

    words = list(args.words)
    file = args.file
    if file is None and words and is_sweep_file(words[0]):
        file = words.pop(0)
    if file is not None:
        tree = read_file(file)
    elif words:
        _check_command(words[0])
        tree = Map()
        tree.put("command", words.pop(0))
    else:
        raise UsageError(
            "no command was given: stoker sweep 'python t.py --lr {lr}' lr=1,2; or -f FILE"
        )
    if args.samples is not None:
        tree.pop("run_cap", None)
    for key in ("samples", "method", "seed", "repeats", "name"):
        if getattr(args, key) is not None:
            tree[key] = getattr(args, key)
            tree.lines.pop(key, None)
    goals = {"minimize": args.minimize, "maximize": args.maximize}
    metrics = [{"name": name, "goal": goal} for goal in goals for name in goals[goal] or ()]
    if metrics:
        tree["metric"] = as_tree(metrics)
        tree.lines.pop("metric", None)
    return plan_sweep(tree, words, portable=args.sync)


def _check_command(word: str) -> None:
    """Refuse a parameter in place of the command: a shell would read it as an assignment."""
    name, equals, _value = word.partition("=")
    if equals and name.replace(".", "_").isidentifier() and " " not in word:
        raise UsageError(
            f"'{word}' is a parameter, but the command is missing:"
            f" stoker sweep 'python t.py --{name} {{{name}}}' {word}"
        )


def make_submission(args: Args, sweep: Sweep) -> Submission:
    """Return the submission of the runs, still without jobs."""
    from stoker.cli.add_options import read_options
    from stoker.cli.git_state import GitQuery
    from stoker.submit_context import find_folder
    from stoker.sweeps.queueing import describe_runs

    folder = find_folder(None)
    question = GitQuery(folder)
    given = read_options({name: getattr(args, name) for name in _OPTIONS})
    given["timeout"] = args.timeout or None
    if args.sync and not args.dry_run:
        from stoker.home import find_home
        from stoker.snapshot import take

        given |= {"sync": True, "snapshot": take(folder, find_home())}
    given["git"] = question.answer()
    return describe_runs(sweep, folder, given)


def _print(sweep: Sweep, *, null: bool) -> int:
    if not sweep.passes_parameters:
        raise UsageError(
            "the command passes no parameters, so all lines would be the same: add ${args} to it, or"
            " leave --print out"
        )
    if not null and any("\n" in run.command for run in sweep):
        raise UsageError("a command holds a newline: print with -0, and read with stoker run -0")
    end = "\0" if null else "\n"
    sys.stdout.writelines(f"{run.command}{end}" for run in sweep)
    sys.stdout.flush()
    return 0


def _dry_run(args: Args, sweep: Sweep, common: Submission) -> int:
    from stoker.cli.forecast_text import describe_order, foretell_sweep
    from stoker.cli.safe_text import one_line
    from stoker.client.client import Client
    from stoker.sweeps.earlier_runs import Rerun

    if sweep.is_adaptive:
        from stoker.cli.adaptive_sweep import dry_run

        return dry_run(args, sweep)
    rerun = Rerun(args.rerun or "undone")
    with Client() as client:
        history, slots = ask_queue(client, sweep, _done_here(client.home, sweep))
        todo, example = 0, None
        for run in history.choose(sweep, rerun):
            todo, example = todo + 1, example or run
        order = describe_order(common, todo, example)
        plan = foretell_sweep(client, order) if order and slots and not args.json else None
    if args.json:
        print_json(_facts(sweep) | {"to_run": todo, "mean_s": history.mean_s, "slots": slots})
        return 0
    print(f"sweep {sweep.name}: {_runs(sweep.count)}{_more(history.describe_skipped(sweep.count))}")
    for number, run in enumerate(history.choose(sweep, rerun)):
        if number == _SHOWN:
            print(f"  … {todo - _SHOWN:,} more")
            break
        print(f"  {one_line(os.fsencode(run.own_command), width=1000)}")
    print(f"folders: {sweep.root}")
    print(f"time: {_estimate(history, todo, slots)}")
    if plan is not None:
        print(f"plan: {plan}")
    return 0


def _estimate(history: EarlierRuns, todo: int, slots: int) -> str:
    from stoker.core.durations import format_duration

    if not todo:
        return "nothing is left to run"
    if history.mean_s is None:
        return "not known before a run has succeeded"
    total_s = history.mean_s * todo / max(1, slots)
    each = format_duration(history.mean_s)
    return f"about {format_duration(total_s)} ({each} a run, {slots} at once)"


def _queue(args: Args, sweep: Sweep, common: Submission) -> int:
    from stoker.client.client import Client
    from stoker.sweep_results.collect import write_manifest
    from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
    from stoker.sweeps.queueing import make_search_order, queue_runs, submission_lock
    from stoker.wire import NewSetting

    write_manifest(sweep)
    with Client(start=True) as client, submission_lock(client.home, sweep.name, os.getcwd(), note):
        history = EarlierRuns(client.sweep(sweep.name, os.getcwd()), _done_here(client.home, sweep))
        runs = history.choose(sweep, Rerun(args.rerun or "undone"))
        if args.max_failures is not None:
            name = f"max-failures.{sweep.name}"
            client.set_config(NewSetting(name=name, value=str(args.max_failures)))
        added = list(queue_runs(client, runs, common))
        if sweep.is_watched and (added or history.live):
            client.search(make_search_order(sweep, os.getcwd(), common))
    count = sum(part.last - part.first + 1 for part in added)
    passed_over = history.describe_skipped(sweep.count)
    if args.json:
        ids = [job_id for part in added for job_id in range(part.first, part.last + 1)]
        notices = sorted({part.notice for part in added if part.notice})
        print_json(_facts(sweep) | {"ids": ids, "notices": notices}, indent=None)
        return 0
    if not added:
        print(f"sweep {sweep.name}: nothing to run: {passed_over}")
        return 0
    first, last = added[0].first, added[-1].last
    jobs = f"job {first}" if first == last else f"jobs {first}-{last}"
    print(f"sweep {sweep.name}: {_runs(count)} added, {jobs}{_more(passed_over)}")
    note_warm(args, sweep)
    if added[0].notice is not None:
        note(added[0].notice)
    if sys.stdout.isatty():
        print(f"stoker wait -P {sweep.name} waits for them; stoker results {sweep.name} shows them")
    return 0


def _facts(sweep: Sweep) -> dict[str, Any]:
    return {"sweep": sweep.name, "folder": sweep.root, "runs": sweep.count}


def note_warm(args: Args, sweep: Sweep) -> None:
    """Tell that runs start warm although no option asks for it, and how to turn that off."""
    if args.warm is None and sweep.is_warm_by_default:
        note(_WARM)


def _done_here(home: str, sweep: Sweep) -> set[bytes]:
    """Return the commands of a sweep that have succeeded in the foreground."""
    from stoker.store.foreground_runs import read_done
    from stoker.sweeps.earlier_runs import record_key

    return read_done(home, record_key(os.getcwd(), sweep.name))


def ask_queue(
    client: Client, sweep: Sweep, done_here: Collection[bytes] = frozenset()
) -> tuple[EarlierRuns, int]:
    """Return the sweep's earlier runs and the number of slots; none of both without a daemon."""
    from stoker.client.transport import NoDaemonError
    from stoker.sweeps.earlier_runs import EarlierRuns

    cwd = os.getcwd()
    try:
        return EarlierRuns(client.sweep(sweep.name, cwd), done_here), len(client.status().slots)
    except NoDaemonError:
        if os.path.exists(os.path.join(client.home, "stoker.db")):
            note("no daemon runs: earlier successes are not known (stoker daemon start)")
        return EarlierRuns((), done_here), 0


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _more(text: str) -> str:
    return f"; {text}" if text else ""
