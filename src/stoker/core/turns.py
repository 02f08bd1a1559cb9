"""Fair turns at GPUs: who of the users that wait is next, by recent use. Pure: time is an argument.

Use is GPU time with a half-life of a day, divided by the user's share. Who holds a GPU yields it at the end
of a job if a user with less use waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

HALF_LIFE_S = 86_400.0
TIE_S = 1.0
"""Two users whose use differs by less count as equal: what each knows of the other is not newer."""
_LEAST_JOB_S = 2.0  # below this, users would swap a GPU more often than jobs are worth
_MOST_JOB_S = 60.0  # a user with long jobs does not get a longer lead for it
_BONUS_S = 60.0  # for each GPU that a job needs
_HOUR_S = 3600.0


def decay(gpu_s: float, age_s: float) -> float:
    """Return what is left of an amount of use after some time."""
    return gpu_s * float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


class UseTally:
    """GPU time by user, each amount with the time at which it was true."""

    def __init__(self) -> None:
        self._amounts: dict[int, tuple[float, float]] = {}

    def add(self, uid: int, gpu_s: float, now: float) -> None:
        """Count GPU time that a user has had up to now."""
        self._amounts[uid] = (self.of(uid, now) + gpu_s, now)

    def of(self, uid: int, now: float) -> float:
        """Return the recent use of a user."""
        amount, at = self._amounts.get(uid, (0.0, now))
        return decay(amount, now - at)

    def users(self) -> Iterable[int]:
        """Return the users with any use."""
        return self._amounts.keys()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A Stoker that waits for GPUs, as another one sees it.

    `lead_s` is how much less it has used than the one that looks, both divided by their shares. `gpus` are
    the lease keys of the GPUs that it can use, `wants` is how many of them, `holds` how many it uses already.
    Its first job needs `needs` GPUs, of which it has gathered some: it holds `gathers` that it does not use.
    `told_at_s` is when it has told that: a GPU that it took since then may still be among those it wants.
    """

    name: str
    uid: int
    lead_s: float
    use_s: float = 0.0
    gpus: frozenset[str]
    wants: int = 1
    holds: int = 0
    needs: int = 1
    gathers: int = 0
    share: float = 1.0
    told_at_s: float = 0.0

    @property
    def bonus_s(self) -> float:
        """How much more it may have used than others, until it has gathered all: else it would never."""
        return _BONUS_S * self.needs if self.gathers and self.needs > 1 else 0.0

    def is_ahead_of(self, me: Claim) -> bool:
        """Whether it comes before one's own claim: by less use, or in a tie by the smaller number.

        One that has begun to gather GPUs goes on. Between two Stokers of one user, the names of their files
        decide a tie.
        """
        lead_s = self.lead_s + self.bonus_s - me.bonus_s
        is_smaller = (self.uid, self.name) < (me.uid, me.name)
        return lead_s >= TIE_S or (lead_s > -TIE_S and is_smaller)


def next_in_line(
    claims: Iterable[Claim], gpus: Iterable[str], promised: Mapping[str, int]
) -> Claim | None:
    """Return the claim to these GPUs with the largest lead, without those that are promised enough."""
    keys = frozenset(gpus)
    fitting = [
        claim
        for claim in claims
        if not claim.gpus.isdisjoint(keys) and claim.wants > promised.get(claim.name, 0)
    ]
    return max(
        fitting,
        key=lambda claim: (claim.lead_s + claim.bonus_s, -claim.uid, claim.name),
        default=None,
    )


def is_its_turn(
    claim: Claim, job_s: float, holds: int = 0, share: float = 1.0, promised: int = 0
) -> bool:
    """Whether a holder of so many GPUs yields one to a claim at the end of a job that took so long.

    The lead is that after one more such job on each GPU, of both. It must exceed half a job: then equal
    users alternate on one GPU, and each has half of several. `promised` GPUs will be the claim's.
    """
    if claim.needs > 1 and not claim.gathers and claim.lead_s <= -_BONUS_S * claim.needs / 2.0:
        return False  # it would have to give back soon what it gathers
    worth_s = min(max(job_s, _LEAST_JOB_S), _MOST_JOB_S)
    lead_s = (
        claim.lead_s
        + claim.bonus_s
        + worth_s * (holds / share - (claim.holds + promised) / claim.share)
    )
    return lead_s > worth_s * (1.0 / share + 1.0 / claim.share) / 4.0


def format_use(gpu_s: float) -> str:
    """Write an amount of GPU time: 45 GPU-seconds, 12 GPU-minutes, 31 GPU-hours."""
    for unit_s, unit in ((_HOUR_S, "hour"), (60.0, "minute"), (1.0, "second")):
        if gpu_s >= unit_s or unit_s == 1.0:
            amount = f"{gpu_s / unit_s:.1f}" if gpu_s < 10 * unit_s else f"{gpu_s / unit_s:.0f}"
            amount = amount.removesuffix(".0")
            return f"{amount} GPU-{unit}{'s' * (amount != '1')}"
    raise AssertionError
