"""`simple_gpu_scheduler --gpus 0 1 2 < commands`: the older tool's command line on Stoker's engine."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from stoker.cli.main import report_errors
from stoker.cli.messages import write_all
from stoker.cli.parser import Parser
from stoker.cli.run_report import Report
from stoker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.core.job import Outcome
    from stoker.core.slot import Slot
    from stoker.engine.running_attempt import RunningAttempt
    from stoker.executors.contract import Ended

PROGRAM = "simple_gpu_scheduler"
SUMMARY = "Run the commands that come on standard input, one per line, each on a free GPU."
EXAMPLES = """\
example:
  simple_gpu_scheduler --gpus 0 1 2 < gpu_commands.txt

This is Stoker behind the old command line. Natively: stoker run --gpus 0,1,2 gpu_commands.txt
(live view, logs, retries, --resume; see stoker run -h).
"""


class Announcer(Report):
    """Prints each start on standard output, as the original does; failures go to standard error."""

    remedy = None  # this command has no --resume

    def __init__(self) -> None:
        super().__init__()
        self._in_line: set[str] = set()

    def on_launch(self, running: RunningAttempt) -> None:
        """Announce a command before it starts; one that waits in line may yet get another GPU."""
        self._in_line.add(running.key)
        if not running.is_claimed_ahead:
            self.on_start(running)

    def on_start(self, running: RunningAttempt) -> None:
        """Announce a command that waited in line."""
        if running.key in self._in_line:
            self._in_line.remove(running.key)
            where = running.slots[0].visible.encode(errors="surrogateescape")
            write_all(1, b"Processing command `%b` on gpu %b\n" % (running.entry.command, where))

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Report a failure, also of a command that could not start."""
        if running.slots:
            self.on_start(running)
        super().on_end(running, outcome, ended, retried)


def main() -> int:
    """Run all commands; 0 only if all of them succeeded."""
    return report_errors(PROGRAM, _run)


def _run() -> int:
    parser = Parser(PROGRAM, SUMMARY, EXAMPLES)
    parser.add_argument(
        "--gpus",
        nargs="+",
        required=True,
        metavar="GPU",
        help="0 1 2 or 0,1,2: one slot each; 0,1 2,3: with several words each word is one slot",
    )
    slots = read_slots(parser.parse_args().gpus)

    from stoker.engine.command_reader import open_source
    from stoker.engine.foreground_engine import ForegroundEngine, ForegroundSettings
    from stoker.executors.command import DEFAULT_SHELL
    from stoker.home import find_home
    from stoker.store import foreground_runs
    from stoker.supervisor.launcher import start_supervisor

    source = open_source(None, null=False, outlive=False)
    supervisor = start_supervisor()
    record = foreground_runs.create(find_home(), {"cwd": os.getcwd(), "name": PROGRAM})
    report = Announcer()
    settings = ForegroundSettings(
        slots=slots,
        shell=DEFAULT_SHELL,
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **os.environ},
        cwd=os.getcwd(),
        log_of=lambda _attempt: None,
        last_freed_first=True,
    )
    foreground = ForegroundEngine(record, source, settings, report, supervisor)
    try:
        foreground.run()
        return 0 if report.sum_up(foreground) else 1
    finally:
        record.close()


def read_slots(words: Sequence[str]) -> tuple[Slot, ...]:
    """Read `--gpus`: a single word lists slots; of several words each is one slot."""
    from stoker.core.slot import Slot
    from stoker.gpus.drivers import open_driver
    from stoker.gpus.slot_grammar import visible_gpus

    nvml = open_driver()
    known = nvml.gpus() if nvml else ()
    named = re.split(r"[,\s]+", words[0]) if len(words) == 1 else [word.strip() for word in words]
    slots: list[Slot] = []
    for name in filter(None, named):
        gpus = tuple(gpu.strip() for gpu in name.split(",") if gpu.strip())
        # Other runs of Stoker lease a GPU by its UUID; a GPU unknown to the driver is leased by name.
        uuids = tuple(gpu.uuid for gpu in visible_gpus(known, name))
        keys = uuids or tuple(gpu for gpu in dict.fromkeys(gpus) if gpu != "-1")
        slots.append(Slot(len(slots), gpus, keys))
    if not slots:
        raise UsageError("--gpus names no GPU: write --gpus 0 1 2")
    return tuple(slots)
