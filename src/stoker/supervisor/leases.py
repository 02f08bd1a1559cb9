"""GPU leases of a supervisor: taken for slots, checked while they are held, inherited by jobs.

Where the lease folder does not belong to root, other users can remove or replace lease files. A lease whose
file is gone excludes no other process, so it is taken again. Until that succeeds, nothing starts on its GPU.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from stoker.gpus import lease
from stoker.supervisor import reports
from stoker.supervisor.slot_queues import SlotQueue

_FIRST_LEASE_FD = 200  # scripts use small numbers themselves
_CHECK_PERIOD_S = 5.0  # each check wakes an otherwise idle supervisor
_FRESH_S = 0.1  # a start trusts a check that is not older
_NEVER = float("inf")


class Unavailable(NamedTuple):
    """A GPU whose lease cannot be taken. Without a reason, another process holds it."""

    key: str
    reason: str | None


class Leases:
    """The leases that this process holds for the slots of its client.

    `lost` has the leases that are not in force, with the reason. `gathered` has, by slot, leases that are
    held while others of the slot are not. `owner` is the name of this process in the notes of lease files.
    """

    def __init__(self, slots: Mapping[int, SlotQueue], report: Callable[[str], None]) -> None:
        self.owner = ""
        self.held: dict[str, lease.Lease] = {}
        self.lost: dict[str, str] = {}
        self.gathered: dict[int, list[str]] = {}
        self._slots = slots
        self._report = report
        self._granted: set[int] = set()  # slots that the client holds, or would hold without a loss
        self._checked_at = 0.0

    def grant(self, number: int, *, gather: bool = False) -> Unavailable | None:
        """Take the leases of a slot for the client: all of them or, without `gather`, none."""
        keys, before = self._slots[number].keys, self.gathered.pop(number, [])
        missing = self.take(keys)
        if missing is None:
            self.fit(self._slots.values())
            self._granted.add(number)
        elif gather:
            new = [key for key in keys if key not in self.held and self._take_one(key) is None]
            self.gathered[number] = [key for key in keys if key in before or key in new]
        else:
            needed = {key for slot in self._granted for key in self._slots[slot].keys}
            self.release(key for key in before if key not in needed)
        return missing

    def withdraw(self, number: int, keys: Iterable[str], *, in_use: bool) -> None:
        """Release the named leases of a slot that the client gives back.

        If the slot is `in_use`, its attempt keeps the GPUs to its end: it took the slot from `ahead` before
        the order came.
        """
        self._granted.discard(number)
        self.gathered.pop(number, None)
        if in_use:
            for key in keys:
                found = self.held.pop(key, None)
                if found is not None:
                    self.lost.pop(key, None)
                    found.leave_to_jobs()
        else:
            self.release(keys)
        self.fit(self._slots.values())

    def forget_client(self) -> None:
        """Note that a new client holds no slot yet."""
        self._granted.clear()
        self.gathered.clear()

    def take(self, keys: Iterable[str]) -> Unavailable | None:
        """Take the leases of all these GPUs, or return the GPU that prevents it and keep none of them."""
        taken: list[str] = []
        for key in keys:
            if key in self.held and key not in self.lost:
                continue
            missing = self._take_one(key)
            if missing is not None:
                self.release(taken)
                return missing
            taken.append(key)
        return None

    def _take_one(self, key: str) -> Unavailable | None:
        if key in self.lost:
            return Unavailable(key, self.lost[key])
        try:
            found = lease.take(key, self.owner)
        except OSError as error:
            return Unavailable(key, explain_descriptor_limit(error) or str(error))
        if found is None:
            return Unavailable(key, None)
        self.held[key] = found
        return None

    def release(self, keys: Iterable[str]) -> None:
        """Release those of these leases that are held."""
        for key in keys:
            found = self.held.pop(key, None)
            if found is not None:
                self.lost.pop(key, None)
                found.release()

    def touch(self) -> None:
        """Update the times of the lease files, so that cleaners of old files keep them."""
        for found in self.held.values():
            found.touch()

    def fit(self, slots: Iterable[SlotQueue]) -> None:
        """Let attempts on these slots inherit the leases that are held now."""
        for slot in slots:
            held = [fd for key in slot.keys if key in self.held for fd in self.held[key].fds]
            targets = _inherited_numbers(held)
            slot.lease_actions = [
                (os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(held, targets, strict=False)
            ]

    def check_due_at(self) -> float:
        """Return when the leases are to be checked next."""
        return self._checked_at + _CHECK_PERIOD_S if self.held else _NEVER

    def may_start(self, slot: SlotQueue) -> bool:
        """Whether all leases of a slot are in force, by a check of the last tenth of a second."""
        if time.monotonic() - self._checked_at >= _FRESH_S:
            self.check()
        return not self.lost or self.lost.keys().isdisjoint(slot.keys)

    def check(self) -> None:
        """Take every lease again that is not in force, and report slots that were lost or came back."""
        self._checked_at = time.monotonic()
        before = set(self.lost)
        if self._renew():
            self.fit(self._slots.values())
        for number, slot in self._slots.items():
            if number < 0:  # made of several slots, each of which the client knows by itself
                continue
            gone = next((key for key in slot.keys if key in self.lost), None)
            if gone is not None and gone not in before:
                gathered = self.gathered.get(number, ())
                self._report(reports.unheld(number, gone, self.lost[gone], gathered=gathered))
            elif gone is None and number in self._granted and not before.isdisjoint(slot.keys):
                self._report(reports.held(number))

    def _renew(self) -> bool:
        """Take every lease again that is not in force. Returns whether any descriptor has changed."""
        has_changed = False
        for key, found in self.held.items():
            if found.is_in_force():
                self.lost.pop(key, None)
                continue
            try:
                is_renewed = found.renew(self.owner)
            except OSError as error:
                self.lost[key] = str(error)
                continue
            if is_renewed:
                has_changed = True
                self.lost.pop(key, None)
            else:
                self.lost[key] = f"{found.path} was removed or replaced while it was held"
        return has_changed


def _inherited_numbers(fds: list[int]) -> Iterator[int]:
    """Return numbers under which a job can inherit these descriptors: below its limit, and none of these."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = min(_FIRST_LEASE_FD, limit - 2 * len(fds))
    return (number for number in itertools.count(first) if number not in fds)


def explain_descriptor_limit(error: OSError) -> str | None:
    """Return what to do if an error says that this process has too many open files; None for others."""
    if error.errno != errno.EMFILE:
        return None
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"too many open files: the limit is {limit}; raise it with `ulimit -n 1024`, then restart Stoker"
