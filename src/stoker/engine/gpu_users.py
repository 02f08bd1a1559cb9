"""The users of this machine's GPUs, as one Stoker sees them: their use, and the GPUs that they wait for.

A user's use is what its turn files tell, but not less than what this Stoker has seen. A user that claims GPUs
and does not take them, or gives them back at once, is not believed for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from stoker.core.turns import Claim, UseTally, format_use
from stoker.gpus.turn_files import Changes, Notice, OtherStoker

_LOOK_S = 1.0
_FIRST_DISTRUST_S = 10.0
_LONGEST_DISTRUST_S = 600.0


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

    def publish(self, notice: Notice) -> bool:
        """Tell the others; False if that is impossible."""

    def keep_alive(self, now: float) -> bool:
        """Show that this Stoker lives; False if what it told is gone."""

    def holders(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Who holds GPUs, by lease key."""

    def close(self, *, keep: bool) -> None:
        """End."""


class _Distrust(msgspec.Struct):
    """A user who did not use a GPU that was left to it. It is not believed for a while."""

    until: float
    next_s: float


class GpuUsers:
    """Counts the use of every user, and lists who waits. `share_of` weighs the use of a user."""

    def __init__(
        self, board: Board, name_of: Callable[[int], str], share_of: Callable[[int], float]
    ) -> None:
        self.board = board
        self.own = Claim(name=board.name, uid=board.uid, lead_s=0.0, gpus=frozenset())
        self.claims: list[Claim] = []
        self.others: list[OtherStoker] = []
        self.holders: Mapping[str, int] = {}
        self.last_holders: dict[str, int] = {}  # also of GPUs that are free now
        self._name_of = name_of
        self.share_of = share_of
        self._own = UseTally()  # of this Stoker alone
        self._seen = UseTally()  # of every user, as this Stoker saw it
        self._keys: frozenset[str] = frozenset()  # of the GPUs that this Stoker can use
        self._held = 0
        self._counted_at: float | None = None
        self._seen_at = 0.0
        self._distrusted: dict[int, _Distrust] = {}
        self._waiting_since: dict[str, float] = {}  # by the name of a claim

    def look(self, now: float, keys: Iterable[str], *, is_refused: bool) -> None:
        """Read what the others tell, and who holds the GPUs of this machine."""
        self._count(now)
        self._keys = frozenset(keys)
        self.others = self.board.read(now)
        if is_refused or any(other.is_alive for other in self.others):
            self._see(now)
        else:
            self.holders = {}
        own, share = self.board.uid, self.share_of(self.board.uid)
        all_own_s, own_s = self.use_of(own, now) / share, self._own.of(own, now) / share
        waiting: dict[str, list[OtherStoker]] = {}
        for other in self.others:
            if self._is_claim(other, now):
                name = other.name if other.uid == own else str(other.uid)
                waiting.setdefault(name, []).append(other)
        self.claims = [
            self._claim(name, files, own_s if files[0].uid == own else all_own_s, now)
            for name, files in waiting.items()
        ]
        since = self._waiting_since
        self._waiting_since = {claim.name: since.get(claim.name, now) for claim in self.claims}

    def hold(self, gpus: int, now: float) -> None:
        """Note how many GPUs this Stoker holds from now on."""
        self._count(now)
        self._held = gpus

    def need(self, needs: int, gathers: int) -> None:
        """Note how many GPUs the first waiting job needs, and how many are held for it."""
        self.own = msgspec.structs.replace(self.own, needs=needs, gathers=gathers)

    def own_use(self, now: float) -> float:
        """Return the recent use of this Stoker alone."""
        self._count(now)
        return self._own.of(self.board.uid, now)

    def use_of(self, uid: int, now: float) -> float:
        """Return the recent use of a user: what it tells of itself, but not less than this Stoker saw."""
        told = sum(other.notice.use_at(now) for other in self.others if other.uid == uid)
        if uid == self.board.uid:
            return told + self.own_use(now)
        return max(told, self._seen.of(uid, now))

    def kin(self) -> dict[str, Notice]:
        """Return the notices of the user's other Stokers, by name."""
        return {
            each.name: each.notice
            for each in self.others
            if each.uid == self.board.uid and each.is_alive
        }

    def ahead(self, keys: Iterable[str]) -> list[Claim]:
        """Return the claims to any of these GPUs that come before this Stoker, which waits too."""
        wanted = frozenset(keys)
        return [
            claim
            for claim in self.claims
            if not claim.gpus.isdisjoint(wanted) and claim.is_ahead_of(self.own)
        ]

    def waited_s(self, claim: Claim, now: float) -> float:
        """For how long a claim has been up."""
        return now - self._waiting_since.get(claim.name, now)

    def distrust(self, uid: int, now: float) -> None:
        """Believe no claim of a user for a while, each time for longer."""
        known = self._distrusted.get(uid)
        for_s = _FIRST_DISTRUST_S if known is None else known.next_s
        self._distrusted[uid] = _Distrust(now + for_s, min(2 * for_s, _LONGEST_DISTRUST_S))
        self.claims = [claim for claim in self.claims if claim.uid != uid]

    def trust(self, uid: int) -> None:
        """Forget that a user was distrusted: it has used a GPU that was left to it."""
        self._distrusted.pop(uid, None)

    def has_cheated(self, uid: int) -> bool:
        """Whether a user was distrusted and has not made up for it."""
        return uid in self._distrusted

    def compare(self, claim: Claim, now: float, outcome: str) -> str:
        """Say how a user's use and the own one compare, and what follows."""
        return self.compare_use(claim.uid, claim.use_s, now, outcome)

    def compare_use(self, uid: int, use_s: float, now: float, outcome: str) -> str:
        """Say how a user's use and the own one compare, and what follows."""
        if uid == self.board.uid:
            return f"another Stoker of yours waits: {outcome.replace('their job', 'its job')}"
        name = self._name_of(uid)
        user = f"user {name}" if name.isdigit() else name
        own_s = self.use_of(self.board.uid, now)
        return f"{user} has used {format_use(use_s)} since yesterday, you {format_use(own_s)}: {outcome}"

    def _is_claim(self, other: OtherStoker, now: float) -> bool:
        distrust = self._distrusted.get(other.uid)
        return (
            other.is_alive
            and bool(other.notice.wants and other.notice.gpus)
            and (other.uid == self.board.uid or not other.notice.is_limited)
            and (distrust is None or now >= distrust.until)
        )

    def _claim(self, name: str, files: list[OtherStoker], own_s: float, now: float) -> Claim:
        """Sum up the files of one user or, for the own user, one other Stoker."""
        uid = files[0].uid
        is_own = uid == self.board.uid
        use_s = files[0].notice.use_at(now) if is_own else self.use_of(uid, now)
        holds = files[0].notice.holds if is_own else [*self.holders.values()].count(uid)
        gathers = min(holds, sum(file.notice.gathers for file in files))
        return Claim(
            name=name,
            uid=uid,
            lead_s=own_s - use_s / self.share_of(uid),
            use_s=use_s,
            gpus=frozenset().union(*(file.notice.gpus for file in files)),
            wants=max(file.notice.wants for file in files),
            holds=holds - gathers,
            needs=min(len(self._keys), max(file.notice.needs for file in files)),
            gathers=gathers,
            share=self.share_of(uid),
            told_at_s=max(file.notice.at_s for file in files),
        )

    def _see(self, now: float) -> None:
        """Count the GPU time of those that held GPUs at the last look.

        A release is seen at once; only where no change is seen, it may have been long ago.
        """
        before, self.holders = self.holders, self.board.holders(self._keys)
        self.last_holders.update(self.holders)
        passed_s, self._seen_at = now - self._seen_at, now
        for key, uid in before.items():
            is_sure = self.holders.get(key) == uid or self.board.is_watching
            self._seen.add(uid, passed_s if is_sure else min(passed_s, _LOOK_S), now)

    def _count(self, now: float) -> None:
        """Add the GPU time since the last count to the own use."""
        before, self._counted_at = self._counted_at, now
        if before is None:
            self._own.add(self.board.uid, self.board.inherit(now), now)
        elif self._held and now > before:
            self._own.add(self.board.uid, self._held * (now - before), now)
