"""Allocations of a batch system as the queue knows them: records, the ends of their nodes, and trouble."""

from __future__ import annotations

from stoker.core.allocation import Allocation, Rule, Stage, why_unfit
from stoker.engine.walltimes import Walltimes
from stoker.store.allocation_records import AllocationRecords
from stoker.store.queue_jobs import Facts

_WORD = {
    Stage.QUEUED: "Slurm has queued",
    Stage.STARTING: "Slurm has started",
    Stage.ENDING: "Slurm gets back",
    Stage.CANCELLED: "Slurm gets back",
}


class Allocations:
    """What the daemon knows of allocations and their rules."""

    def __init__(self, records: AllocationRecords, walltimes: Walltimes, queue: str) -> None:
        self.records = records
        self.queue = queue  # begins the names of its jobs in Slurm
        self.walltimes = walltimes
        self.wanted: dict[int, int] = {}  # GPUs that waiting jobs could use, by rule
        self.trouble: str | None = None  # why Slurm does not answer

    def of(self, rule: int) -> list[Allocation]:
        """Return the allocations of a rule."""
        return [each for each in self.records.allocations.values() if each.rule == rule]

    def explain(self, facts: Facts) -> list[str]:
        """Return for each rule what it does for a waiting job."""
        rules = [rule for rule in self.records.rules.values() if not rule.is_removed]
        told = [] if not rules or self.trouble is None else [self.trouble]
        return told + [self._explain(rule, facts) for rule in rules]

    def _explain(self, rule: Rule, facts: Facts) -> str:
        name = f"allocation rule {rule.id}"
        unfit = why_unfit(rule, self.walltimes.need_of(facts))
        if unfit is not None:
            return f"{name} asks for none for it: {unfit}"
        if rule.paused is not None:
            return (
                f"{name} is paused ({rule.paused}): stoker cluster alloc resume {rule.id} goes on"
            )
        coming = [each for each in self.of(rule.id) if each.stage in _WORD]
        if coming:
            each = coming[-1]
            why = f" ({each.why})" if each.why else ""
            gpus = f"{rule.gpus} GPU{'s' * (rule.gpus != 1)}"
            return f"{_WORD[each.stage]} an allocation of {gpus}, job {each.id}{why}"
        if len(self.of(rule.id)) >= rule.most:
            return f"{name} has its {rule.most}, the most that it may have"
        failed = "" if rule.failure is None else f"; the last start failed: {rule.failure}"
        return f"{name} is about to ask Slurm{failed}"
