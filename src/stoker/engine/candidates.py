"""Waiting jobs as the planner's candidates."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from stoker.core.host_room import HostPlan
from stoker.core.planner import Candidate
from stoker.engine.queue import QueueEntry
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable

if TYPE_CHECKING:
    from stoker.engine.sharing import Sharing


class Candidates:
    """The waiting entries, in queue order, for which enough slots are open.

    A plan identifies stored jobs by their ids, and commands without an id by their position.
    """

    def __init__(
        self,
        entries: list[QueueEntry],
        slot_table: SlotTable,
        healing: RetryPolicy,
        sharing: Sharing | None = None,
    ) -> None:
        self.were_read = bool(entries)  # also if none of them can run now
        self._slot_table = slot_table
        self.sharers: set[int] = set()
        self._entries: dict[int, QueueEntry] = {}
        self.candidates: list[Candidate] = []
        for position, entry in enumerate(entries):
            request, candidate = entry.request, entry.candidate or _by_position(position, entry)
            if healing.directs and entry.known is not None:
                directed = healing.direct(candidate, entry.known.id)
                if directed is None:
                    continue
                candidate = directed
            if sharing is not None and sharing.concerns(candidate):
                candidate = sharing.direct(candidate)
            if candidate.where is not None and not slot_table.placement.is_reachable(candidate):
                continue
            if not slot_table.can_have(request.slots, candidate.allowed):
                continue
            if candidate.declares_host and not candidate.slots:
                node = slot_table.node_without_gpu(candidate)
                candidate = msgspec.structs.replace(candidate, node=node)
            self._entries[candidate.id] = entry
            self.candidates.append(candidate)
            if candidate.share is not None and sharing is not None and sharing.is_possible:
                self.sharers.add(candidate.id)

    @cached_property
    def without_host(self) -> set[int]:
        """The candidates that lack CPUs or RAM beside the running jobs and the candidates before them."""
        if not any(each.declares_host for each in self.candidates):
            return set()
        rooms = self._slot_table.host_rooms
        hosts, nodes = HostPlan(rooms), [*rooms.by_node]
        lacking = set()
        for each in self.candidates:
            if not each.declares_host:
                continue
            usable = nodes if each.slots else [each.node]
            node = next((node for node in usable if hosts.has_room(each, node)), None)
            if node is None:
                hosts.keep(each, each.id, usable)
                lacking.add(each.id)
            else:
                hosts.take(each, node)
        return lacking

    def __getitem__(self, name: int) -> QueueEntry:
        return self._entries[name]

    def candidate(self, name: int) -> Candidate:
        """The candidate of an id."""
        return next(each for each in self.candidates if each.id == name)

    def first(self) -> QueueEntry | None:
        """The first entry that needs slots."""
        return next((entry for entry in self._entries.values() if entry.request.slots), None)

    def lacks_host(self, entry: QueueEntry) -> bool:
        """Whether an entry lacks CPUs or RAM."""
        return any(self._entries[number] is entry for number in self.without_host)

    def precedes(self, last: RunningAttempt) -> bool:
        """Whether an entry that needs slots comes before an attempt that was claimed ahead."""
        first = self.first()
        if first is None:
            return False
        if first.candidate is not None and last.entry.candidate is not None:
            return first.candidate.order < last.entry.candidate.order
        return first.known is not None and first.known.id < last.attempt.job

    def lacks_slots(self, free: list[int]) -> bool:
        """Whether a candidate that is restricted to some slots finds too few of these."""
        return any(
            candidate.slots > len(candidate.allowed.intersection(free))
            for candidate in self.candidates
            if candidate.allowed is not None and candidate.id not in self.without_host
        )

    def usable(self) -> frozenset[int] | None:
        """The slots that candidates can use; None for all."""
        found: set[int] = set()
        for candidate in self.candidates:
            if candidate.slots:
                if candidate.allowed is None:
                    return None
                found |= candidate.allowed
        return frozenset(found)

    def first_slots(self) -> int:
        """How many slots the first job that needs any needs."""
        return next((each.slots for each in self.candidates if each.slots), 1)

    def slots_wanted(self, enough: int) -> int:
        """How many slots the candidates could use; counting stops above `enough`.

        GPUs that a job cannot use for lack of CPUs or RAM are not taken from others.
        """
        wanted = 0
        for candidate in self.candidates:
            wanted += 0 if candidate.id in self.without_host else candidate.slots
            if wanted > enough:
                break
        return wanted


def _by_position(position: int, entry: QueueEntry) -> Candidate:
    """The candidate of a command that has no id."""
    request = entry.request
    return Candidate(
        id=position,
        slots=request.slots,
        timeout_s=request.timeout_s,
        cpus=request.cpus,
        mem_bytes=request.mem_bytes,
    )
