"""What an attempt writes: its log and the metrics of its run, read in small pieces as they grow.

A job's output is hostile input: a file may be huge, binary, a pipe or a link, and may be replaced at any
moment. Only regular files are opened, and of each piece only the last kilobytes are read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from stoker.core.divergence import Value, may_show_divergence, read_losses, read_metrics
from stoker.core.waste import Output

_MOST_BYTES = 16 << 10
_CLOCK_S = 0.002  # the times in metrics are rounded


class OutputTail:
    """The end of an attempt's output. Belongs to one thread at a time.

    The first `log_since` bytes of the log are from earlier attempts, and so are metrics from before
    `started_at`, in seconds of the Unix epoch.
    """

    def __init__(self, log: str, log_since: int, metrics: str | None, started_at: float) -> None:
        self._log = _GrowingFile(log, log_since)
        self._log_since = log_since
        # Stoker makes this file itself, so it is no link.
        self._metrics = None if metrics is None else _GrowingFile(metrics, follows_links=False)
        self._started_at = started_at
        self._is_first = True

    def look(self, *, finds_losses: bool, is_shared: bool = False) -> Output | None:
        """Read what was written since the last look; None if the log cannot be seen.

        With `finds_losses`, all losses in the log are returned, else only pieces with a value that is not
        finite are searched. Nothing in a log that `is_shared` with other attempts is taken for a loss.
        """
        is_first, self._is_first = self._is_first, False
        data = self._log.read_more()
        metrics = None if self._metrics is None else self._metrics.read_more()
        if data is None:
            return None
        values = [] if not metrics else self._of_this_attempt(metrics, is_first=is_first)
        has_losses = not is_shared and (finds_losses or may_show_divergence(data))
        return Output(
            has_changed=self._log.has_changed
            or (self._metrics is not None and self._metrics.has_changed),
            has_any=self._log.size > self._log_since or bool(values),
            metrics=values,
            losses=list(read_losses(data)) if has_losses else (),
        )

    def _of_this_attempt(self, data: bytes, *, is_first: bool) -> Sequence[Value]:
        values = read_metrics(data)
        if not is_first:
            return list(values)
        since = self._started_at - _CLOCK_S
        return [value for value in values if value.time is not None and value.time >= since]


class _GrowingFile:
    """A file to which lines are added. `has_changed`: it was different when it was read the last time."""

    def __init__(self, path: str, offset: int = 0, *, follows_links: bool = True) -> None:
        self._path = path
        self._offset = offset
        self._follows_links = follows_links
        self._identity: tuple[int, int] | None = None
        self._stamp: tuple[int, ...] | None = None
        self.size = 0
        self.has_changed = False

    def read_more(self) -> bytes | None:
        """Return the lines that were added, the last ones if they are many; None if it is no plain file."""
        self.has_changed = False
        try:
            found = os.stat(self._path, follow_symlinks=self._follows_links)
            if not stat.S_ISREG(found.st_mode):
                return None
            identity = found.st_dev, found.st_ino
            stamp = (*identity, found.st_size, found.st_mtime_ns)
            if stamp == self._stamp:
                return b""
            is_other = self._identity not in (None, identity)
            self._identity, self._stamp, self.size = identity, stamp, found.st_size
            self.has_changed = True
            if is_other or self.size < self._offset:
                self._offset = self.size  # it was replaced, or cut at its size limit
            return self._read_lines() if self.size > self._offset else b""
        except OSError:
            return None

    def _read_lines(self) -> bytes:
        begin = max(self._offset, self.size - _MOST_BYTES)
        data = self._read(begin)
        # A progress bar ends its lines with carriage returns.
        end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r"))
        if end or begin > self._offset or len(data) >= _MOST_BYTES:
            skipped = 0 if begin == self._offset else 1 + data.find(b"\n", 0, end)
            self._offset = begin + (end or len(data))
            return data[skipped:end]
        return b""

    def _read(self, begin: int) -> bytes:
        # Without O_NONBLOCK, opening a pipe that has just taken its place would wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags if self._follows_links else flags | os.O_NOFOLLOW)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            return os.pread(fd, _MOST_BYTES, begin)
        finally:
            os.close(fd)
