"""Reports of `stoker run`: lines of text, or events in JSON."""

from __future__ import annotations

import json
import os
import sys
import time

import msgspec

from stoker.cli.messages import write_all
from stoker.cli.safe_text import last_lines, one_line
from stoker.core.durations import format_duration
from stoker.core.job import Outcome
from stoker.core.lifecycle import TABLE
from stoker.core.shell_dialect import explain_bash
from stoker.engine.command_reader import has_open_quote
from stoker.engine.foreground_engine import ForegroundEngine
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.contract import Ended

_FAILURES_LISTED = 20


class FailedCommand(msgspec.Struct, frozen=True):
    """A command that did not succeed."""

    job: int
    command: str
    reason: str
    log: str | None


class Report:
    """Writes failures as they happen, and a summary, to standard error."""

    exit_code = 1  # unless all commands succeed
    remedy: str | None = "the same again with --resume runs only what has not succeeded"

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._failures: list[FailedCommand] = []
        self._has_explained_quotes = False
        self.looks_for_bash = False  # until one is found, commands are read for what /bin/sh lacks

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_exception: object) -> None:
        return None

    def on_launch(self, running: RunningAttempt) -> None:
        """Write once that a command needs bash."""
        if not self.looks_for_bash:
            return
        explanation = explain_bash(running.entry.command.decode(errors="replace"))
        if explanation is not None:
            self.looks_for_bash = False
            self.on_notice(f"command {running.attempt.job}: {explanation}")

    def on_start(self, running: RunningAttempt) -> None:
        """Write nothing."""

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, _ended: Ended | None, retried: bool
    ) -> None:
        """Write a failure, and keep it for the summary."""
        if not outcome.is_success:
            failure = FailedCommand(
                running.attempt.job,
                one_line(running.entry.command),
                outcome.reason or "failed",
                running.log,
            )
            if not retried and len(self._failures) < _FAILURES_LISTED:
                self._failures.append(failure)
            self.report_failure(failure, retried=retried)
            if not self._has_explained_quotes and has_open_quote(running.entry.command):
                self._has_explained_quotes = True
                self.write(
                    f"command {failure.job} ends inside a quote: end the lines of a longer command"
                    " in \\, or end each command with a NUL byte and use stoker run -0"
                )

    def on_notice(self, text: str) -> None:
        """Write a notice at once."""
        self.write(text)

    def refresh(self) -> float | None:
        """Return when to refresh again; this report never has to."""
        return None

    def write(self, text: str) -> None:
        """Write a line to standard error."""
        try:
            sys.stderr.write(f"stoker: {text}\n")
        except OSError:
            # The reader has gone; the commands go on.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    def report_failure(self, failure: FailedCommand, *, retried: bool) -> None:
        """Write which command failed."""
        again = "; trying again" if retried else ""
        self.write(f"{failure.job} {failure.reason}{again}: {failure.command}")

    def sum_up(self, foreground: ForegroundEngine) -> bool:
        """Write the summary; whether every command has succeeded."""
        engine = foreground.engine
        tally, skipped = engine.tally, engine.queue.already_done
        parts = [f"{tally.done} done"]
        parts += [
            f"{count} {word}"
            for count, word in (
                (tally.failed, "failed"),
                (tally.killed, "killed"),
                (tally.lost, "lost"),
                (skipped, "had succeeded before"),
            )
            if count
        ]
        if not engine.is_complete():
            parts.append("the rest was not started")
        took = format_duration(time.monotonic() - self._began)
        self.write(f"{', '.join(parts)}, in {took}{self.describe_output()}")
        self.list_failures(tally.failed + tally.killed + tally.lost)
        if self.remedy is not None and not engine.all_succeeded():
            self.write(self.remedy)
        return engine.all_succeeded()

    def describe_output(self) -> str:
        """Describe where the output of successful commands is; here it passed through."""
        return ""

    def list_failures(self, count: int) -> None:
        """List the failed commands again, if there are several."""
        if count > 1:
            for failure in self._failures:
                where = f" (log: {failure.log})" if failure.log else ""
                self.write(f"  {failure.job} {failure.reason}: {failure.command}{where}")
            if count > len(self._failures):
                self.write(f"  … and {count - len(self._failures)} more")


class JsonReport(Report):
    """Prints every event as a line of JSON on standard output."""

    def on_start(self, running: RunningAttempt) -> None:
        """Print a start event."""
        self._print(
            event="start",
            job=running.attempt.job,
            attempt=running.attempt.number,
            command=running.entry.command.decode(errors="backslashreplace"),
            gpus=running.gpus,
            pid=running.pid,
            at=_seconds(running.started_at_us),
            log=running.log,
        )

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Print an end event."""
        self._print(
            event="end",
            job=running.attempt.job,
            attempt=running.attempt.number,
            state=TABLE[outcome.event][1].value,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            retried=retried,
            at=_seconds(ended.at_us) if ended else None,
            cpu_s=ended.cpu_us / 1e6 if ended else None,
            max_rss_kb=ended.max_rss_kb if ended else None,
        )

    def on_notice(self, text: str) -> None:
        """Print a notice event."""
        self._print(event="notice", text=text)

    def sum_up(self, foreground: ForegroundEngine) -> bool:
        """Print the summary event."""
        engine = foreground.engine
        self._print(
            event="summary",
            **msgspec.to_builtins(engine.tally),
            already_done=engine.queue.already_done,
            complete=engine.is_complete(),
            seconds=round(time.monotonic() - self._began, 3),
        )
        return engine.all_succeeded()

    def _print(self, **event: object) -> None:
        write_all(1, f"{json.dumps(event)}\n".encode())


def _seconds(at_us: int | None) -> float | None:
    return None if at_us is None else at_us / 1e6


def tail_of(failure: FailedCommand) -> list[str]:
    """Return the last lines of a failed command's log, if it has one."""
    return last_lines(failure.log) if failure.log else []
