"""Record of the granted leases, for the next bridge."""

from __future__ import annotations

import contextlib

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.engine.poll_driver import boot_clock_s
from stoker.supervisor.process_tree import boot_id


class Granted(msgspec.Struct):
    """Length of the present leases, and the end of longer leases that were granted before."""

    lease_s: float = 0.0
    longer_s: float = 0.0
    until_s: float = 0.0  # by the boot clock, of this boot
    boot: str = ""


class LeaseRecord:
    """File of the head with the length of leases. A longer lease is recorded before it is granted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._granted = Granted()
        with contextlib.suppress(OSError, msgspec.DecodeError), open(path, "rb") as file:
            self._granted = msgspec.json.decode(file.read(), type=Granted)
        if self._granted.boot != boot_id():
            # The time since the last boot is unknown.
            self._granted.until_s = boot_clock_s() + self._granted.longer_s

    @property
    def lease_s(self) -> float | None:
        """Length of a lease; None if none was ever granted."""
        return self._granted.lease_s or None

    def grant(self, lease_s: float) -> None:
        """Grant leases of this length from now on. If it raises OSError, the old length stays."""
        before = self._granted
        if lease_s == before.lease_s:
            return
        longer_s, until_s = before.longer_s, before.until_s
        if until_s <= boot_clock_s():
            longer_s = 0.0
        if lease_s < before.lease_s:
            longer_s = max(longer_s, before.lease_s)
            until_s = max(until_s, boot_clock_s() + before.lease_s)
        granted = Granted(lease_s, longer_s, until_s, boot_id())
        write_whole(self._path, msgspec.json.encode(granted), durable=True)
        self._granted = granted

    def over_at(self) -> float:
        """Return the time of the boot clock at which all leases granted until now have expired."""
        return max(self._granted.until_s, boot_clock_s() + self._granted.lease_s)
