"""Jobs that need more GPU memory than expected: larger reservations, or another try elsewhere."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from stoker.core.failure import Again, OomFigures
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu
from stoker.core.size import format_bytes

_TRIES_BESIDE_OTHERS = 2


def raise_reservations(gpu: SharedGpu, rules: SharingRules) -> Mapping[int, int]:
    """Return larger reservations, by job, for jobs that use more than theirs, within the free capacity.

    The sum never exceeds the GPU's capacity: memory that a job takes beyond it was promised to no other job.
    """
    spare = gpu.capacity(rules) - gpu.reserved_bytes
    raised: dict[int, int] = {}
    for tenant in gpu.tenants:
        if tenant.request.share.mode is Mode.FREE:
            continue
        if tenant.used_bytes > tenant.reserved_bytes and spare > 0:
            wanted = int(tenant.used_bytes * rules.learned_factor)
            more = min(spare, wanted - tenant.reserved_bytes)
            raised[tenant.job] = tenant.reserved_bytes + more
            spare -= more
    return raised


class Remedy(enum.Enum):
    """What Stoker does with a job that ran out of GPU memory."""

    MORE_ROOM = "more room"
    ALONE = "alone"
    ELSEWHERE = "elsewhere"
    LARGER = "a larger GPU"
    AS_ASKED = "as asked"
    FAIL = "fail"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ran out of GPU memory: its placement, its message, how often it happened before.

    `others_bytes` is the memory held there by processes outside the packing: other users, or jobs on slots of
    the same GPU. None if there were some but their amount is unknown.
    """

    reserved_bytes: int
    shared: bool
    capped: bool = False
    total_bytes: int
    largest_bytes: int
    figures: OomFigures
    peak_bytes: int | None = None
    others_bytes: int | None = 0
    before: int = 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the job, and the reason in one line."""

    remedy: Remedy
    why: str
    need_bytes: int | None = None
    above_bytes: int = 0

    @property
    def is_tried_again(self) -> bool:
        """Whether the job gets another try that does not count as its own fault."""
        return self.remedy not in (Remedy.FAIL, Remedy.AS_ASKED)

    @property
    def again(self) -> Again | None:
        """Whether the job is tried again; None if the user's `retries` decide."""
        if self.remedy is Remedy.AS_ASKED:
            return None
        return Again.UNCOUNTED if self.is_tried_again else Again.NO

    @property
    def is_elsewhere(self) -> bool:
        """Whether the job must avoid that GPU."""
        return self.remedy is Remedy.ELSEWHERE


def judge_oom(case: Case, rules: SharingRules) -> Verdict:
    """Decide what to do with a job that ran out of GPU memory.

    Beside others, or capped, it first gets more memory and then a GPU alone. Alone, only a larger GPU helps,
    unless foreign processes held what the job lacked: then its need is not proven.
    """
    if case.shared or case.capped:
        return _judge_packed(case, rules)
    if _lacked_what_others_had(case, rules):
        return _judge_beside_others(case)
    size = format_bytes(case.total_bytes)
    if case.largest_bytes > case.total_bytes:
        return Verdict(
            remedy=Remedy.LARGER,
            why=f"needs more than the {size} of this GPU: again on a larger one",
            above_bytes=case.total_bytes,
        )
    return Verdict(
        remedy=Remedy.FAIL,
        why=f"needs more than the {size} of this GPU, and there is no larger one",
        above_bytes=case.total_bytes,
    )


def _judge_packed(case: Case, rules: SharingRules) -> Verdict:
    if case.before:
        how = "capped" if case.capped else "beside others"
        return Verdict(
            remedy=Remedy.ALONE, why=f"ran out of memory {how} once more: again on a GPU alone"
        )
    need = _need(case, rules)
    how = "capped at" if case.capped else "beside others with"
    why = f"ran out of memory {how} {format_bytes(case.reserved_bytes)}"
    why += "" if case.capped else " set aside"
    return Verdict(
        remedy=Remedy.MORE_ROOM, why=f"{why}: again with {format_bytes(need)}", need_bytes=need
    )


def _judge_beside_others(case: Case) -> Verdict:
    held = _held_by_others(case)
    many = "" if held is None else f" {format_bytes(held)} of"
    why = f"ran out of memory while others had{many} this GPU"
    if case.before < _TRIES_BESIDE_OTHERS:
        return Verdict(remedy=Remedy.ELSEWHERE, why=f"{why}: again, on another one if there is one")
    return Verdict(remedy=Remedy.AS_ASKED, why=f"{why}, once more")


def _lacked_what_others_had(case: Case, rules: SharingRules) -> bool:
    """Whether the allocation would have succeeded without the memory of others."""
    held = _held_by_others(case)
    if not held:
        return held is None
    tried, free = case.figures.tried_bytes, case.figures.free_bytes
    if tried is None or free is None:
        return held > rules.margin_of(case.total_bytes)
    return tried <= free + held


def _held_by_others(case: Case) -> int | None:
    """Return the memory of others as seen, or as the message says less the job's other processes."""
    said = case.figures.others_bytes
    if said is None:
        return case.others_bytes
    siblings = max(0, (case.peak_bytes or 0) - (case.figures.own_bytes or 0))
    return max(case.others_bytes or 0, said - siblings)


def _need(case: Case, rules: SharingRules) -> int:
    """Return the need that the message or the peak shows; without one, a larger reservation than before."""
    said = case.figures.need_bytes or 0
    known = max(said, case.peak_bytes or 0)
    if known > case.reserved_bytes:
        return int(known * rules.learned_factor)
    return int(case.reserved_bytes * rules.oom_factor)
