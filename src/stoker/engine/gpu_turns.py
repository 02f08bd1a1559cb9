"""Fair turns between the users of a box: yields GPUs at the end of jobs to users who have used less.

There is no common server. Each Stoker tells in its turn file what it uses and waits for, counts what it sees
others use, and decides about its own GPUs alone. See `core/turns.py` for the rule and `gpus/turn_files.py`
for what can be believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from stoker.core.box_rules import Limits
from stoker.core.user_reservation import is_credible, spell_time
from stoker.engine.gpu_users import Board, GpuUsers
from stoker.engine.gpu_yields import GpuYields
from stoker.engine.reserved_gpus import ReservedGpus, Reserver, find_reserver
from stoker.engine.slot_state import ClosedBy, LeaseRequested, SlotState, Unleased
from stoker.engine.slots import SlotTable
from stoker.engine.user_reservations import UserReservations
from stoker.gpus.box_file import BoxFile, local_moment, rules_path
from stoker.gpus.turn_files import Notice

_RANK_S = 0.05
_LOOK_S = 1.0
_RULES_S = 1.0
_RULES_BESIDE_S = 9.0  # while no job waits
_TELL_S = 300.0  # what is known of the use of a Stoker that is killed is not older
_NEVER = float("inf")


class GpuTurns:
    """Tells other Stokers what this one uses and wants, and decides when it may ask for a slot.

    The rules of the box count too: with a share of two, use counts half; some GPUs are for some users only.
    `reserved` knows the GPUs that are not left to other users.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        board: Board,
        name_of: Callable[[int], str],
        notify: Callable[[str], None] = lambda _text: None,
        box_file: BoxFile | None = None,
        wall_clock: Callable[[], float] = time.time,
        reservations: UserReservations | None = None,
    ) -> None:
        self._slot_table = slot_table
        self._board = board
        self.uid = board.uid
        self._name_of = name_of
        self._notify = notify
        self._wall_clock = wall_clock
        self.box_file = box_file or BoxFile()
        self.users = GpuUsers(board, name_of, self.share_of)
        self.reserved = ReservedGpus(
            reservations, lambda: self.box_file.longest_reservation_s(board.uid), wall_clock
        )
        self.yields = GpuYields(
            slot_table, self.users, self.reserved, lambda: self.box_file.rules.preemptible_s
        )
        self.on_rules: Callable[[], None] = lambda: None  # called when the rules have changed
        self._rules_at = 0.0
        self._changed_since: set[int] = set()  # slots that were asked for before a lease changed
        self._delays: dict[int, float] = {}  # by slot: when it may be asked for
        self._over_limit: set[int] = set()  # slots closed because this user may hold no more GPUs
        self._held: frozenset[str] = frozenset()
        self._lease_changes = 0
        self._look_at = 0.0
        self._told: Notice | None = None  # without use and time
        self._tell_at = _NEVER  # when to tell the use again
        self._is_told = True
        self._has_news = True
        self._has_rules = False  # whether they close a slot
        self._lacks_slots = False

    def fileno(self) -> int:
        """Return a descriptor that is readable when `on_change` is to be called."""
        return self._board.fileno()

    def on_change(self) -> bool:
        """Handle what made the descriptor readable; returns whether a turn may change something."""
        found = self._board.changes()
        if found.leases:
            self._hurry()
        self._has_news = self._has_news or found.turns or found.leases
        return self._has_news

    @property
    def has_claims(self) -> bool:
        """Whether another Stoker waits for a GPU of this machine that this one may have to yield."""
        return bool(self.users.claims)

    def review(self, now: float) -> None:
        """Count use, look at the others, and close and open slots by that."""
        is_look = self._has_news or now >= self._look_at
        if is_look:
            self._look(now)
        if now >= self._rules_at or (is_look and self._limits().gpus is not None):
            self._follow_rules(now)
        self.reserved.review(self._slot_table.own_states)
        self.yields.review(now)

    def conclude(self, now: float, *, wanted: int | None, needs: int = 1) -> None:
        """Note a plan, after which so many slots are lacking; None if that is not known.

        The first job that waits needs so many slots.
        """
        self._lacks_slots = wanted != 0
        self.yields.note_plan()
        has_news = self.has_claims or self.reserved.is_in_force or now >= self._tell_at
        if not (has_news or self._has_changed(wanted)):
            return  # a user alone on the machine: nothing has changed that others want to know
        self._note_leases(now)
        if wanted is None:
            wanted = self._still_wanted()
        wanted = max(wanted, self.reserved.lacking)
        if self._told is None and not (self._held or wanted):
            return  # nothing to tell, and there may be no folder yet
        telling = self._describe(wanted, needs)
        if telling != self._told or not self._is_told or now >= self._tell_at:
            self._tell(telling, now)

    def _still_wanted(self) -> int:
        """How many GPUs may be wanted now: those told of, without those that came since."""
        if self._told is None:
            return 0
        return max(0, self._told.wants - max(0, len(self._held) - self._told.holds))

    def _has_changed(self, wanted: int | None) -> bool:
        """Whether others may want to know more than this Stoker has told."""
        slots, told = self._slot_table.index, self._told
        return (
            slots.lease_changes() != self._lease_changes
            or self._is_waiting
            or bool(wanted and slots.has_unleased())
            or (told is not None and bool(told.reserves or told.reserved))
        )

    @property
    def _is_waiting(self) -> bool:
        return self._told is not None and self._told.wants > 0

    def _describe(self, wanted: int, needs: int) -> Notice:
        """Return what to tell if so many slots are lacking, without the use and the time."""
        refused = self._refused() if wanted else []
        is_limited = bool(wanted and self._over_limit and not refused)
        if is_limited:
            refused = [self._slot_table.states[index] for index in sorted(self._over_limit)]
        keys = frozenset(key for state in refused for key in state.slot.keys if not self._has(key))
        width = max((len(state.slot.keys) for state in refused), default=1)
        needs *= width
        parts = sum(len(state.gathered) for state in self._slot_table.own_states())
        gathers = self.yields.count_kept() + parts if needs > 1 else 0
        self.users.need(needs, gathers)
        return self.reserved.notice()._replace(
            holds=len(self._held),
            wants=min(wanted * width, len(keys)),
            gpus=keys,
            needs=needs,
            gathers=gathers,
            is_limited=is_limited,
        )

    def _has(self, key: str) -> bool:
        return key in self._held

    def _note_leases(self, now: float) -> None:
        """Count the use so far if this Stoker has taken or released GPUs."""
        changes = self._slot_table.index.lease_changes()
        if changes != self._lease_changes:
            self._lease_changes = changes
            self._held = frozenset(
                key
                for state in self._slot_table.own_states()
                for key in (state.slot.keys if state.is_held else state.gathered)
            )
            self.users.hold(len(self._held), now)

    def may_ask(self, state: SlotState, now: float) -> float:
        """Return when a slot may be asked for: users who have used less and wait come first.

        The Stokers of one user hand a reserved slot to each other: they ask first, and all others later.
        """
        if not self._is_own(state):
            return now
        rank = len(self.users.ahead(state.slot.keys))
        reserver = self._reserver(state, self.users.last_holders)
        if reserver is not None:
            rank = 0 if reserver.uid == self.uid else rank + 1
        if not rank:
            self._delays.pop(state.slot.index, None)
            return now
        at = self._delays.get(state.slot.index)
        if at is None or now > at + _LOOK_S:  # it was not asked for then
            at = self._delays[state.slot.index] = now + _RANK_S * rank
        if now >= at:
            del self._delays[state.slot.index]
        return at

    def may_gather(self, state: SlotState) -> bool:
        """Whether some GPUs of a slot may be held while others of it are not ours yet."""
        return (
            len(state.slot.keys) > 1
            and self._is_own(state)
            and not any(
                self.yields.gets_gathered(claim)
                for claim in self.users.claims
                if not claim.gpus.isdisjoint(state.slot.keys)
            )
        )

    def retry_at(self, slot: int, later: float) -> float:
        """Return when a slot is asked for again: at once if a lease has changed since it was asked for."""
        if slot not in self._changed_since:
            return later
        self._changed_since.remove(slot)
        return 0.0

    def count_refused(self) -> int:
        """How many slots of this machine others held when they were asked for last."""
        return len(self._refused()) if self._slot_table.index.has_unleased() else 0

    def due_at(self, now: float) -> float:
        """When the next review is due that no event announces."""
        due = [self._tell_at, *self.yields.due_at()]
        if self.users.claims or self.yields or self._is_waiting:
            due.append(self._look_at)
        if self._lacks_slots and (self._has_rules or self.box_file.rules.is_timed):
            due.append(self._rules_at)
        elif self._held:
            due.append(self._rules_at + _RULES_BESIDE_S)  # the limit of running jobs may change
        due.append(now + self.reserved.due_in_s())
        if self.reserved.is_in_force:  # the rules may cut it, also in turns that plan nothing
            due.append(self._rules_at if self._rules_at > now else now + _RULES_S)
        return min(due)

    def explain(self, state: SlotState, now: float) -> str | None:
        """Return who comes first at a slot that another holds, for a job that waits; None if no one waits."""
        ahead = self.users.ahead(state.slot.keys)
        if ahead:
            first = max(ahead, key=lambda claim: claim.lead_s)
            return self.users.compare(first, now, "their job is next")
        holders = self.users.holders
        holder = next((holders[key] for key in state.slot.keys if key in holders), None)
        own = self._board.uid
        if holder is None or holder == own:
            return None
        use_s = self.users.use_of(holder, now)
        own_s = self.users.use_of(own, now)
        is_next = use_s / self.share_of(holder) > own_s / self.share_of(own)
        outcome = "your job is next" if is_next else "it is their turn"
        return self.users.compare_use(holder, use_s, now, outcome)

    def reserved_by(self, state: SlotState) -> str | None:
        """Return who has reserved a slot that another Stoker holds, and until when, as its holder tells."""
        found = self._reserver(state, self.users.holders)
        if found is None:
            return None
        whom = "you" if found.uid == self.uid else self._name_of(found.uid)
        return f"is reserved by {whom} until {spell_time(found.end_at, self._wall_clock())}"

    def _reserver(self, state: SlotState, holders: Mapping[str, int]) -> Reserver | None:
        """Return the user who has reserved a slot that it holds, by what is known of holders."""
        now = self._wall_clock()
        return find_reserver(
            state.slot.keys,
            self.users.others,
            holders,
            lambda found: is_credible(
                found.end_at, now, self.box_file.longest_reservation_s(found.uid)
            ),
        )

    def limits(self, now: float) -> Limits:
        """Return what the rules of the box allow this user, as they are now."""
        self._follow_rules(now)
        return self._limits()

    def share_of(self, uid: int) -> float:
        """Return the share of a user."""
        return self.box_file.rules.share_of(self.box_file.person(uid))

    def most_job_s(self) -> float | None:
        """Return how long a job may run by the rules of the box; None for any time."""
        return self._limits().job_s

    def close(self, now: float) -> None:
        """End, and leave the use on record."""
        use_s = self.users.own_use(now)
        reserved = self.reserved.notice().reserved  # the supervisor keeps it
        if self._told is not None:
            self._board.publish(Notice(use_s=use_s, at_s=now, reserved=reserved))
        self._board.close(keep=use_s >= 1.0 or bool(reserved))

    def _limits(self) -> Limits:
        return self.box_file.rules.limits_for(self.box_file.person(self._board.uid))

    def _follow_rules(self, now: float) -> None:
        """Read the rules again if they have changed, and close the slots that they forbid."""
        self._rules_at = now + _RULES_S
        box_file = self.box_file
        if box_file.refresh():
            if box_file.error is not None:
                self._notify(f"{box_file.error}; the rules that were read before stay in force")
            self.on_rules()
        rules, person = box_file.rules, box_file.person(self._board.uid)
        if not (rules.reservations or self._limits().gpus is not None or self._has_rules):
            return
        moment = local_moment(self._wall_clock())
        left = self._gpus_left()
        self._over_limit.clear()
        # Of more GPUs than the user may hold, those that are held stay open, then those that are free.
        for state in sorted(
            self._slot_table.own_states(),
            key=lambda each: (not each.is_held, each.refusal is not None),
        ):
            if state.whole_slot is not None:
                continue
            reason = rules.why_closed(state.slot.numbers, person, moment)
            if reason is None and left is not None:
                left -= len(state.slot.keys)
                if left < 0:
                    most = self._limits().gpus
                    gpus = f"{most} GPU{'s' * (most != 1)}"
                    reason = f"is over your limit of {gpus} ({rules_path()})"
                    self._over_limit.add(state.slot.index)
            if reason != state.closed.get(ClosedBy.RULE):
                state.close(ClosedBy.RULE, reason)
        self._has_rules = any(
            ClosedBy.RULE in state.closed for state in self._slot_table.own_states()
        )

    def _gpus_left(self) -> int | None:
        """How many GPUs this Stoker may hold by the rules.

        Those of the user's other Stokers count. Of Stokers that hold too many together, those with the larger
        names give some back.
        """
        most = self._limits().gpus
        if most is None:
            return None
        own = len(self._held)
        held = {name: notice.holds for name, notice in self.users.kin().items()}
        surplus = own + sum(held.values()) - most
        if surplus <= 0:
            return own - surplus
        of_later = sum(holds for name, holds in held.items() if name > self._board.name)
        return max(0, own - max(0, surplus - of_later))

    def _is_own(self, state: SlotState) -> bool:
        return self._slot_table.is_own(state.slot.node)

    def _refused(self) -> list[SlotState]:
        """The slots that jobs of this Stoker could use, and that others held when it asked last."""
        return [
            state
            for state in self._slot_table.own_states()
            if state.whole_slot is None
            and state.is_open
            and state.refusal is not None
            and not state.refusal.is_fault
        ]

    def _tell(self, telling: Notice, now: float) -> None:
        self._told = telling
        self._tell_at = now + _TELL_S if telling.holds else _NEVER
        use_s = self.users.own_use(now)
        self._is_told = self._board.publish(telling._replace(use_s=use_s, at_s=now))
        if not self._board.is_watching and self._board.watch():
            self._has_news = True

    def _look(self, now: float) -> None:
        """Read what the others tell, and who holds the GPUs of this machine."""
        self._has_news, self._look_at = False, now + _LOOK_S
        if self._told is not None:
            self._board.watch()  # the folder may be another one by now
            self._is_told = self._is_told and self._board.keep_alive(now)
        keys = {key for state in self._slot_table.own_states() for key in state.slot.keys}
        self.users.look(now, keys, is_refused=bool(self._refused()))
        self.reserved.see(self.users.kin())

    def _hurry(self) -> None:
        """Ask for refused slots at once: a lease has changed."""
        for state in self._slot_table.own_states():
            if isinstance(state.lease, LeaseRequested):
                self._changed_since.add(state.slot.index)
            elif (
                isinstance(state.lease, Unleased)
                and state.refusal is not None
                and not state.refusal.is_fault
            ):
                state.lease = Unleased(state.refusal)
