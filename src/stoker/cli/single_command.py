"""`stoker run -- CMD`: one command on a free GPU; its output and its exit code are Stoker's."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from stoker.cli.run_report import FailedCommand, Report
from stoker.core.job import Outcome
from stoker.engine.command_reader import Source
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.cli.arguments import Args
    from stoker.engine.foreground_engine import ForegroundEngine
    from stoker.engine.running_attempt import RunningAttempt
    from stoker.executors.contract import Ended


def check_command(args: Args) -> None:
    """Refuse what a single command cannot have."""
    if not args.command or not args.command[0].strip():
        raise UsageError("no command follows --: stoker run -- python train.py")
    if args.file is not None:
        raise UsageError(f"give one of a list, {args.file}, and a command after --")
    if args.jobs_per_gpu != 1:
        raise UsageError("-j is for a list of commands: leave it out with a command after --")


def line_of(command: list[str]) -> str:
    """Return the line for the shell: one word is a line already, several are a command and its arguments."""
    return command[0] if len(command) == 1 else shlex.join(command)


def source_of(command: list[str]) -> Source:
    """Return a source of this command alone."""
    fd = os.memfd_create("command", os.MFD_CLOEXEC)
    os.write(fd, os.fsencode(line_of(command)))
    os.lseek(fd, 0, os.SEEK_SET)
    return Source(fd, null=True, name="the command")


class SingleReport(Report):
    """Writes why the command failed, and nothing about a success."""

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Keep the exit code of the command; 128 and the number of the signal that ended it."""
        super().on_end(running, outcome, ended, retried)
        signal = None if outcome.status is None else outcome.status & 0x7F
        self.exit_code = outcome.exit_code or (128 + signal if signal else 1)

    def report_failure(self, failure: FailedCommand, *, retried: bool) -> None:
        """Write why the command failed."""
        again = "; trying again" if retried else ""
        self.write(f"{failure.reason}{again}: {failure.command}")

    def sum_up(self, foreground: ForegroundEngine) -> bool:
        """Tell whether the command succeeded; a command that did not begin is named."""
        engine = foreground.engine
        if engine.queue.already_done:
            self.write("the command had succeeded before: leave out --resume to run it again")
        return engine.all_succeeded()
