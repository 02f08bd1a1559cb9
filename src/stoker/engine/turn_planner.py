"""Plans a turn: which waiting jobs start now, and on which slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from stoker.core.planner import DEPTH, Plan, Start, plan
from stoker.core.slot_choice import place_by_links
from stoker.engine.attempt_starts import AttemptStarts
from stoker.engine.candidates import Candidates
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.policy import LazyBusy, Policy
from stoker.engine.queue import Queue, QueueEntry
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Launch, Restore

if TYPE_CHECKING:
    from stoker.engine.gpu_turns import GpuTurns
    from stoker.engine.shared_slots import SharedSlots
    from stoker.engine.suspensions import Suspensions

_NEVER = float("inf")
_RAM_PERIOD_S = 2.0


class Preview(msgspec.Struct, frozen=True):
    """What would start now, and for which jobs free slots, CPUs and RAM are kept."""

    starting: set[int]
    reserved: dict[int, int]
    host_kept: dict[str, int]  # the job for which CPUs and RAM are kept, by node


class _Vacancies(msgspec.Struct):
    """The slots and CPU places where jobs could start now."""

    free: list[int]
    room: dict[int, int]  # how many more jobs may be claimed ahead, by slot
    cpu_places: int
    loose: int  # how many of the free slots were not kept for a job in the turn before
    refused: int  # how many slots others hold that may leave them to us
    wanted: int  # how many waiting jobs to look at

    @property
    def is_empty(self) -> bool:
        return not (self.free or self.room or self.cpu_places)


class TurnPlanner(msgspec.Struct, kw_only=True, eq=False):
    """Selects candidates, lets the policy plan, and claims what starts.

    `make_room` is called with the first job that has to wait for slots; it may preempt others.
    """

    slot_table: SlotTable
    queue: Queue
    retry_policy: RetryPolicy
    gpu_leases: GpuLeases
    claims_ahead: ClaimsAhead
    starts: AttemptStarts
    shared_slots: SharedSlots | None
    make_room: Callable[[QueueEntry], None] | None
    suspensions: Suspensions | None = None
    turns: GpuTurns | None = None
    policy: Policy = plan
    _turn_again: bool = False  # more could start, and no event will say so
    _lacks_slots: bool = False
    _slots_short: int = 0
    _slots_needed: int = 1  # by the first job that waits
    _look_at_ram_at: float = _NEVER
    _kept: Mapping[int, int] = {}

    @property
    def gpus(self) -> GpuFeatures:
        """Optional GPU features of the engine."""
        return self.retry_policy.gpus

    def plan_turn(self, now: float) -> list[Launch | Restore]:
        """Start and resume everything that can be now. Returns it; all of it is recorded."""
        launches = self._plan_turn(now)
        self._tell_others(now, has_launches=bool(launches))
        return launches

    def _plan_turn(self, now: float) -> list[Launch | Restore]:
        self._turn_again = self._lacks_slots = False
        self._slots_short = 0
        self._look_at_ram_at = _NEVER
        vacancies = self._find_vacancies(now)
        candidates = self._select_candidates(vacancies)
        self._await_ram(candidates, now)
        wants_slots = self._request_slots(candidates, vacancies, now)
        self.starts.reject_impossible()
        self._keep_queue_order(candidates, vacancies, wants_slots=wants_slots)
        if not candidates.were_read:
            self.claims_ahead.needs_slot_first = False
            return []
        if vacancies.is_empty:
            self._make_room(candidates, candidates.first())
            return self._join(candidates, set(), now)
        starts = self._choose_starts(candidates, vacancies, now)
        launches = self._claim(candidates, starts, now)
        if len(launches) < len(starts):
            self._turn_again = True  # no event announces that its slot is free again
            return launches
        return launches + self._join(candidates, {start.job for start in starts}, now)

    def skip_turn(self, now: float, *, release_slots: bool) -> list[Launch | Restore]:
        """Start nothing in this turn."""
        self._turn_again = self._lacks_slots = False
        self._slots_short = 0
        if release_slots:
            self.gpu_leases.release_idle()
        self._tell_others(now)
        return []

    def _tell_others(self, now: float, *, has_launches: bool = False) -> None:
        """Tell other users of this machine how many slots are lacking.

        After a turn with launches that is not known: only so many jobs were read as could start.
        """
        if self.turns is not None:
            wanted = self._slots_short or (None if has_launches else 0)
            self.turns.conclude(now, wanted=wanted, needs=self._slots_needed)

    def preview(self, now: float) -> Preview:
        """What would start now of the head of the queue; changes nothing."""
        free = self.slot_table.free()
        cpu_places = self.slot_table.free_cpu_places()
        wanted = max(len(free), 1) + self.retry_policy.held_back
        candidates = self._candidates(self.queue.peek(wanted, cpu_places))
        made = self._plan(candidates, _Vacancies(free, {}, cpu_places, len(free), 0, wanted), now)
        return Preview(
            starting={start.job for start in made.starts},
            reserved={**made.reserved},
            host_kept={**made.host_kept},
        )

    def due_at(self, now: float, *, may_start: bool) -> float:
        """The time of the next turn that no event announces."""
        if may_start and (self._turn_again or self.queue.unfinished):
            return now
        due = min([self.retry_policy.rests.due_at(), *self.claims_ahead.due_at()])
        if self.retry_policy.checkpoints:
            due = min(due, self.retry_policy.checkpoints.due_at())
        if self._lacks_slots or self.gpu_leases.lacks_reserved:
            due = min(due, self.gpu_leases.next_retry_at())
        sharing = self.gpus.sharing
        if sharing is not None and (review_at := sharing.due_at()) is not None:
            due = min(due, review_at)
        if (space_due := self.retry_policy.due_s(now)) is not None:
            due = min(due, space_due)
        due = min(due, self._look_at_ram_at)
        if self.suspensions is not None:
            due = min(due, self.suspensions.due_at())
        if self.turns is not None:
            due = min(due, self.turns.due_at(now))
        delay_s = self.queue.due_s()
        return due if delay_s is None else min(due, now + delay_s)

    def _find_vacancies(self, now: float) -> _Vacancies:
        if self.turns is not None:
            self.turns.review(now)
            self.claims_ahead.gives_way = self.turns.has_claims
        self.claims_ahead.offer_slots(in_queue_order=self.policy is plan)
        self.gpu_leases.release_closed()
        self.queue.wake()
        self.retry_policy.rests.review(now)
        if self.slot_table.shared and self.gpus.sharing is not None:
            self.gpus.sharing.gpus.review(now)
        free = self.claims_ahead.leave_slots(self.slot_table.free())
        room = self.claims_ahead.room()
        # Many free slots of a cluster can be kept for the same jobs as in the turn before.
        loose = len(free) - sum(slot in self._kept for slot in free) if self._kept else len(free)
        refused = 0 if self.turns is None else self.turns.count_refused()
        wanted = max(loose + sum(room.values()), 1) + refused + self.retry_policy.held_back
        return _Vacancies(free, room, self.slot_table.free_cpu_places(), loose, refused, wanted)

    def _select_candidates(self, vacancies: _Vacancies) -> Candidates:
        deep = DEPTH if self.slot_table.grid else 0
        return self._candidates(self.queue.peek(vacancies.wanted, vacancies.cpu_places, deep))

    def _candidates(self, entries: list[QueueEntry]) -> Candidates:
        if self.suspensions is not None and (suspended := self.suspensions.entries()):
            entries = sorted(entries + suspended, key=_order_of)
        return Candidates(entries, self.slot_table, self.retry_policy, self.gpus.sharing)

    def _await_ram(self, candidates: Candidates, now: float) -> None:
        """Look again soon for a job that waits for RAM that others use: no event says when it is free."""
        lacking = candidates.without_host
        waiting = [each for each in candidates.candidates if each.id in lacking]
        if self.slot_table.hosts.awaits_free_ram(waiting, self.slot_table.head):
            self._look_at_ram_at = now + _RAM_PERIOD_S

    def _request_slots(self, candidates: Candidates, vacancies: _Vacancies, now: float) -> bool:
        """Ask for leases if slots lack; returns whether any slots are wanted."""
        slots_wanted = candidates.slots_wanted(enough=vacancies.loose + vacancies.refused)
        self._lacks_slots = slots_wanted > vacancies.loose or candidates.lacks_slots(vacancies.free)
        if self._lacks_slots:
            self._slots_short = max(1, slots_wanted - vacancies.loose)
            self._slots_needed = candidates.first_slots()
            self.gpu_leases.request_all(now, candidates.usable(), self._slots_needed)
        elif candidates.were_read and not candidates.candidates:
            self._slots_short = (
                1  # no slot is open; one that is over a limit can still be asked for
            )
        self.gpu_leases.follow_reservations(now)
        return slots_wanted > 0

    def _keep_queue_order(
        self, candidates: Candidates, vacancies: _Vacancies, *, wants_slots: bool
    ) -> None:
        """Revoke attempts claimed ahead if a job comes before them; release slots if nothing waits."""
        if self.claims_ahead.has_to_give_way(candidates):
            self.claims_ahead.revoke()
            vacancies.room = {}
        elif not (wants_slots or self.slot_table.claimed_ahead):
            self.gpu_leases.release_idle()
        elif self.turns is not None and self.turns.has_claims:
            usable = candidates.usable()
            if usable is not None:
                self.gpu_leases.release_useless(usable)

    def _choose_starts(
        self, candidates: Candidates, vacancies: _Vacancies, now: float
    ) -> Sequence[Start]:
        made = self._plan(candidates, vacancies, now)
        if self.slot_table.grid is not None:
            self._kept = made.reserved
            # More jobs may fit on slots that were counted as kept; they have not been read yet.
            all_used = len(made.starts) >= vacancies.wanted
            self._turn_again = vacancies.loose < len(vacancies.free) and all_used
        if made.reserved_for is not None:
            self._make_room(candidates, candidates[made.reserved_for])
        links = self.slot_table.links.current()
        if links is None:
            return made.starts
        return place_by_links(made, candidates.candidates, vacancies.free, links)

    def _make_room(self, candidates: Candidates, entry: QueueEntry | None) -> None:
        """Let a job preempt others for slots, unless it could not start on them for lack of CPUs or RAM."""
        if self.make_room is not None and entry is not None and not candidates.lacks_host(entry):
            self.make_room(entry)

    def _plan(self, candidates: Candidates, vacancies: _Vacancies, now: float) -> Plan:
        nodes = self.slot_table.grid
        # A user's policy need not know of CPUs and RAM where no job declares any.
        declared = any(candidate.declares_host for candidate in candidates.candidates)
        more = {"hosts": self.slot_table.host_rooms} if declared else {}
        return self.policy(
            candidates.candidates,
            free=vacancies.free,
            busy=self.slot_table.busy() if nodes is None else LazyBusy(self.slot_table.busy),
            room=vacancies.room,
            cpu_places=vacancies.cpu_places,
            now=now,
            nodes=nodes,
            **more,
        )

    def _claim(
        self, candidates: Candidates, starts: Sequence[Start], now: float
    ) -> list[Launch | Restore]:
        """Claim jobs in order, up to the first that cannot be claimed now."""
        launches: list[Launch | Restore] = []
        launch: Launch | Restore | None
        for start in starts:
            if start.job in candidates.sharers and self.shared_slots is not None:
                launch = self.shared_slots.begin(candidates, start, now)
            else:
                launch = self.starts.claim(candidates[start.job], start, now)
            if launch is None:
                break
            launches.append(launch)
        return launches

    def _join(self, candidates: Candidates, begun: set[int], now: float) -> list[Launch | Restore]:
        """Start jobs that share on GPUs that other jobs use, where there is room."""
        if self.shared_slots is None or not (candidates.sharers or self.slot_table.shared):
            return []
        launches, complete = self.shared_slots.join(candidates, begun, now)
        self._turn_again = self._turn_again or not complete
        return launches


def _order_of(entry: QueueEntry) -> tuple[int, int, int]:
    assert entry.candidate is not None  # the jobs of a database all have one
    return entry.candidate.order
