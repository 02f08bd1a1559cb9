"""Slots that this Stoker leaves to other users at the end of jobs, until they are taken.

See `core/turns.py` for the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from stoker.core.durations import spell_duration
from stoker.core.turns import Claim, is_its_turn, next_in_line
from stoker.engine.gpu_users import GpuUsers
from stoker.engine.reserved_gpus import ReservedGpus
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy, SlotState
from stoker.engine.slots import SlotTable

_STAND_BACK_S = 1.5  # with the start of the next job, a GPU is idle for less than two seconds
_OWN_RELEASE_S = 0.2  # after so long, a holder with our own uid is no longer this Stoker
_AFTER_CLAIM_S = 0.05
_LEAST_HOLD_S = 0.2  # a user that gives a GPU back sooner, and still waits, has not used it
_LONGEST_TELL_S = 1.0  # a user who took a GPU has told by then that it wants one less
_ANY_JOB_S = float("inf")


class _Yield(msgspec.Struct):
    """A GPU that is left to a claim: until another holds it, the claim is gone, or some time is over."""

    claim: Claim
    released_at: float | None = None
    taken_at: float | None = None

    def is_untold(self, claims: Mapping[str, Claim], now: float) -> bool:
        """Whether it was taken, and its claim is still that from before."""
        claim = claims.get(self.claim.name)
        if claim is None or self.released_at is None or self.taken_at is None:
            return False
        return claim.told_at_s < self.released_at and now < self.taken_at + _LONGEST_TELL_S


class GpuYields:
    """Closes held slots for claims whose turn it is, and opens them again.

    `push` ends a preemptible job for a user who has waited for `stay_s()`. GPUs that are `reserved` are left
    only to the user's other Stokers.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        users: GpuUsers,
        reserved: ReservedGpus,
        stay_s: Callable[[], float | None],
    ) -> None:
        self.push: Callable[[RunningAttempt, str], None] | None = None
        self._slot_table = slot_table
        self._users = users
        self._reserved = reserved
        self._stay_s = stay_s
        self._yields: dict[int, _Yield] = {}  # by slot
        self._untold: dict[int, _Yield] = {}  # those that are over, but may still be claimed
        self._taken: dict[
            int, tuple[int, float]
        ] = {}  # by slot: who took it after a yield, and when
        self._planned: set[int] | None = None  # held slots that the last plan could use; None: all
        self._unused: set[int] = set()  # those on which it started nothing
        self._kept: set[int] = (
            set()
        )  # those of them that no claim got since: for a job that lacks others

    def __bool__(self) -> bool:
        return bool(self._yields)

    def review(self, now: float) -> None:
        """Close and open slots."""
        if self._yields:
            self._end_yields(now)
        if self._taken:
            self._judge_takers(now)
        if self._users.claims:
            self._give_way(now)

    def note_plan(self) -> None:
        """Note on which held slots a plan started nothing."""
        self._planned = None
        if self._users.claims:
            held = [state for state in self._slot_table.own_states() if state.is_held]
            unused = {state.slot.index for state in held if state.is_free}
            self._planned = {state.slot.index for state in held}
            self._unused, self._kept = unused, self._unused & unused

    def count_kept(self) -> int:
        """How many GPUs are held for a job that lacks others."""
        return sum(len(self._slot_table.states[index].slot.keys) for index in self._kept)

    def due_at(self) -> list[float]:
        """When others have had enough time to take what is left to them."""
        return [
            each.released_at + _STAND_BACK_S
            for each in self._yields.values()
            if each.released_at is not None
        ]

    def gets_gathered(self, claim: Claim) -> bool:
        """Whether a claim gets a GPU that is held for a job that lacks others.

        A Stoker that uses GPUs already begins to gather more only if no claim is due one.
        """
        if claim.is_ahead_of(self._users.own):
            return True
        return not self._users.own.gathers and self._is_its_turn(claim, _ANY_JOB_S)

    def _give_way(self, now: float) -> None:
        """Close the slots that are left to others. A slot with one job is judged at the end of the job."""
        promised = self._count_promised(now)
        for state in self._slot_table.own_states():
            index = state.slot.index
            if state.whole_slot is not None or index in self._yields:
                continue
            if not (state.is_held or state.tenants):
                continue
            if self._planned is not None and index not in self._planned and state.is_idle:
                continue  # it has just come: the next plan may use it
            if state.releasing or (state.current is not None and not self._may_push(state.current)):
                continue
            claim = next_in_line(self._claims_to(state), state.slot.keys, promised)
            if claim is not None and self._is_due(claim, state, promised[claim.name], now):
                promised[claim.name] += len(state.slot.keys)
                self._yield_to(claim, state, now)

    def _count_promised(self, now: float) -> Counter[str]:
        """Return how many GPUs each claim gets, or has got since it was told."""
        claims = {claim.name: claim for claim in self._users.claims}
        self._untold = {
            index: left for index, left in self._untold.items() if left.is_untold(claims, now)
        }
        promised: Counter[str] = Counter()
        for index, left in {**self._untold, **self._yields}.items():
            promised[left.claim.name] += len(self._slot_table.states[index].slot.keys)
        return promised

    def _claims_to(self, state: SlotState) -> list[Claim]:
        """Return the claims that count for a slot: to a reserved one, those of the own user alone."""
        if not self._reserved.has(state.slot.keys):
            return self._users.claims
        return [each for each in self._users.claims if each.name in self._reserved.may_use]

    def _is_due(self, claim: Claim, state: SlotState, promised: int, now: float) -> bool:
        """Whether a claim gets a slot, after so many GPUs that are promised to it already."""
        if state.current is not None:
            job_s = now - state.current.begun
            return self._may_push_for(claim, now) and self._is_its_turn(claim, job_s, promised)
        if state.slot.index in self._unused:  # it was kept for a job that needs more slots
            return self._reserved.has(state.slot.keys) or self.gets_gathered(claim)
        return self._is_its_turn(claim, self._job_s(state), promised)

    def _is_its_turn(self, claim: Claim, job_s: float, promised: int = 0) -> bool:
        """Whether a claim gets a GPU on which a job of so long has ended."""
        used = sum(
            len(state.slot.keys)
            for state in self._slot_table.own_states()
            if (state.is_held or state.tenants)
            and state.whole_slot is None
            and state.slot.index not in self._yields
            and state.slot.index not in self._unused
        )
        return is_its_turn(
            claim, job_s, used, self._users.share_of(self._users.board.uid), promised
        )

    def _yield_to(self, claim: Claim, state: SlotState, now: float) -> None:
        self._yields[state.slot.index] = _Yield(claim)
        text = self._users.compare(claim, now, "their job is next")
        state.close(ClosedBy.TURN, text)
        if state.current is not None and self.push is not None:
            stay_s = self._stay_s()
            self.push(state.current, f"made room after {spell_duration(stay_s or 0.0)}: {text}")

    def _job_s(self, state: SlotState) -> float:
        """How long the last job on a GPU took; of jobs that shared it, the longest."""
        shared = [
            each.job_s for each in self._slot_table.shared if each.whole_slot == state.slot.index
        ]
        return max([state.job_s, *shared])

    def _judge_takers(self, now: float) -> None:
        """Believe no user for a while that took a GPU only to give it back, and waits for it again."""
        for index, (uid, taken_at) in [*self._taken.items()]:
            state = self._slot_table.states[index]
            if not state.is_held:
                continue
            del self._taken[index]
            if now >= taken_at + _LEAST_HOLD_S:
                self._users.trust(uid)
            elif any(claim.uid == uid for claim in self._users.claims):
                self._users.distrust(uid, now)

    def _may_push(self, running: RunningAttempt) -> bool:
        """Whether a running job is one that the rules let stay only for a while when another user waits."""
        return (
            self.push is not None
            and self._stay_s() is not None
            and running.entry.request.options.preemptible
            and running.end_request is None
            and running.pid is not None
        )

    def _may_push_for(self, claim: Claim, now: float) -> bool:
        """Whether a user has waited so long that preemptible jobs end for it."""
        stay_s = self._stay_s()
        assert stay_s is not None
        is_due = self._users.waited_s(claim, now) >= stay_s
        return is_due and not self._users.has_cheated(claim.uid)

    def _end_yields(self, now: float) -> None:
        """Open the slots that another holds now, or whose claim is gone or was not taken up."""
        claimed = {claim.name for claim in self._users.claims}
        for index, left in [*self._yields.items()]:
            state = self._slot_table.states[index]
            if state.is_held or state.tenants:  # jobs that share it are still there
                is_over = left.claim.name not in claimed
            else:
                if left.released_at is None:
                    left.released_at = now
                is_over = self._is_taken(state, left, now) or (
                    left.claim.name not in claimed and now >= left.released_at + _AFTER_CLAIM_S
                )
                if not is_over and now >= left.released_at + _STAND_BACK_S:
                    self._users.distrust(left.claim.uid, now)
                    is_over = True
            if is_over:
                del self._yields[index]
                state.close(ClosedBy.TURN, None)

    def _is_taken(self, state: SlotState, left: _Yield, now: float) -> bool:
        holders = self._users.board.holders(state.slot.keys)
        assert left.released_at is not None
        is_own_gone = now >= left.released_at + _OWN_RELEASE_S
        for uid in holders.values():
            if is_own_gone or uid != self._users.board.uid:
                self._taken[state.slot.index] = (uid, now)
                left.taken_at = now
                self._untold[state.slot.index] = left
                return True
        return False
