"""Fair turns between the users of a box: yields GPUs at the end of jobs to users who have used less.

There is no common server. Each Stoker tells in its turn file what it uses and waits for, counts what it sees
others use, and decides about its own GPUs alone. See `core/turns.py` for the rule and `gpus/turn_files.py`
for what can be believed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from stoker.core.box_rules import Limits
from stoker.core.turns import Claim, UseTally, format_use, is_its_turn, next_in_line
from stoker.core.user_reservation import is_credible, spell_time
from stoker.engine.reserved_gpus import ReservedGpus, Reserver, find_reserver
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy, LeaseRequested, SlotState, Unleased
from stoker.engine.slots import SlotTable
from stoker.engine.user_reservations import UserReservations
from stoker.gpus.box_file import BoxFile, local_moment, rules_path
from stoker.gpus.turn_files import Changes, Notice, OtherStoker

_STAND_BACK_S = 2.0
_OWN_RELEASE_S = 0.2  # after so long, a holder with our own uid is no longer this Stoker
_RANK_S = 0.05
_LOOK_S = 1.0
_RULES_S = 1.0
_FIRST_DISTRUST_S = 10.0
_LONGEST_DISTRUST_S = 600.0
_NEVER = float("inf")


class Board(Protocol):
    """Where Stokers tell each other what they use and wait for."""

    uid: int
    name: str

    @property
    def is_watching(self) -> bool:
        """Whether changes are seen at once."""

    def fileno(self) -> int:
        """What becomes readable when something has changed."""

    def watch(self) -> bool:
        """See changes from now on."""

    def changes(self) -> Changes:
        """What has changed since the last call."""

    def read(self, now: float) -> list[OtherStoker]:
        """The other Stokers."""

    def inherit(self, now: float) -> float:
        """Take over the use of this user's Stokers that have ended."""

    def publish(self, notice: Notice) -> None:
        """Tell the others."""

    def holders(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Who holds GPUs, by lease key."""

    def close(self, *, keep: bool) -> None:
        """End."""


class _Yield(msgspec.Struct):
    """A GPU that is left to a claim: until another holds it, the claim is gone, or some time is over."""

    claim: Claim
    released_at: float | None = None


class _Distrust(msgspec.Struct):
    """A user who did not take a GPU that was left to it. It is not believed for a while."""

    until: float
    next_s: float


class GpuTurns:
    """Decides which slots of this machine this Stoker leaves to others, and when it may ask for one.

    The rules of the box count too: with a share of two, use counts half; some GPUs are for some users only.
    `push` ends a preemptible job for a user who waits longer than the rules want. `reserved` knows the GPUs
    that are not left to other users.
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
        self.reserved = ReservedGpus(
            reservations, lambda: self.box_file.longest_reservation_s(board.uid), wall_clock
        )
        self.push: Callable[[RunningAttempt, str], None] | None = None
        self._rules_at = 0.0
        self._waiting_since: dict[str, float] = {}  # by the name of a claim
        self._own = UseTally()  # of this Stoker alone
        self._seen = UseTally()  # of every user, as this Stoker saw it
        self._others: list[OtherStoker] = []
        self._claims: list[Claim] = []
        self._yields: dict[int, _Yield] = {}  # by slot
        self._distrusted: dict[int, _Distrust] = {}
        self._changed_since: set[int] = set()  # slots that were asked for before a lease changed
        self._delays: dict[int, float] = {}  # by slot: when it may be asked for
        self._unused: set[int] = set()  # held slots on which the last plan started nothing
        self._held: frozenset[str] = frozenset()
        self._lease_changes = 0
        self._holders: Mapping[str, int] = {}
        self._last_holders: dict[str, int] = {}  # also of GPUs that nobody holds now
        self._counted_at: float | None = None
        self._seen_at = 0.0
        self._look_at = 0.0
        self._told: Notice | None = None
        self._has_news = True
        self._has_rules = False  # whether they close a slot
        self._lacks_slots = False

    def fileno(self) -> int:
        """Return a descriptor that is readable when `on_change` is to be called."""
        return self._board.fileno()

    def on_change(self) -> None:
        """Handle what made the descriptor readable."""
        found = self._board.changes()
        if found.leases:
            self._hurry()
        self._has_news = self._has_news or found.turns or found.leases

    @property
    def has_claims(self) -> bool:
        """Whether somebody waits for a GPU of this machine that this Stoker may have to yield."""
        return bool(self._claims)

    def review(self, now: float) -> None:
        """Count use, look at the others, and close and open slots by that."""
        if now >= self._rules_at:
            self._follow_rules(now)
        if self._has_news or now >= self._look_at:
            self._look(now)
        if self._yields:
            self._end_yields(now)
        self.reserved.review(self._own_states)
        if self._claims:
            self._give_way(now)

    def conclude(self, now: float, *, wanted: int | None) -> None:
        """Note a plan, after which so many slots are lacking; None if that is not known."""
        told, reserved = self._told, self.reserved
        self._lacks_slots = wanted != 0
        if self._claims:
            free = self._slot_table.free()
            self._unused = {each for each in free if self._slot_table.states[each].is_idle}
        elif not (self._has_changed(wanted) or reserved.is_in_force):
            return  # a user alone on the machine: nothing has changed that others want to know
        self._note_leases(now)
        if wanted is None:
            wanted = 0 if told is None else told.wants
        wanted = max(wanted, reserved.lacking)
        if told is None and not (self._held or wanted):
            return  # nothing to tell, and there may be no folder yet
        refused = self._refused() if wanted else frozenset()
        telling = reserved.notice()._replace(
            holds=len(self._held), wants=min(wanted, len(refused)), gpus=refused
        )
        if telling != told:
            self._tell(telling, now)

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

    def _note_leases(self, now: float) -> None:
        """Count the use so far if this Stoker has taken or released GPUs."""
        changes = self._slot_table.index.lease_changes()
        if changes != self._lease_changes:
            self._count(now)
            self._lease_changes = changes
            self._held = frozenset(
                key for state in self._own_states() if state.is_held for key in state.slot.keys
            )

    def may_ask(self, state: SlotState, now: float) -> float:
        """Return when a slot may be asked for: users who have used less and wait come first.

        The Stokers of one user hand a reserved slot to each other: they ask first, and all others later.
        """
        if not self._is_own(state):
            return now
        rank = sum(
            claim.is_ahead_of(self._board.uid)
            for claim in self._claims
            if not claim.gpus.isdisjoint(state.slot.keys)
        )
        reserver = self._reserver(state, self._last_holders)
        if reserver is not None:
            rank = 0 if reserver.uid == self.uid else rank + 1
        if not rank:
            self._delays.pop(state.slot.index, None)
            return now
        at = self._delays.setdefault(state.slot.index, now + _RANK_S * rank)
        if now >= at:
            del self._delays[state.slot.index]
        return at

    def retry_at(self, slot: int, later: float) -> float:
        """Return when a slot is asked for again: at once if a lease has changed since it was asked for."""
        if slot not in self._changed_since:
            return later
        self._changed_since.remove(slot)
        return 0.0

    def due_at(self, now: float) -> float:
        """When the next review is due that no event announces."""
        due = [
            each.released_at + _STAND_BACK_S if each.released_at is not None else _NEVER
            for each in self._yields.values()
        ]
        if self._claims or self._yields or self._is_waiting:
            due.append(self._look_at)
        if self._lacks_slots and (self._has_rules or self.box_file.rules.is_timed):
            due.append(self._rules_at)
        due.append(now + self.reserved.due_in_s())
        if (
            self.reserved.is_in_force
        ):  # the rules may cut it; turns that plan nothing do not follow them
            due.append(self._rules_at if self._rules_at > now else now + _RULES_S)
        return min(due)

    def explain(self, state: SlotState, now: float) -> str | None:
        """Return who comes first at a slot that another holds, for a job that waits; None if nobody waits."""
        ahead = [
            claim
            for claim in self._claims
            if claim.is_ahead_of(self._board.uid) and not claim.gpus.isdisjoint(state.slot.keys)
        ]
        if ahead:
            first = max(ahead, key=lambda claim: claim.lead_s)
            return self._compare(first.uid, first.use_s, now, "their job is next")
        holder = next((self._holders[key] for key in state.slot.keys if key in self._holders), None)
        own = self._board.uid
        if holder is None or holder == own:
            return None
        use_s = self.use_of(holder, now)
        is_next = use_s / self.share_of(holder) > self.use_of(own, now) / self.share_of(own)
        outcome = "your job is next" if is_next else "it is their turn"
        return self._compare(holder, use_s, now, outcome)

    def reserved_by(self, state: SlotState) -> str | None:
        """Return who has reserved a slot that another Stoker holds, and until when, as its holder tells."""
        found = self._reserver(state, self._holders)
        if found is None:
            return None
        whom = "you" if found.uid == self.uid else self._name_of(found.uid)
        return f"is reserved by {whom} until {spell_time(found.end_at, self._wall_clock())}"

    def _reserver(self, state: SlotState, holders: Mapping[str, int]) -> Reserver | None:
        """Return the user who has reserved a slot that it holds, by what is known of holders."""
        now = self._wall_clock()
        return find_reserver(
            state.slot.keys,
            self._others,
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

    def use_of(self, uid: int, now: float) -> float:
        """Return the recent use of a user: what it tells of itself, but not less than this Stoker saw."""
        told = sum(other.notice.use_at(now) for other in self._others if other.uid == uid)
        if uid == self._board.uid:
            self._count(now)
            return told + self._own.of(uid, now)
        return max(told, self._seen.of(uid, now))

    def close(self, now: float) -> None:
        """End, and leave the use on record."""
        self._count(now)
        use_s = self._own.of(self._board.uid, now)
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
        if box_file.refresh() and box_file.error is not None:
            self._notify(f"{box_file.error}; the rules that were read before stay in force")
        rules, person = box_file.rules, box_file.person(self._board.uid)
        if not (rules.reservations or self._limits().gpus is not None or self._has_rules):
            return
        moment = local_moment(self._wall_clock())
        left = self._gpus_left()
        # Of more GPUs than the user may hold, those that are held stay open, then those that are free.
        for state in sorted(
            self._own_states(), key=lambda each: (not each.is_held, each.refusal is not None)
        ):
            if state.whole_slot is not None:
                continue
            reason = rules.why_closed(state.slot.gpus, person, moment)
            if reason is None and left is not None:
                left -= len(state.slot.keys)
                if left < 0:
                    most = self._limits().gpus
                    reason = f"is over your limit of {most} GPUs ({rules_path()})"
            if reason != state.closed.get(ClosedBy.RULE):
                state.close(ClosedBy.RULE, reason)
        self._has_rules = any(ClosedBy.RULE in state.closed for state in self._own_states())

    def _gpus_left(self) -> int | None:
        """How many GPUs this Stoker may hold by the rules, without those of the user's other Stokers."""
        most = self._limits().gpus
        if most is None:
            return None
        return max(0, most - sum(notice.holds for notice in self._kin().values()))

    def _is_own(self, state: SlotState) -> bool:
        return self._slot_table.is_own(state.slot.node)

    def _own_states(self) -> list[SlotState]:
        """The slots of this machine, whose name is empty outside a cluster."""
        by_node, head = self._slot_table.by_node, self._slot_table.head
        own = by_node.get("", [])
        return [*own, *by_node.get(head, [])] if head else own

    def _refused(self) -> frozenset[str]:
        """The GPUs that jobs of this Stoker could use, and that others held when it asked last."""
        return frozenset(
            key
            for state in self._own_states()
            if state.whole_slot is None
            and state.is_open
            and state.refusal is not None
            and not state.refusal.is_fault
            for key in state.slot.keys
        )

    def _count(self, now: float) -> None:
        """Add the GPU time since the last count to the own use."""
        before, self._counted_at = self._counted_at, now
        if before is None:
            self._own.add(self._board.uid, self._board.inherit(now), now)
        elif self._held and now > before:
            self._own.add(self._board.uid, len(self._held) * (now - before), now)

    def _tell(self, telling: Notice, now: float) -> None:
        self._told = telling
        self._count(now)
        use_s = self._own.of(self._board.uid, now)
        self._board.publish(telling._replace(use_s=use_s, at_s=now))
        if not self._board.is_watching and self._board.watch():
            self._has_news = True

    def _look(self, now: float) -> None:
        """Read what the others tell, and who holds the GPUs of this machine."""
        self._has_news, self._look_at = False, now + _LOOK_S
        self._count(now)
        self._others = self._board.read(now)
        if any(other.is_alive for other in self._others) or self._refused():
            self._see(now)
        self.reserved.see(self._kin())
        own, share = self._board.uid, self.share_of(self._board.uid)
        all_own_s, own_s = self.use_of(own, now) / share, self._own.of(own, now) / share
        waiting: dict[str, list[OtherStoker]] = {}
        for other in self._others:
            if other.is_alive and other.notice.wants and other.notice.gpus:
                name = other.name if other.uid == own else str(other.uid)
                waiting.setdefault(name, []).append(other)
        self._claims = [
            self._claim(name, files, own_s if files[0].uid == own else all_own_s, now)
            for name, files in waiting.items()
            if not self._is_distrusted(files[0].uid, now)
        ]
        since = self._waiting_since
        self._waiting_since = {claim.name: since.get(claim.name, now) for claim in self._claims}

    def _kin(self) -> dict[str, Notice]:
        """The notices of the user's other Stokers, by name."""
        own = self._board.uid
        return {
            each.name: each.notice for each in self._others if each.uid == own and each.is_alive
        }

    def _claim(self, name: str, files: list[OtherStoker], own_s: float, now: float) -> Claim:
        """Sum up the files of one user or, for the own user, one other Stoker."""
        uid = files[0].uid
        is_own = uid == self._board.uid
        use_s = files[0].notice.use_at(now) if is_own else self.use_of(uid, now)
        return Claim(
            name=name,
            uid=uid,
            lead_s=own_s - use_s / self.share_of(uid),
            use_s=use_s,
            gpus=frozenset().union(*(file.notice.gpus for file in files)),
            wants=max(file.notice.wants for file in files),
        )

    def _see(self, now: float) -> None:
        """Count the GPU time of others that held a GPU both now and at the last look."""
        keys = {key for state in self._own_states() for key in state.slot.keys}
        before, self._holders = self._holders, self._board.holders(keys)
        self._last_holders.update(self._holders)
        passed_s, self._seen_at = now - self._seen_at, now
        for key, uid in self._holders.items():
            if before.get(key) == uid:
                self._seen.add(uid, passed_s, now)

    def _is_distrusted(self, uid: int, now: float) -> bool:
        distrust = self._distrusted.get(uid)
        return distrust is not None and now < distrust.until

    def _give_way(self, now: float) -> None:
        """Close the slots that are left to others. A slot with one job is judged at the end of the job."""
        promised = Counter(each.claim.name for each in self._yields.values())
        for state in self._own_states():
            index = state.slot.index
            if not state.is_held or state.whole_slot is not None or index in self._yields:
                continue
            if state.releasing or (state.current is not None and not self._may_push(state.current)):
                continue
            is_reserved = not self.reserved.until.keys().isdisjoint(state.slot.keys)
            claims = self._claims
            if is_reserved:
                claims = [each for each in claims if each.name in self.reserved.may_use]
            claim = next_in_line(claims, state.slot.keys, promised)
            if claim is None:
                continue
            if state.current is not None:
                self._push_for(claim, state, promised, now)
                continue
            if index in self._unused:  # it was kept for a job that needs more slots
                is_due = is_reserved or claim.is_ahead_of(self._board.uid)
            else:
                is_due = is_its_turn(claim, state.job_s, promised[claim.name])
            if is_due:
                promised[claim.name] += 1
                self._yields[index] = _Yield(claim)
                text = self._compare(claim.uid, claim.use_s, now, "their job is next")
                state.close(ClosedBy.TURN, text)

    def _may_push(self, running: RunningAttempt) -> bool:
        """Whether a running job is one that the rules let stay only for a while when somebody waits."""
        return (
            self.push is not None
            and self.box_file.rules.preemptible_s is not None
            and running.entry.request.options.preemptible
            and running.end_request is None
            and running.pid is not None
        )

    def _push_for(self, claim: Claim, state: SlotState, promised: Counter[str], now: float) -> None:
        """End a preemptible job if a user with less use has waited long enough."""
        stay_s, running = self.box_file.rules.preemptible_s, state.current
        assert stay_s is not None
        assert running is not None
        assert self.push is not None
        waited_s = now - self._waiting_since.get(claim.name, now)
        if waited_s < stay_s or not is_its_turn(claim, now - running.begun, promised[claim.name]):
            return
        promised[claim.name] += 1
        self._yields[state.slot.index] = _Yield(claim)
        text = self._compare(claim.uid, claim.use_s, now, "their job is next")
        state.close(ClosedBy.TURN, text)
        self.push(running, f"made room after {stay_s:g} s: {text}")

    def _end_yields(self, now: float) -> None:
        """Open the slots that another holds now, or whose claim is gone or was not taken up."""
        claimed = {claim.name for claim in self._claims}
        for index, left in [*self._yields.items()]:
            state = self._slot_table.states[index]
            if state.is_held:  # jobs that share it are still there
                is_over = left.claim.name not in claimed
            else:
                if left.released_at is None:
                    left.released_at = now
                    self._delays.pop(index, None)
                is_over = self._is_taken(state, left, now) or (
                    left.claim.name not in claimed and now >= left.released_at + _RANK_S
                )
                if not is_over and now >= left.released_at + _STAND_BACK_S:
                    self._distrust(left.claim.uid, now)
                    is_over = True
            if is_over:
                del self._yields[index]
                state.close(ClosedBy.TURN, None)

    def _is_taken(self, state: SlotState, left: _Yield, now: float) -> bool:
        holders = self._board.holders(state.slot.keys)
        assert left.released_at is not None
        if now >= left.released_at + _OWN_RELEASE_S:
            return bool(holders)
        return any(uid != self._board.uid for uid in holders.values())

    def _distrust(self, uid: int, now: float) -> None:
        known = self._distrusted.get(uid)
        for_s = _FIRST_DISTRUST_S if known is None else known.next_s
        self._distrusted[uid] = _Distrust(now + for_s, min(2 * for_s, _LONGEST_DISTRUST_S))
        self._claims = [claim for claim in self._claims if claim.uid != uid]

    def _hurry(self) -> None:
        """Ask for refused slots at once: a lease has changed."""
        for state in self._own_states():
            if isinstance(state.lease, LeaseRequested):
                self._changed_since.add(state.slot.index)
            elif (
                isinstance(state.lease, Unleased)
                and state.refusal is not None
                and not state.refusal.is_fault
            ):
                state.lease = Unleased(state.refusal)

    def _compare(self, uid: int, use_s: float, now: float, outcome: str) -> str:
        own_s = self.use_of(self._board.uid, now)
        if uid == self._board.uid:
            return f"another Stoker of yours waits: {outcome.replace('their job', 'its job')}"
        name = self._name_of(uid)
        user = f"user {name}" if name.isdigit() else name
        return f"{user} has used {format_use(use_s)} since yesterday, you {format_use(own_s)}: {outcome}"
