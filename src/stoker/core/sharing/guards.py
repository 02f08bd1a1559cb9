"""What happens when a job needs more than was thought: the sums are mended, or it is tried otherwise."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from stoker.core.failure import OomFigures
from stoker.core.sharing.gpu import Gpu
from stoker.core.sharing.rules import Mode, Rules
from stoker.core.size import format_bytes


def raise_rooms(gpu: Gpu, rules: Rules) -> Mapping[int, int]:
    """New reservations of jobs that use more than theirs, by job, as far as there is room for them.

    The sum never exceeds what the GPU has: what a job takes beyond it was promised to nobody else.
    """
    spare = gpu.capacity(rules) - gpu.reserved_bytes
    raised: dict[int, int] = {}
    for tenant in gpu.tenants:
        if tenant.wish.share.mode is Mode.FREE:
            continue
        if tenant.used_bytes > tenant.reserved_bytes and spare > 0:
            wanted = int(tenant.used_bytes * rules.learned_factor)
            more = min(spare, wanted - tenant.reserved_bytes)
            raised[tenant.job] = tenant.reserved_bytes + more
            spare -= more
    return raised


class Remedy(enum.Enum):
    """What becomes of a job that ran out of GPU memory."""

    MORE_ROOM = "more room"
    ALONE = "alone"
    LARGER = "a larger GPU"
    FAIL = "fail"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ran out of GPU memory: how it was placed, what it said, how often it happened before."""

    reserved_bytes: int
    shared: bool
    capped: bool = False
    total_bytes: int
    largest_bytes: int
    figures: OomFigures
    peak_bytes: int | None = None
    before: int = 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and why in one line."""

    remedy: Remedy
    why: str
    need_bytes: int | None = None
    above_bytes: int = 0

    @property
    def is_tried_again(self) -> bool:
        """Whether the job gets another try, which is no fault of its own."""
        return self.remedy is not Remedy.FAIL


def judge_oom(case: Case, rules: Rules) -> Verdict:
    """Beside others it gets more room once and is then alone; alone, only a larger GPU helps.

    One that was capped is alone only once it is no more.
    """
    packed = case.shared or case.capped
    if packed and not case.before:
        need = _need(case, rules)
        how = "capped at" if case.capped else "beside others with"
        why = f"ran out of memory {how} {format_bytes(case.reserved_bytes)}"
        why += "" if case.capped else " set aside"
        return Verdict(
            remedy=Remedy.MORE_ROOM, why=f"{why}: again with {format_bytes(need)}", need_bytes=need
        )
    if packed:
        how = "capped" if case.capped else "beside others"
        return Verdict(
            remedy=Remedy.ALONE, why=f"ran out of memory {how} once more: again on a GPU alone"
        )
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


def _need(case: Case, rules: Rules) -> int:
    """What it said, if that is more than it had; else a good deal more than it had."""
    said = case.figures.need_bytes or 0
    known = max(said, case.peak_bytes or 0)
    if known > case.reserved_bytes:
        return int(known * rules.learned_factor)
    return int(case.reserved_bytes * rules.oom_factor)
