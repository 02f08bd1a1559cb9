"""Until when nodes may hold leases, on record: whoever granted them may be gone."""

from __future__ import annotations

import contextlib

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.bridge.clock import boot_s
from stoker.supervisor.process_tree import boot_id


class Granted(msgspec.Struct):
    """What is granted, and what longer leases that were granted before may still last."""

    lease_s: float = 0.0
    longer_s: float = 0.0
    until_s: float = 0.0  # by the boot clock, of this boot
    boot: str = ""


class LeaseRecord:
    """In a file of the head, for the next bridge; a longer lease is on record before it is granted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._granted = Granted()
        with contextlib.suppress(OSError, msgspec.DecodeError), open(path, "rb") as file:
            self._granted = msgspec.json.decode(file.read(), type=Granted)
        if self._granted.boot != boot_id():
            # How much of them is left is not known.
            self._granted.until_s = boot_s() + self._granted.longer_s

    @property
    def lease_s(self) -> float | None:
        """How long a lease is that is granted; None if none ever was."""
        return self._granted.lease_s or None

    def grant(self, lease_s: float) -> None:
        """Grant leases of this length from now on; with an OSError, of the same length as before."""
        before = self._granted
        if lease_s == before.lease_s:
            return
        longer_s, until_s = before.longer_s, before.until_s
        if until_s <= boot_s():
            longer_s = 0.0
        if lease_s < before.lease_s:
            longer_s = max(longer_s, before.lease_s)
            until_s = max(until_s, boot_s() + before.lease_s)
        granted = Granted(lease_s, longer_s, until_s, boot_id())
        write_whole(self._path, msgspec.json.encode(granted), durable=True)
        self._granted = granted

    def over_at(self) -> float:
        """When every lease that may have been granted until now has run out, by the boot clock."""
        return max(self._granted.until_s, boot_s() + self._granted.lease_s)
