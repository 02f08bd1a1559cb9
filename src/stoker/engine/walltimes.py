"""Ends of nodes: a job starts on a node of limited time only if it is over before that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from stoker.core.allocation import LEAVE_S, Need, needed_s
from stoker.core.durations import format_duration
from stoker.core.placement import read_where
from stoker.core.planner import Candidate
from stoker.engine.eta import Eta
from stoker.engine.slots import SlotTable
from stoker.store.queue_jobs import Facts


class NodeEnd(NamedTuple):
    """When a node ends, by the boot clock; None without an end. It gets no job if it `is_ending`."""

    at: float | None
    may_cut: bool = False
    is_ending: bool = False


class Walltimes:
    """The ends of the nodes that have one, and which jobs are too long for them."""

    def __init__(
        self,
        slot_table: SlotTable,
        facts_of: Callable[[int], Facts],
        eta: Eta,
        clock: Callable[[], float],
    ) -> None:
        self._slot_table = slot_table
        self._facts_of = facts_of
        self._eta = eta
        self._clock = clock
        self.ends: dict[str, NodeEnd] = {}

    def need_of(self, facts: Facts) -> Need:
        """Return what a job needs of a node that ends."""
        request = facts.request
        where = read_where(request.where)
        return Need(
            gpus=request.slots,
            timeout_s=request.timeout_s,
            expected_s=self._eta.expected_s(facts),
            may_be_cut=request.options.preemptible,
            model=where.on,
            elsewhere=bool(where.nodes or where.labels),
        )

    def restrict(self, candidate: Candidate, job: int) -> Candidate:
        """Restrict a candidate to the slots that last long enough for its job."""
        if not candidate.slots:
            return candidate
        need = self.need_of(self._facts_of(job))
        short = {node for node in self.ends if self._why_short(need, node) is not None}
        if not short:
            return candidate
        lasting = frozenset(
            state.slot.index
            for state in self._slot_table.whole_slots()
            if state.slot.node not in short
        )
        allowed = lasting if candidate.allowed is None else lasting & candidate.allowed
        return msgspec.structs.replace(candidate, allowed=allowed)

    def why_short(self, job: int, node: str) -> str | None:
        """Return why a node does not last long enough for a job; None if it does."""
        if node not in self.ends:
            return None
        return self._why_short(self.need_of(self._facts_of(job)), node)

    def _why_short(self, need: Need, node: str) -> str | None:
        end = self.ends[node]
        if end.is_ending:
            return "is being given back"
        if end.at is None:
            return None
        left_s = end.at - LEAVE_S - self._clock()
        seconds = needed_s(need, may_cut=end.may_cut)
        if seconds is None:
            return (
                f"ends in {format_duration(left_s)}, and how long the job takes is not known"
                " (--timeout tells, --preemptible lets it be cut)"
            )
        if seconds > left_s:
            return f"ends in {format_duration(left_s)}, too soon for the job"
        return None
