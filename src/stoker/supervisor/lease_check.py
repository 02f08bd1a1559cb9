"""Confirms held leases, and tells the client which GPUs it has lost.

Other users can remove or replace lease files where the lease folder is not root's. A lease whose file is
gone excludes nobody, so it is taken again; until that succeeds, nothing starts on its GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from stoker.supervisor import reports
from stoker.supervisor.slot_queues import Leases, SlotQueue

_PERIOD_S = 5.0  # each look wakes a supervisor that has nothing else to do
_BEFORE_START_S = 0.1  # a lease that was confirmed within this time is not confirmed again to start
_NEVER = float("inf")


class LeaseCheck:
    """Checks the leases of a supervisor every few seconds while it holds any, and before starts."""

    def __init__(
        self, leases: Leases, places: Mapping[int, SlotQueue], tell: Callable[[str], None]
    ) -> None:
        self._leases = leases
        self._places = places
        self._tell = tell
        self._granted: set[int] = (
            set()
        )  # the places that the client holds, or would without the loss
        self._confirmed_at = 0.0

    def due_at(self) -> float:
        """When the leases are to be confirmed next."""
        return self._confirmed_at + _PERIOD_S if self._leases.held else _NEVER

    def grant(self, number: int) -> None:
        """Take note that the client holds a place."""
        self._granted.add(number)

    def withdraw(self, number: int) -> None:
        """Take note that the client has given a place back."""
        self._granted.discard(number)

    def forget(self) -> None:
        """Take note that a new client holds nothing yet."""
        self._granted.clear()

    def may_start(self, place: SlotQueue, what: str) -> bool:
        """Whether all leases of a place are in force, as seen within the last tenth of a second."""
        if time.monotonic() - self._confirmed_at >= _BEFORE_START_S:
            self.confirm(what)
        return not self._leases.lost or self._leases.lost.keys().isdisjoint(place.keys)

    def confirm(self, what: str) -> None:
        """Take every lease again that is not in force, and tell the client what changed."""
        self._confirmed_at = time.monotonic()
        before = set(self._leases.lost)
        if self._leases.confirm(what):
            self._leases.fit(self._places.values())
        lost = self._leases.lost
        for number, place in self._places.items():
            if number < 0:  # made of several places, which the client knows each by itself
                continue
            gone = next((key for key in place.keys if key in lost), None)
            if gone is not None and gone not in before:
                self._tell(reports.unheld(number, gone, lost[gone]))
            elif gone is None and number in self._granted and not before.isdisjoint(place.keys):
                self._tell(reports.held(number))
