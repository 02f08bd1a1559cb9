"""Where a run's output goes, and who is told: chosen once from the arguments and the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.cli.report import JsonReport, Report
from stoker.core.job import Attempt
from stoker.engine.foreground import Foreground
from stoker.engine.lines import Source, count_commands
from stoker.errors import StokerError

if TYPE_CHECKING:
    import argparse

    from stoker.cli.tags import Tagger
    from stoker.cli.view import View
    from stoker.engine.watchman import Watchman
    from stoker.gpus.nvml import Nvml
    from stoker.store.runs import Run


class Output:
    """Output passes through by default; a terminal gets a live view, and the output goes to logs."""

    def __init__(self, args: argparse.Namespace, source: Source) -> None:
        self._folder = _log_folder(args.logs)
        self._mind_others = args.gpus is None
        self._tagger: Tagger | None = None
        self._view: View | None = None
        self._record: Run | None = None
        self._tagged = args.tag
        live = sys.stdout.isatty() and not (args.tag or args.json)
        self._keep_logs = live or args.json
        if live:
            from stoker.cli.view import View

            total = count_commands(source.fd, null=args.null)
            self._view = View(total, tells_output=args.logs is None)
        self.report: Report = self._view or (JsonReport() if args.json else Report())

    def open(self, record: Run) -> None:
        """Keep what has to be kept beside the run's record."""
        self._record = record
        if self._tagged:
            from stoker.cli.tags import Tagger

            self._tagger = Tagger(record)

    def log_of(self, attempt: Attempt) -> str | None:
        """Where an attempt's output goes; None for straight through."""
        assert self._record is not None
        if self._tagger is not None:
            return self._tagger.fifo_for(attempt)
        if self._folder is not None:
            name = str(attempt.job) if attempt.number == 1 else attempt.key
            path = os.path.join(self._folder, f"{name}.log")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # an older run's
            return path
        if self._keep_logs:
            return self._record.path("logs", str(attempt.job // 1000), f"{attempt.key}.log")
        return None

    def follow(self, foreground: Foreground, nvml: Nvml | None) -> bool:
        """See a run through to its end; whether all succeeded."""
        if self._tagger is not None:
            self._tagger.attach(foreground)
        with self._watching(foreground, nvml) as watchman:
            if self._view is not None:
                self._view.attach(foreground.engine, watchman)
            with self.report:
                foreground.run(self.report.refresh)
        if self._tagger is not None:
            self._tagger.close()
        return self.report.sum_up(foreground)

    @contextlib.contextmanager
    def _watching(self, foreground: Foreground, nvml: Nvml | None) -> Iterator[Watchman | None]:
        if nvml is None:
            yield None
            return
        from stoker.engine.owners import Owners
        from stoker.engine.watchman import Watchman

        board = foreground.engine.board
        watchman = Watchman(
            nvml,
            board,
            self.report,
            Owners(board, foreground.executor.name, lambda: [os.getpid()]),
            mind_others=self._mind_others,
        )
        foreground.engine.follow(watchman)
        if foreground.engine.sharing is not None:
            from stoker.engine.sharing import models_of

            sharing = foreground.engine.sharing
            sharing.watch(watchman.look, lambda: models_of(nvml.gpus()))
        foreground.listen(watchman.fileno(), watchman.review)
        try:
            yield watchman
        finally:
            foreground.unlisten(watchman.fileno())
            watchman.stop()


def _log_folder(path: str | None) -> str | None:
    """Make the folder for logs, and see that files can be made in it, before anything starts."""
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
