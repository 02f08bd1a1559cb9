"""Applies to running attempts what the executor reports of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stoker.core.job import Outcome, judge
from stoker.core.lifecycle import Event
from stoker.engine.attempt_ends import AttemptEnds
from stoker.engine.events import EngineListener
from stoker.engine.journal_recovery import outcome_of
from stoker.engine.placement import find_slots
from stoker.engine.running_attempt import Paused, Running, RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.engine.termination import Termination
from stoker.executors.contract import Ended, Executor, Lost, Placed, Refused, Started, Synced
from stoker.store.jobs import Jobs
from stoker.supervisor.journal import Record


class AttemptReports(msgspec.Struct, kw_only=True, eq=False):
    """Brings attempts from claimed to started to ended, as reports come in.

    With `kills_unknown` a process is killed that was given up while its node could not be reached.
    """

    slot_table: SlotTable
    executor: Executor
    jobs: Jobs
    ends: AttemptEnds
    termination: Termination
    listener: EngineListener
    kills_unknown: bool

    def on_started(self, report: Started, now: float, *, is_over: bool) -> None:
        """An attempt is a process; `is_over` if its end is reported too."""
        running = self.slot_table.running.get(report.key)
        if running is None:
            if not is_over and self.kills_unknown:
                self.executor.kill(report.key)
            return  # told again, and on record already
        placed = self._note_place(running, report)
        is_new = running.pid is None
        if isinstance(running.phase, Paused):
            running.phase = Paused(report.pid, report.at_us, running.phase.since)
        else:
            running.phase = Running(report.pid, report.at_us)
        running.begun = report.at_s
        timeout_s = running.entry.request.timeout_s
        if running.end_request is not None:
            self.termination.terminate(running, now)
        elif timeout_s is not None:
            running.deadline = report.at_s + timeout_s + running.paused_s
            self.slot_table.deadlines.note(running)
        self.termination.repeat(running)
        if not is_over and is_new:
            slots = running.taken_by if placed else None
            self.jobs.mark_running(running.attempt.job, report.pid, report.at_us, slots)
        self.listener.on_start(running)

    def _note_place(self, running: RunningAttempt, report: Started) -> bool:
        """Seat an attempt that waited in line, or did so for an earlier engine; False for all others."""
        if report.place is None:
            return False
        if report.slot is None:
            return self._seat(running, report.place)
        if running.slots:
            return False
        self.slot_table.assign(running, (self.slot_table.states[report.slot].slot,))
        running.taken_by = report.place
        return True

    def on_placed(self, report: Placed) -> None:
        """A slot has taken an attempt from the line."""
        running = self.slot_table.running.get(report.key)
        if running is not None:
            self._seat(running, report.place)

    def _seat(self, running: RunningAttempt, place: str) -> bool:
        """Seat an attempt on the slot that is known by its label alone; False if it has slots already."""
        if running.slots:
            return False
        self.slot_table.assign(running, find_slots(self.slot_table, place))
        running.taken_by = place
        return True

    def on_ended(self, report: Ended, now: float) -> None:
        """An attempt's process has ended."""
        running = self.slot_table.running.get(report.key)
        if running is None:
            return
        outcome = _judge_end(running, report)
        if len(running.slots) != 1:
            self.ends.end(running, outcome, report)
            return
        place = self.slot_table.states[running.slots[0].index]
        if running.started_at_us is not None:
            place.learn_duration((report.at_us - running.started_at_us) / 1e6)
        self.ends.end(running, outcome, report)
        if place.current is not None:
            place.current.begun = now

    def on_refused(self, report: Refused, now: float) -> None:
        """An attempt could not be started."""
        running = self.slot_table.running.get(report.key)
        if running is not None:
            self.ends.refuse(running, report.errno, report.reason, now)

    def on_revoked(self, key: str) -> None:
        """An attempt was taken back before it began."""
        running = self.slot_table.running.get(key)
        if running is not None:
            self.ends.take_back(running)

    def on_lost(self, report: Lost) -> None:
        """Nobody will ever know how an attempt ended."""
        running = self.slot_table.running.get(report.key)
        if running is not None:
            outcome = Outcome(event=Event.LOSE, reason=report.reason, cut_off=report.cut_off)
            self.ends.end(running, outcome)

    def on_synced(self, report: Synced) -> None:
        """The executor has told all it knows: what it does not know never began, or is lost."""
        for running in list(self.slot_table.running.values()):
            if report.node != (running.where if running.where != self.slot_table.head else ""):
                continue
            if running.key in report.keys:
                running.adopted = True
            elif running.pid is None:
                self.ends.take_back(running)
            else:
                reason = "nobody knows what became of it"
                self.ends.end(running, Outcome(event=Event.LOSE, reason=reason))
        self.slot_table.spread_adopted()

    def settle(self, records: Mapping[str, Record]) -> None:
        """With the executor lost: record for each attempt what its journal knows."""
        for running in list(self.slot_table.running.values()):
            record = records.get(running.key)
            if record is None and running.pid is None:
                self.ends.revoke(running)
                continue
            if record is not None and record.slot is not None:
                self._seat(running, record.slot)
            ending = record.last_known if record else None
            ended = Ended(running.key, *ending) if ending else None
            self.ends.end(running, outcome_of(ending), ended)


def _judge_end(running: RunningAttempt, report: Ended) -> Outcome:
    """What the end of a process means for its attempt.

    SIGKILL never leads to a status of 0: such an attempt had succeeded before it was killed. If processes
    of a job that had ended by itself were killed, that says nothing about the job.
    """
    request = running.end_request
    if request is None or report.leftovers:
        return judge(report.status)
    if request.ending.is_preemption:
        return Outcome(event=Event.PREEMPT, status=report.status, reason=request.reason)
    succeeded = report.status == 0 and not request.is_sent
    return judge(report.status, killed_because=None if succeeded else request.reason)
