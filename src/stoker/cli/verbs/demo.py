"""`stoker demo`: runs real processes on fake GPUs in a temporary folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile

from stoker.cli.arguments import Args, arg
from stoker.errors import StokerError, UsageError

SUMMARY = """\
See Stoker at work: real processes that overlap on fake GPUs, one of which fails on purpose.
Takes some 10 seconds and leaves only the logs that it names, if any.
With --web the web page shows them, until you stop it."""
EXAMPLES = """\
  stoker demo              16 runs on 4 fake GPUs
  stoker demo --gpus 2     on 2: twice as long
  stoker demo --web        the web page over busy fake GPUs, until you stop it
"""

_RUNS = 16
_FAILING_RUN = 6

ARGUMENTS = (
    arg("--gpus", type=int, default=4, metavar="N", help="how many fake GPUs"),
    arg("--web", action="store_true", help="show the web page until stopped"),
)


def run(args: Args) -> int:
    """Run the demo; 0 if all ended as expected, including the failure on purpose."""
    from stoker.cli.main import run_verb
    from stoker.store.job_queries import read_states
    from stoker.testing.state import GIB, FakeGpus

    if args.gpus < 1:
        raise UsageError(f"--gpus {args.gpus}: a demo needs at least 1")
    stoker = _command_as_typed()
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as folder:
        gpus = FakeGpus(os.path.join(folder, "gpus"))
        gpus.create(args.gpus, mem_bytes=24 * GIB, name="Imaginary RTX 24 GB")
        os.environ.update(
            gpus.env(),
            STOKER_HOME=os.path.join(folder, "home"),
            STOKER_LEASE_DIR=os.path.join(folder, "leases"),
        )
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ["PATH"] = (
            f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
        )
        if args.web:
            from stoker.cli.demo_web import show

            return show(folder, args.gpus)
        commands = os.path.join(folder, "jobs.txt")
        with open(commands, "w", encoding="utf-8") as file:
            file.writelines(f"{command}\n" for command in _commands())
        print(f"stoker run jobs.txt     {_RUNS} trainings on {args.gpus} fake GPUs", flush=True)
        run_verb("run", [commands, *_output_options()])
        states = read_states(os.path.join(folder, "home", "runs", "1", "run.db"))
    wanted = dict.fromkeys(range(1, _RUNS + 1), "done") | {_FAILING_RUN: "failed"}
    if states != wanted:
        raise StokerError("the demo did not end as it should: see above")
    print(f"All as it should be: run {_FAILING_RUN} fails on purpose, the others are done.")
    print(f"Next: {stoker} run -h, or your own file of commands: {stoker} run jobs.txt")
    return 0


def _output_options() -> list[str]:
    """In a pipe the output itself; on a terminal, whose view names logs, logs that outlive the demo."""
    if not sys.stdout.isatty():
        return ["--tag"]
    return ["--logs", tempfile.mkdtemp(prefix="stoker-demo-logs-")]


def _command_as_typed() -> str:
    """What starts this program from the user's shell: `stoker` only where PATH leads to this one."""
    own = os.path.join(os.path.dirname(sys.executable), "stoker")
    found = shutil.which("stoker")
    if found is not None and os.path.realpath(found) == os.path.realpath(own):
        return "stoker"
    below = os.path.relpath(own)
    return shlex.quote(own if below.startswith("..") else below)


def _commands() -> list[str]:
    train = f"{os.path.basename(sys.executable)} -m stoker.testing.train"
    commands = []
    for number in range(1, _RUNS + 1):
        memory, seconds = 4 + number % 5 * 3, 1.2 + number % 4 * 0.5
        failure = " --fail-at 4" if number == _FAILING_RUN else ""
        commands.append(f"{train} --mem {memory}G --seconds {seconds} --steps 8{failure}")
    return commands
