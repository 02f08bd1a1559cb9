"""The output of `stoker run`: logs, tagged lines or a live view, as the arguments and terminal ask."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.cli.run_report import JsonReport, Report
from stoker.core.job import Attempt
from stoker.engine.command_log import start_log
from stoker.engine.command_reader import Source, count_commands
from stoker.engine.foreground_engine import ForegroundEngine, ForegroundSettings
from stoker.errors import StokerError
from stoker.executors.command import lacks_bash

if TYPE_CHECKING:
    from stoker.cli.arguments import Args
    from stoker.cli.line_tags import Tagger
    from stoker.cli.run_view import RunView
    from stoker.engine.gpu_monitor import GpuMonitor
    from stoker.gpus.driver import GpuDriver
    from stoker.store.foreground_runs import ForegroundRun
    from stoker.supervisor.launcher import SupervisorProcess


class Output:
    """Passes output through by default; a terminal gets a live view, and output goes to logs."""

    def __init__(self, args: Args, source: Source) -> None:
        self._source = source
        self._folder = _log_folder(args.logs)
        self._mind_others = args.gpus is None
        self._tagger: Tagger | None = None
        self._view: RunView | None = None
        self._record: ForegroundRun | None = None
        self._tagged = args.tag
        is_single = args.command is not None
        live = sys.stdout.isatty() and not (args.tag or args.json or is_single)
        self._keep_logs = live or args.json
        if live:
            from stoker.cli.run_view import RunView

            total = count_commands(source.fd, null=args.null)
            self._view = RunView(total, shows_output=args.logs is None)
        self.report: Report = self._view or (JsonReport() if args.json else Report())
        if is_single and not args.json:
            from stoker.cli.single_command import SingleReport

            self.report = SingleReport()

    def run(
        self,
        record: ForegroundRun,
        settings: ForegroundSettings,
        supervisor: SupervisorProcess,
        nvml: GpuDriver | None,
    ) -> int:
        """Run all commands of the source; 0 only if all of them succeeded, else the report's exit code."""
        self._record = record
        self.report.looks_for_bash = lacks_bash(settings.shell)
        foreground = ForegroundEngine(record, self._source, settings, self.report, supervisor)
        if self._tagged:
            from stoker.cli.line_tags import Tagger

            self._tagger = Tagger(record, foreground)
        try:
            with self._watching(foreground, nvml) as gpu_monitor:
                if self._view is not None:
                    self._view.attach(foreground.engine, gpu_monitor)
                with self.report:
                    foreground.run(self.report.refresh)
            if self._tagger is not None:
                self._tagger.close()
            return 0 if self.report.sum_up(foreground) else self.report.exit_code
        finally:
            record.close()

    def log_of(self, attempt: Attempt) -> str | None:
        """Return the file for an attempt's output; None for standard output."""
        assert self._record is not None
        if self._tagger is not None:
            return self._tagger.fifo_for(attempt)
        if self._folder is not None:
            return start_log(os.path.join(self._folder, f"{attempt.job}.log"), attempt)
        if self._keep_logs:
            return self._record.path("logs", str(attempt.job // 1000), f"{attempt.key}.log")
        return None

    @contextlib.contextmanager
    def _watching(
        self, foreground: ForegroundEngine, nvml: GpuDriver | None
    ) -> Iterator[GpuMonitor | None]:
        if nvml is None:
            yield None
            return
        from stoker.engine.gpu_models import models_of
        from stoker.engine.gpu_monitor import GpuMonitor
        from stoker.engine.process_owners import ProcessOwners

        slot_table = foreground.engine.slot_table
        gpu_monitor = GpuMonitor(
            nvml,
            slot_table,
            self.report.on_notice,
            ProcessOwners(slot_table, foreground.executor.name, lambda: [os.getpid()]),
            mind_others=self._mind_others,
        )
        foreground.engine.gpus.watch(gpu_monitor, lambda: models_of(nvml.gpus()))
        foreground.listen(gpu_monitor.fileno(), gpu_monitor.review)
        try:
            yield gpu_monitor
        finally:
            foreground.unlisten(gpu_monitor.fileno())
            gpu_monitor.stop()


def _log_folder(path: str | None) -> str | None:
    """Make the folder for logs, and check that it is writable, before any command starts."""
    if path is None:
        return None
    folder = os.path.abspath(path)
    probe = os.path.join(folder, f".stoker-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(probe)
    except OSError as error:
        raise StokerError(
            f"cannot write logs to {path}: {error.strerror}; name another folder"
        ) from error
    return folder
