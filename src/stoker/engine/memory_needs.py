"""GPU memory that jobs need after they ran out of it: judges the failure and remembers the need."""

from __future__ import annotations

from collections.abc import Callable

from stoker.core.failure import Failure, OomFigures
from stoker.core.sharing.overrun import Case, Remedy, Verdict, judge_oom
from stoker.core.usage import AttemptUse
from stoker.engine.gpu_models import largest_of
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.shared_gpus import SharedGpus
from stoker.engine.slots import SlotTable
from stoker.store.sharing_records import Need

_NO_LOG = "failed beside others, and no log tells why: again on a GPU alone"


class MemoryNeeds:
    """Decides how jobs that ran out of GPU memory are tried again. `allowed_of` gives a job's slots."""

    def __init__(
        self,
        slot_table: SlotTable,
        gpus: SharedGpus,
        allowed_of: Callable[[RunningAttempt], frozenset[int] | None],
    ) -> None:
        self._slot_table = slot_table
        self._gpus = gpus
        self._allowed_of = allowed_of
        self.by_job: dict[int, Need] = {}

    def load(self) -> None:
        """Read the recorded needs."""
        self.by_job = self._gpus.records.needs()

    def forget(self, running: RunningAttempt) -> None:
        """Drop the need of a job that is over."""
        if self.by_job.pop(_plan_id(running), None) is not None:
            self._gpus.records.forget_need(running.attempt.job)

    def judge_oom(
        self, running: RunningAttempt, failure: Failure, use: AttemptUse | None
    ) -> Verdict | None:
        """Decide about a job that ran out of GPU memory; None if its GPU is unknown."""
        tenancy = self._gpus.tenancies.get(running.key)
        keys = [key for slot in running.slots for key in slot.keys]
        models = self._gpus.models()
        if len(keys) != 1 or keys[0] not in models:
            return None
        total = models[keys[0]].total_bytes
        before = self.by_job.get(_plan_id(running), Need(ooms=0))
        shared = tenancy is not None and self._gpus.had_company(tenancy)
        verdict = judge_oom(
            Case(
                reserved_bytes=tenancy.tenant.reserved_bytes if tenancy else total,
                shared=shared,
                capped=tenancy is not None and tenancy.tenant.capped,
                total_bytes=total,
                largest_bytes=self._largest_for(running) or total,
                figures=failure.figures or OomFigures(),
                peak_bytes=use.mem_peak_bytes if use else None,
                others_bytes=self._held_by_others(running, keys[0], use),
                before=before.ooms,
            ),
            self._gpus.rules,
        )
        if tenancy is not None and (shared or tenancy.tenant.capped):
            self._gpus.note_oom(tenancy)
        self._remember(running, before, verdict)
        return verdict

    def judge_mute(self, running: RunningAttempt) -> Verdict | None:
        """Decide about a job that failed with an empty log; None if it had its GPU to itself.

        It may have run out of memory beside others. A try alone on a GPU shows whether it did.
        """
        tenancy = self._gpus.tenancies.get(running.key)
        before = self.by_job.get(_plan_id(running), Need(ooms=0))
        if tenancy is None or before.alone or not self._gpus.had_company(tenancy):
            return None
        verdict = Verdict(remedy=Remedy.ALONE, why=_NO_LOG)
        self._remember(running, before, verdict)
        return verdict

    def _remember(self, running: RunningAttempt, before: Need, verdict: Verdict) -> None:
        if not verdict.is_tried_again:
            return
        need = Need(
            ooms=before.ooms + 1,
            bytes=verdict.need_bytes or before.bytes,
            alone=before.alone or verdict.remedy is Remedy.ALONE,
            above_bytes=max(before.above_bytes, verdict.above_bytes),
        )
        self.by_job[_plan_id(running)] = need
        self._gpus.records.note_need(running.attempt.job, need)

    def _largest_for(self, running: RunningAttempt) -> int | None:
        """The memory of the largest GPU that a job may use, occupied or not."""
        allowed = self._allowed_of(running)
        return largest_of(
            (
                state.slot
                for state in self._slot_table.whole_slots()
                if state.drained is None and (allowed is None or state.slot.index in allowed)
            ),
            self._gpus.models(),
        )

    def _held_by_others(
        self, running: RunningAttempt, key: str, use: AttemptUse | None
    ) -> int | None:
        """The memory of a GPU that processes outside the sharing hold; None if it is unknown."""
        if use is not None and not use.alone:
            return None
        if any(
            state.current is not None and state.current is not running and key in state.slot.keys
            for state in self._slot_table.states
        ):
            return None
        look = self._gpus.look()
        seen = look.gpus.get(key) if look is not None else None
        if seen is None:
            return 0
        is_known = all(each.mem_bytes is not None for each in seen.foreigners)
        return seen.foreign_bytes if is_known else None


def _plan_id(running: RunningAttempt) -> int:
    """The id of a job in plans: a stored job's id, or the line number of a foreground run's command."""
    candidate = running.entry.candidate
    return running.attempt.job if candidate is None else candidate.id
