"""The longest lease that a node may still hold, on record: whoever granted it may be gone."""

from __future__ import annotations

import contextlib
import os

from stoker.bridge.clock import boot_s


class LongestLease:
    """In a file of the head, for the next bridge. It is raised before such a lease is granted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.seconds = 0.0
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            self.seconds = float(file.read())
        self._raised_s = boot_s()

    def cover(self, lease_s: float) -> None:
        """From now on such leases are granted; longer ones count until all of them have run out."""
        if lease_s >= self.seconds:
            self._raised_s = boot_s()
        elif boot_s() < self._raised_s + self.seconds:
            return
        if lease_s != self.seconds:
            self.seconds = lease_s
            self._write()

    def _write(self) -> None:
        with open(f"{self._path}.new", "w", encoding="ascii") as file:
            file.write(str(self.seconds))
        os.replace(f"{self._path}.new", self._path)
