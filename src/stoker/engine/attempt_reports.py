"""Applies the executor's reports to running attempts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from stoker.core.job import Ending, Outcome, judge
from stoker.core.lifecycle import Event
from stoker.engine.attempt_ends import AttemptEnds
from stoker.engine.events import EngineListener
from stoker.engine.journal_recovery import outcome_of
from stoker.engine.placement import find_slots
from stoker.engine.running_attempt import Paused, Running, RunningAttempt, Suspended
from stoker.engine.slots import SlotTable
from stoker.engine.termination import Termination
from stoker.executors.contract import Ended, Executor, Started, Stayed, Synced
from stoker.store.jobs import Jobs
from stoker.supervisor.adoption import RESTARTED
from stoker.supervisor.journal import Record

if TYPE_CHECKING:
    from stoker.engine.given_up import GivenUp
    from stoker.engine.suspensions import Suspensions


class AttemptReports(msgspec.Struct, kw_only=True, eq=False):
    """Takes attempts from claimed to started to ended.

    In a cluster, kills processes of attempts that are not on the slot table: the engine gave them up while
    their node could not be reached. `given_up` has those of which no end was seen.
    """

    slot_table: SlotTable
    executor: Executor
    jobs: Jobs
    ends: AttemptEnds
    termination: Termination
    listener: EngineListener
    suspensions: Suspensions | None
    is_cluster: bool
    given_up: GivenUp | None

    def on_unknown(self, report: Started) -> None:
        """Handle the start of an attempt that is not on the slot table: it has ended, or was given up."""
        if self.is_cluster:
            self.executor.kill(report.key)

    def on_stayed(self, report: Stayed) -> None:
        """Handle checkpoints that stay on the node of an attempt."""
        running = self.slot_table.running.get(report.key)
        places = self.ends.retry_policy.checkpoints
        if running is not None and places is not None:
            places.on_stayed(running, report.reason)

    def on_unknown_end(self, key: str) -> None:
        """Handle the end of an attempt that is not on the slot table."""
        if self.given_up is not None:
            self.given_up.discard(key)

    def on_started(
        self, running: RunningAttempt, report: Started, now: float, *, is_over: bool
    ) -> None:
        """Handle the start of an attempt; `is_over` if its end is reported too."""
        placed = self._note_place(running, report)
        is_new = running.pid is None
        if isinstance(running.phase, Paused):
            running.phase = Paused(report.pid, report.at_us, running.phase.since)
        elif isinstance(running.phase, Suspended):
            running.phase = msgspec.structs.replace(
                running.phase, pid=report.pid, started_at_us=report.at_us
            )
        else:
            running.phase = Running(report.pid, report.at_us)
        running.begun = report.at_s
        timeout_s = self.termination.limit_of(running)
        if running.end_request is not None:
            self.termination.go_on_ending(running, now, is_new=is_new)
        elif timeout_s is not None:
            running.deadline = report.at_s + timeout_s + running.paused_s
            self.slot_table.deadlines.note(running)
        self.termination.repeat(running)
        if self.suspensions is not None and not is_over:
            self.suspensions.on_started(running)
        if is_new:
            self.ends.retry_policy.rests.on_start(running.where)
            if self.ends.retry_policy.checkpoints is not None:
                self.ends.retry_policy.checkpoints.on_start(running)
            self.ends.gpus.on_start(running)
        if not is_over and is_new:
            slots = running.taken_by if placed else None
            self.jobs.mark_running(running.attempt.job, report.pid, report.at_us, slots)
        self.listener.on_start(running)

    def _note_place(self, running: RunningAttempt, report: Started) -> bool:
        """Assign the reported slot to an attempt that was claimed ahead; False if it has slots."""
        if report.place is None:
            return False
        if report.slot is None:
            return self.assign(running, report.place)
        if running.slots:
            return False
        self.slot_table.assign(running, (self.slot_table.states[report.slot].slot,))
        running.taken_by = report.place
        return True

    def assign(self, running: RunningAttempt, label: str) -> bool:
        """Assign the slot of a label to an attempt claimed ahead; False if it has slots already."""
        if running.slots:
            return False
        self.slot_table.assign(running, find_slots(self.slot_table, label))
        running.taken_by = label
        return True

    def on_ended(self, running: RunningAttempt, report: Ended, now: float) -> None:
        """Handle the end of an attempt's process."""
        outcome = _judge_end(running, report)
        if len(running.slots) != 1:
            self.ends.end(running, outcome, report)
            return
        state = self.slot_table.states[running.slots[0].index]
        if running.started_at_us is not None:
            state.learn_duration((report.at_us - running.started_at_us) / 1e6)
        self.ends.end(running, outcome, report)
        if state.current is not None:
            state.current.begun = now

    def lose(self, running: RunningAttempt, reason: str, *, cut_off: bool = False) -> None:
        """Record an attempt whose end cannot be known as lost.

        In a cluster its job runs again if its machine was restarted: on the head as on another node.
        """
        cut_off = cut_off or running.revived or (self.is_cluster and reason == RESTARTED)
        self.ends.end(running, Outcome(event=Event.LOSE, reason=reason, cut_off=cut_off))

    def on_synced(self, report: Synced) -> None:
        """Handle the complete list of an executor: other attempts never started, or are lost."""
        for running in list(self.slot_table.running.values()):
            if report.node != (running.where if running.where != self.slot_table.head else ""):
                continue
            if running.key in report.keys:
                running.adopted = True
            elif running.pid is None:
                self.ends.take_back(running)
            else:
                self.lose(running, "the supervisor does not know how it ended")
        self.slot_table.spread_adopted()
        if self.given_up is not None and report.node:
            self.given_up.keep_only(report.node, report.keys)

    def settle(self, records: Mapping[str, Record]) -> None:
        """Record the attempts of a lost executor as its journal knows them."""
        for running in list(self.slot_table.running.values()):
            record = records.get(running.key)
            if record is None and running.pid is None:
                self.ends.revoke(running)
                continue
            if record is not None and record.slot is not None:
                self.assign(running, record.slot)
            ending = record.last_known if record else None
            ended = Ended(running.key, *ending) if ending else None
            self.ends.end(running, outcome_of(ending), ended)


def _judge_end(running: RunningAttempt, report: Ended) -> Outcome:
    """Derive the outcome of an attempt from the end of its process.

    A process that was killed by SIGKILL has no status of 0: with 0, the attempt had succeeded before
    the kill. Killed leftovers of a job that had ended by itself do not change its outcome.
    """
    request = running.end_request
    if request is not None and request.ending is Ending.PRUNE:
        return Outcome(event=Event.PRUNE, status=report.status, reason=request.reason)
    if request is None or report.leftovers:
        return judge(report.status)
    if request.ending.is_preemption:
        return Outcome(event=Event.PREEMPT, status=report.status, reason=request.reason)
    if report.status == 0 and not request.is_sent:
        return judge(report.status)
    if (failure := request.ending.failure) is not None:
        return Outcome(
            event=Event.FAIL, status=report.status, reason=request.reason, failure=failure
        )
    return judge(report.status, killed_because=request.reason)
