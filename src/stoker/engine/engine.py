"""The scheduling loop: each turn observes, applies, plans, records and launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from stoker.core.job import Ending
from stoker.core.slot import Slot
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.queue import Queue
from stoker.engine.report_handler import ReportHandler
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.run_progress import RunProgress, Tally
from stoker.engine.running_attempt import EndRequest, RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.engine.termination import Termination
from stoker.engine.turn_planner import Preview, TurnPlanner
from stoker.engine.turn_recorder import TurnRecorder
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import Executor, Launch, Restore
from stoker.failpoints import reach
from stoker.supervisor.journal import Record

if TYPE_CHECKING:
    from stoker.engine.given_up import GivenUp
    from stoker.engine.gpu_turns import GpuTurns
    from stoker.engine.suspensions import Suspensions

_RECORD_AGAIN_S = 1.0
_NEVER = float("inf")


class Engine(msgspec.Struct, kw_only=True, eq=False):
    """Runs the jobs of a queue on slots. Each turn is one transaction.

    The engine acts on processes only through the executor, and only after the turn is recorded.
    """

    slot_table: SlotTable
    executor: Executor
    recorder: TurnRecorder
    reports: ReportHandler
    planner: TurnPlanner
    termination: Termination
    progress: RunProgress
    clock: Callable[[], float]
    _over: list[str] = []  # to acknowledge once the turn is recorded
    _launches: list[Launch | Restore] = []  # to start once the turn is recorded

    @property
    def queue(self) -> Queue:
        """The waiting jobs."""
        return self.planner.queue

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy for failed attempts."""
        return self.planner.retry_policy

    @property
    def gpus(self) -> GpuFeatures:
        """GPU monitoring, GPU sharing and MPS."""
        return self.planner.gpus

    @property
    def suspensions(self) -> Suspensions | None:
        """The suspended attempts; None in an engine that suspends none."""
        return self.planner.suspensions

    @property
    def turns(self) -> GpuTurns | None:
        """Fair turns with other users of this machine; None in an engine that takes none."""
        return self.planner.turns

    @property
    def warm_status(self) -> WarmStatus:
        """The warm workers, and why jobs did not use them."""
        return self.reports.warm_status

    @property
    def tally(self) -> Tally:
        """How many commands ended how."""
        return self.progress.tally

    def turn(self) -> None:
        """Apply what happened, start what can start, and record both."""
        now = self.clock()
        if self.recorder.is_held_up:  # time limits and kills still work
            for running in [*self.slot_table.running.values()]:
                self.termination.check_deadline(running, now)
        else:
            self._apply_reports(now)
            self._enforce_limits(now)
            self._launches = self._plan(now)
        self._conclude()

    def _apply_reports(self, now: float) -> None:
        if reports := self.executor.observe():
            over = self.reports.apply(reports, now)
            if self.recorder.outlived:
                self._over += over

    def _enforce_limits(self, now: float) -> None:
        """End jobs over their time limit; slots with long jobs take no more attempts claimed ahead."""
        if now >= self._next_due(now):
            for running in self.slot_table.deadlines.take_due(now):
                self.termination.check_deadline(running, now)
            self.planner.claims_ahead.exclude_long(now)

    def _plan(self, now: float) -> list[Launch | Restore]:
        if self.progress.is_paused(now) or self.retry_policy.lacks_space(now):
            return self.planner.skip_turn(now, release_slots=self.progress.draining)
        return self.planner.plan_turn(now)

    def _conclude(self) -> None:
        """Record the turn; then acknowledge and launch what it contains."""
        reach("before-commit")
        if not self.recorder.commit():
            # A kill cannot wait: the job may be the one that fills the disk.
            self.termination.carry_out()
            return
        reach("after-commit")
        if self._over:
            self.executor.acknowledge(self._over)
            self._over = []
            reach("after-acknowledge")
        if self._launches:
            launches, self._launches = self._launches, []
            if self.suspensions is not None:
                self.suspensions.carry_out()  # first: no attempt claimed ahead may take their slots
            self.executor.launch([each for each in launches if isinstance(each, Launch)])
            reach("after-launch")
        self.termination.carry_out()
        self.recorder.database.sync_when_due()

    def is_over(self) -> bool:
        """Whether nothing runs and nothing will start."""
        return not self.slot_table.running and (self.progress.draining or self.queue.exhausted())

    def patience_s(self) -> float | None:
        """How long the driver may wait for events; None for any time."""
        now = self.clock()
        if self.recorder.is_held_up:
            deadlines = [running.deadline for running in self.slot_table.running.values()]
            return max(0.0, min([now + _RECORD_AGAIN_S, *filter(None, deadlines)]) - now)
        due = self._next_due(now)
        sync_s = self.recorder.database.sync_due_s()
        if sync_s is not None:
            due = min(due, now + sync_s)
        return None if due == _NEVER else max(0.0, due - now)

    def _next_due(self, now: float) -> float:
        """The time of the next turn that no event announces."""
        due = self.planner.due_at(now, may_start=not self.progress.draining)
        if self.progress.paused_until > now:
            due = min(due, self.progress.paused_until)
        return min(due, self.slot_table.deadlines.next())

    def drain(self) -> None:
        """Start nothing more; running jobs go on."""
        self.progress.drain()

    def revoke_followers(self, project: str | None = None) -> None:
        """Revoke attempts that were claimed ahead: all of them, or those of a project."""
        self.planner.claims_ahead.revoke(project)

    def adopt(self, running: RunningAttempt) -> None:
        """Take over an attempt of an earlier engine; the executor reports its state later."""
        if running.is_suspended and not running.slots:
            self.slot_table.adopt_suspended(running)
        else:
            self.slot_table.occupy(running)
        if self.gpus.mps is not None:
            self.gpus.mps.adopt(running)

    def attempts_on(self, node: str) -> list[RunningAttempt]:
        """The running attempts of a node."""
        return [each for each in self.slot_table.running.values() if each.where == node]

    def give_up(self, running: RunningAttempt, reason: str) -> None:
        """Requeue the job of an attempt that cannot be running any more, because of its node."""
        self.reports.attempts.lose(running, reason, cut_off=True)

    @property
    def given_up(self) -> GivenUp | None:
        """The attempts that were given up with their nodes; None in an engine without a daemon."""
        return self.reports.attempts.given_up

    def shared_slot_on(self, slot_state: SlotState) -> SlotState:
        """Return a free shared slot on the GPU of a slot."""
        assert self.planner.shared_slots is not None
        return self.planner.shared_slots.shared_slot_on(slot_state)

    def preview(self) -> Preview:
        """What would start now; changes nothing."""
        return self.planner.preview(self.clock())

    def add_slot(
        self,
        gpus: tuple[str, ...],
        keys: tuple[str, ...],
        node: str = "",
        cards: tuple[str, ...] = (),
    ) -> SlotState:
        """Add a slot, in a cluster on a node."""
        slot = Slot(len(self.slot_table.states), gpus, keys, node, cards)
        self.slot_table.add(slot)
        self.executor.define_slots([slot])
        return self.slot_table.states[-1]

    def end_all(self, reason: str) -> None:
        """Drain, and ask every process tree to end; each has its grace period."""
        self.drain()
        for running in self.slot_table.running.values():
            self.termination.kill(running, reason)

    def kill_all(self, reason: str) -> None:
        """Drain, and kill every process tree."""
        self.drain()
        for running in self.slot_table.running.values():
            running.end_request = running.end_request or EndRequest(Ending.KILL, reason)
            self.executor.kill(running.key)

    def leave_turns(self) -> None:
        """Stop waiting for GPUs of others; what was used stays on record."""
        if self.turns is not None:
            self.turns.close(self.clock())

    def finish(self) -> None:
        """End processes that jobs left behind; `progress.finished` is set when they are gone."""
        self.executor.finish()

    def settle(self, records: Mapping[str, Record]) -> None:
        """Record the attempts of a lost executor as its journal knows them."""
        self.progress.draining = True
        self.reports.attempts.settle(records)
        self.recorder.database.commit()

    def all_succeeded(self) -> bool:
        """Whether every command has run and succeeded."""
        tally = self.tally
        return self.is_complete() and not (tally.failed or tally.killed or tally.lost)

    def is_complete(self) -> bool:
        """Whether no command is left to run."""
        return self.queue.exhausted() or (not self.queue and self.queue.is_drained())

    def tell_once(self, text: str) -> None:
        """Publish a notice unless it was published before."""
        self.reports.notices.tell_once(text)
