"""Reports of forked jobs: each writes one figure to a file of its own, which exists only in memory."""

from __future__ import annotations

import fcntl
import os

from stoker.warm.messages import REPORT_BYTES, decode_peak


class JobReports:
    """The files of the running jobs. A job opens its file by a name in /proc, and only to write its report.

    So a job has no further descriptor. A file cannot grow.
    """

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def open(self, key: str) -> str:
        """Return the name of a new file for an attempt; empty if there can be none."""
        self.take(key)
        try:
            fd = os.memfd_create("stoker-report", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return ""
        self._fds[key] = fd
        os.ftruncate(fd, REPORT_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        return f"/proc/{os.getpid()}/fd/{fd}"

    def take(self, key: str) -> int:
        """Return the figure that an attempt has written, and close its file; 0 if there is none."""
        fd = self._fds.pop(key, None)
        if fd is None:
            return 0
        try:
            return decode_peak(os.pread(fd, REPORT_BYTES, 0))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close all files."""
        for key in list(self._fds):
            self.take(key)
