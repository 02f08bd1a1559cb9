"""The loop that keeps slots busy: observe → apply → plan → record → launch, one transaction a turn."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from stoker.core.failure import Again, Failure, Remedy
from stoker.core.job import Attempt, Ending, Outcome, describe_leftovers, judge
from stoker.core.lifecycle import Event, State
from stoker.core.planner import DEPTH, Plan, Start, plan
from stoker.core.slot import Slot
from stoker.engine.candidates import Candidates
from stoker.engine.engine_rules import EngineRules, Order, Preview, Tally
from stoker.engine.events import EngineListener
from stoker.engine.failure_inspection import size_of
from stoker.engine.foreground_queue import Queue, QueueEntry
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.journal_recovery import outcome_of
from stoker.engine.placement import find_slots
from stoker.engine.policy import Later, Policy
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.slots import QUICK_S, RunningAttempt, SlotState, SlotTable, label_of
from stoker.engine.termination import Termination
from stoker.engine.turn_recorder import TurnRecorder
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import (
    Cold,
    Cooled,
    Ended,
    Executor,
    Finished,
    Held,
    Launch,
    Lost,
    Placed,
    Refused,
    Released,
    Report,
    Revoked,
    Started,
    Strays,
    Synced,
    Unheld,
    Warmed,
)
from stoker.executors.node_reports import Away, Joined, Leaving, Left, Parted, Sighted, Told
from stoker.failpoints import reach
from stoker.store.database import Database
from stoker.store.jobs import Jobs, Known, Usage
from stoker.supervisor.journal import Record

if TYPE_CHECKING:
    from stoker.core.sharing.overrun import Verdict
    from stoker.core.usage import AttemptUse
    from stoker.engine.gpu_sources import GpuSource
    from stoker.engine.mps import Mps
    from stoker.engine.nodes import Nodes
    from stoker.engine.shared_slots import SharedSlots
    from stoker.engine.sharing import Sharing
    from stoker.engine.torch_memory_cap import TorchMemoryCap

_PAUSE_S = 1.0
# What a machine may lack now and have again soon; no command is to blame for it.
_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))
_PASSING = _NO_SPACE | {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_NEVER = float("inf")


class Engine:
    """Runs a queue's commands on slots. All effects go through the executor and the database."""

    def __init__(
        self,
        *,
        slot_table: SlotTable,
        queue: Queue,
        executor: Executor,
        database: Database,
        jobs: Jobs,
        listener: EngineListener,
        rules: EngineRules,
        prepare: Callable[[Attempt, QueueEntry], Order],
        clock: Callable[[], float],
        on_stuck: Callable[[QueueEntry], None] | None = None,
        policy: Policy = plan,
    ) -> None:
        self.slot_table = slot_table
        self.gpu_leases = GpuLeases(self.slot_table, executor, self.tell_once)
        self.warm_status = WarmStatus(self.tell_once)
        self.termination = Termination(executor, clock, queue.note_ending, slot_table.deadlines)
        self.queue = queue
        self.retry_policy = RetryPolicy(slot_table, jobs, listener.on_notice)
        self.gpu_monitor: GpuSource | None = None
        self.sharing: Sharing | None = None
        self.nodes: Nodes | None = None  # of a cluster, where there is one
        self._mps: Mps | None = None
        self.tally = Tally()
        self.draining = False
        self.finished = False
        self._executor = executor
        self._database = database
        self._jobs = jobs
        self._listener = listener
        self._rules = rules
        self._prepare = prepare
        self._on_stuck = on_stuck
        self.policy = policy
        self._clock = clock
        self._paused_until = 0.0
        self._turn_again = False
        self._lacks_slots = False
        self._offered: list[int] = []
        self._line_is_closed = False  # nothing joins the line until it is empty
        self._needs_slot_first = False  # a job waits that must know its GPU before it is launched
        self._kept: Mapping[int, int] = {}
        self._told: set[str] = set()
        self._ended_keys: list[str] = []
        self._launches: list[Launch] = []
        self.recorder = TurnRecorder(database, listener, outlived=rules.outlived)
        database.on_unsynced = listener.on_notice
        executor.define_slots([place.slot for place in slot_table.places])

    def turn(self) -> None:
        """Take one step: hear what happened, record it, and start what can start."""
        now = self._clock()
        if self.recorder.is_held_up:  # limits and kills count as ever
            for running in [*self.slot_table.running.values()]:
                self.termination.check_deadline(running, now)
            self._conclude()
            return
        if reports := self._executor.observe():
            self._apply(reports, now)
        if now >= self._next_due(now):
            self._enforce_limits(now)
        if self.draining:
            self.gpu_leases.release_idle()
        self._turn_again = self._lacks_slots = False
        paused = self.draining or now < self._paused_until or self.retry_policy.lacks_space(now)
        self._launches = [] if paused else self._fill(now)
        self._conclude()

    def _conclude(self) -> None:
        """Record the turn; only what is on record is acknowledged and launched."""
        reach("before-commit")
        if not self.recorder.commit():
            # Whatever fills the disk has to end, also while that cannot be recorded.
            self.termination.carry_out()
            return
        reach("after-commit")
        if self._ended_keys:
            self._executor.acknowledge(self._ended_keys)
            self._ended_keys = []
            reach("after-acknowledge")
        if self._launches:
            self._executor.launch(self._launches)
            self._launches = []
            reach("after-launch")
        self.termination.carry_out()
        self._database.sync_when_due()

    def is_over(self) -> bool:
        """Whether nothing runs and nothing will."""
        return not self.slot_table.running and (self.draining or self.queue.exhausted())

    def patience_s(self) -> float | None:
        """How long the loop may wait for events; None for as long as it likes."""
        now = self._clock()
        if self.recorder.is_held_up:
            deadlines = [running.deadline for running in self.slot_table.running.values()]
            return max(0.0, min([now + _PAUSE_S, *filter(None, deadlines)]) - now)
        due = self._next_due(now)
        sync_s = self._database.sync_due_s()
        if sync_s is not None:
            due = min(due, now + sync_s)
        return None if due == _NEVER else max(0.0, due - now)

    def drain(self) -> None:
        """Start nothing more; what runs may end."""
        self.draining = True
        self.revoke_followers()

    def revoke_followers(self, project: str | None = None) -> None:
        """Take back what was claimed in advance: all of it, or a project's."""
        for running in [*self.slot_table.line.values()]:
            if not running.revoking and project in (None, _project_of(running)):
                running.revoking = True
                self._line_is_closed = self._line_is_closed or project is None
                self._executor.revoke(running.key)

    def adopt(self, running: RunningAttempt) -> None:
        """Take over an attempt of an earlier engine; what became of it the executor will tell."""
        self.slot_table.seat(running)
        if self._mps is not None and self.retry_policy.wants_mps(running):
            self._mps.join(running)

    def part(self, node: str, reason: str) -> None:
        """Nothing that was started on a node can be running there: what was waits again."""
        for running in [*self.slot_table.running.values()]:
            if running.where == node:
                self._on_lost(Lost(running.key, reason, cut_off=True))

    def follow(self, gpu_monitor: GpuSource) -> None:
        """Have a GPU monitor from now on, who knows what the GPUs do."""
        self.gpu_monitor = gpu_monitor
        self.retry_policy.xid_of = gpu_monitor.xid_of

    def share(self, sharing: Sharing, torch_memory_cap: TorchMemoryCap | None = None) -> None:
        """Let jobs share GPUs from now on, capped where they can be."""
        from stoker.engine.shared_slots import (
            SharedSlots,  # late: most foreground runs do not share
        )

        self.sharing = sharing
        self._shared_slots: SharedSlots = SharedSlots(
            sharing, self.slot_table, self._executor, self.gpu_leases, self._claim, torch_memory_cap
        )

    def seat_on(self, place: SlotState) -> SlotState:
        """A free seat on the GPU of a place."""
        return self._shared_slots.seat_on(place)

    def use(self, mps: Mps) -> None:
        """Have MPS for jobs that ask for it."""
        self._mps = self.retry_policy.mps = mps

    def now(self) -> float:
        """The time by the clock that limits go by."""
        return self._clock()

    def wall_clock(self) -> float:
        """The time of day."""
        return time.time()

    def preview(self) -> Preview:
        """What the planner would do now with the head of the queue; changes nothing."""
        free = self.slot_table.free()
        cpu_places = self.slot_table.free_cpu_places()
        entries = self.queue.peek(max(len(free), 1) + self.retry_policy.held_back, cpu_places)
        demand = Candidates(entries, self.slot_table, self.retry_policy, self.sharing)
        made = self._plan(demand, free, {}, cpu_places, self._clock())
        return Preview(starting={start.job for start in made.starts}, reserved={**made.reserved})

    def add_slot(self, gpus: tuple[str, ...], keys: tuple[str, ...], node: str = "") -> SlotState:
        """Have one more slot from now on, on a node of the cluster if there is one."""
        slot = Slot(len(self.slot_table.places), gpus, keys, node)
        self.slot_table.add(slot)
        self._executor.define_slots([slot])
        return self.slot_table.places[-1]

    def kill_all(self, reason: str) -> None:
        """End every tree at once."""
        self.drain()
        for running in self.slot_table.running.values():
            running.killed_because = running.killed_because or reason
            self._executor.kill(running.key)

    def finish(self) -> None:
        """Let what the jobs left behind come to its end; `finished` tells when it has."""
        self._executor.finish()

    def settle(self, records: Mapping[str, Record]) -> None:
        """With the executor lost: record for each attempt what its journal knows."""
        self.draining = True
        for running in list(self.slot_table.running.values()):
            record = records.get(running.key)
            if record is None and running.pid is None:
                self._go_round_again(running, revoked=True)
                continue
            if record is not None and record.place is not None:
                self._seat_taken(running, record.place)
            ending = record.last_known if record else None
            ended = Ended(running.key, *ending) if ending else None
            self._end(running, outcome_of(ending), ended)
        self._database.commit()

    def all_succeeded(self) -> bool:
        """Whether every command has been run, and with success."""
        tally = self.tally
        return self.is_complete() and not (tally.failed or tally.killed or tally.lost)

    def is_complete(self) -> bool:
        """Whether no command is left that has not been run."""
        return self.queue.exhausted() or (not self.queue and self.queue.is_drained())

    def tell_once(self, text: str) -> None:
        """Tell something that would be true again and again."""
        if text not in self._told:
            self._told.add(text)
            self._listener.on_notice(text)

    def _apply(self, reports: list[Report], now: float) -> None:
        over = {report.key for report in reports if isinstance(report, Ended)}
        if self._rules.outlived:
            self._ended_keys += over
        for report in reports:
            match report:
                case Ended():
                    self._on_ended(report, now)
                case Started():
                    self._on_started(report, now, is_over=report.key in over)
                case Placed():
                    self._on_placed(report)
                case Refused():
                    self._on_refused(report, now)
                case Revoked():
                    self._on_revoked(report)
                case Lost():
                    self._on_lost(report)
                case Synced():
                    self._on_synced(report)
                case Warmed() | Cooled() | Cold():
                    self.warm_status.apply(report)
                case Joined() | Away() | Parted() | Leaving() | Left() | Sighted() | Told():
                    assert self.nodes is not None
                    self.nodes.apply(report)
                case _:
                    self._apply_to_slots(report, now)

    def _apply_to_slots(self, report: Report, now: float) -> None:
        match report:
            case Held():
                self.gpu_leases.on_held(report.slot)
            case Unheld():
                self.gpu_leases.on_unheld(report, now)
            case Released():
                self.slot_table.places[report.slot].held = False
            case Finished():
                self.finished = True
            case Strays():
                pids = ", ".join(map(str, report.pids))
                self._listener.on_notice(
                    f"processes that commands left behind have 5 s to end: pid {pids}"
                )

    def _on_started(self, report: Started, now: float, *, is_over: bool) -> None:
        running = self.slot_table.running.get(report.key)
        if running is None:
            if not is_over and self.nodes is not None:
                self._executor.kill(report.key)  # given up while its node could not be reached
            return  # told again, and on record already
        placed = self._note_place(running, report)
        known, running.pid, running.started_at_us = running.pid, report.pid, report.at_us
        running.begun = report.at_s
        timeout_s = running.entry.request.timeout_s
        if running.killed_because is not None:
            self.termination.terminate(running, now)
        elif timeout_s is not None:
            running.deadline = report.at_s + timeout_s + running.stopped_s
            self.slot_table.deadlines.note(running)
        self.termination.repeat(running)
        if not is_over and known is None:
            slots = running.taken_by if placed else None
            self._jobs.mark_running(running.attempt.job, report.pid, report.at_us, slots)
        self._listener.on_start(running)

    def _note_place(self, running: RunningAttempt, report: Started) -> bool:
        """Seat an attempt that waited in line, or did so for an earlier engine; False for all others."""
        if report.place is None:
            return False
        if report.slot is None:
            return self._seat_taken(running, report.place)
        if running.slots:
            return False
        self.slot_table.take_from_line(running, (self.slot_table.places[report.slot].slot,))
        running.taken_by = report.place
        return True

    def _on_placed(self, report: Placed) -> None:
        running = self.slot_table.running.get(report.key)
        if running is not None:
            self._seat_taken(running, report.place)

    def _seat_taken(self, running: RunningAttempt, place: str) -> bool:
        """Seat an attempt on the slot that is known by its label alone; False if it has slots already."""
        if running.slots:
            return False
        self.slot_table.take_from_line(running, find_slots(self.slot_table, place))
        running.taken_by = place
        return True

    def _on_ended(self, report: Ended, now: float) -> None:
        running = self.slot_table.running.get(report.key)
        if running is None:
            return
        # SIGKILL never leads to a status of 0: that one had succeeded before we killed it. What was ended
        # for a job that had ended by itself says nothing about the job.
        spared = bool(report.leftovers) or (report.status == 0 and not running.asked_to_end)
        if running.is_preempted and not report.leftovers:
            outcome = Outcome(
                event=Event.PREEMPT, status=report.status, reason=running.killed_because
            )
        else:
            ours = None if spared else running.killed_because
            outcome = judge(report.status, killed_because=ours)
        if len(running.slots) != 1:
            self._end(running, outcome, report)
            return
        place = self.slot_table.places[running.slots[0].index]
        if running.started_at_us is not None:
            place.learn((report.at_us - running.started_at_us) / 1e6)
        self._end(running, outcome, report)
        if place.current is not None:
            place.current.begun = now

    def _on_refused(self, report: Refused, now: float) -> None:
        if self._rules.outlived:
            self._ended_keys.append(report.key)
        running = self.slot_table.running.get(report.key)
        if running is None:
            return
        if report.errno in _PASSING:
            self._paused_until = now + _PAUSE_S
            space = "free some space; " if report.errno in _NO_SPACE else ""
            self.tell_once(f"cannot start commands for now ({report.reason}): {space}trying again")
            self._take_back(running)
            return
        lacks = report.errno == errno.ENOENT and not self.slot_table.is_own(running.where)
        if lacks and self.retry_policy.go_elsewhere(running, report.reason):
            self.tell_once(f"{report.reason}: jobs that need it run elsewhere")
            self._take_back(running)
            return
        reason = f"could not start: {report.reason}"
        self._end(running, Outcome(event=Event.FAIL, reason=reason), None)

    def _on_revoked(self, report: Revoked) -> None:
        running = self.slot_table.running.get(report.key)
        if running is not None:
            self._take_back(running)

    def _take_back(self, running: RunningAttempt) -> None:
        """An attempt never began: its job waits again, unless it was to be ended."""
        ours = running.killed_because is not None and not running.is_preempted
        if not ours or (self.draining and not running.asked_to_end):
            self._go_round_again(running, revoked=True)
        else:
            self._end(running, Outcome(event=Event.KILL, reason=running.killed_because), None)

    def _on_lost(self, report: Lost) -> None:
        self._ended_keys.append(report.key)
        running = self.slot_table.running.get(report.key)
        if running is not None:
            running.cut_off = report.cut_off
            self._end(running, Outcome(event=Event.LOSE, reason=report.reason), None)

    def _on_synced(self, report: Synced) -> None:
        """The executor has told all it knows: what it does not know never began, or is lost."""
        for running in list(self.slot_table.running.values()):
            if report.node != (running.where if running.where != self.slot_table.head else ""):
                continue
            if running.key in report.keys:
                running.adopted = True
            elif running.pid is None:
                self._take_back(running)
            else:
                reason = "nobody knows what became of it"
                self._end(running, Outcome(event=Event.LOSE, reason=reason), None)
        self.slot_table.spread_adopted()
        self._offered = []
        self.warm_status.forget()
        if report.fresh:
            self.gpu_leases.forget(report.node or self.slot_table.head)

    def _end(self, running: RunningAttempt, outcome: Outcome, ended: Ended | None) -> None:
        usage = _usage_of(ended)
        job = running.attempt.job
        failure = self.retry_policy.examine(running, outcome) if outcome.status else None
        use = None if self.gpu_monitor is None else self.gpu_monitor.on_end(running)
        verdict = self._judge_room(running, failure, use)
        if failure is not None:
            why = failure.reason if verdict is None else f"{failure.reason}; {verdict.why}"
            outcome = Outcome(event=outcome.event, status=outcome.status, reason=why)
        outcome = self._with_leftovers(job, outcome, ended)
        begun = running.pid, running.started_at_us, running.taken_by
        self._jobs.end(job, outcome, usage, *begun)
        if failure is not None:
            self._jobs.note_failure(job, failure.kind.value)
        if use is not None:
            self._jobs.note_gpu_use(job, use)
        if self._mps is not None:
            self._mps.leave(running, self._clock())
        again = (
            Again.NO if outcome.is_success else self.retry_policy.decide(running, outcome, failure)
        )
        if verdict is not None:
            again = verdict.again or again
        preempted = outcome.event is Event.PREEMPT
        retried = again is not Again.NO and (preempted or not self.draining)
        if retried:
            self._jobs.retry(job)
            if again is Again.UNCOUNTED:
                running.entry.tries -= 1
            self._go_round_again(running, revoked=False)
            if again is Again.UNCOUNTED:
                behind = running.ending is Ending.PREEMPT
                self.queue.on_preempted(job, behind=preempted and behind)
            else:
                self.queue.back_off(running.entry, job)
            if failure is not None:
                self.retry_policy.carry_out(running, failure, usage.max_rss_kb)
        else:
            self.slot_table.leave(running)
            self.retry_policy.forget(job)
            self.tally.add(outcome.event)
            self.queue.on_over(job)
            if outcome.event is not Event.SUCCEED:
                self._heed_failure()
        if self.sharing is not None:
            self.sharing.leave(running, outcome, use, is_over=not retried)
        self._listener.on_end(running, outcome, ended, retried)

    def _with_leftovers(self, job: int, outcome: Outcome, ended: Ended | None) -> Outcome:
        """Add to the reason what a job left behind; tell it too, once for the same processes."""
        if ended is None or not (ended.leftovers or ended.stuck):
            return outcome
        note = describe_leftovers(ended.leftovers, ended.stuck) or ""
        if note not in self._told:
            self._told.add(note)
            self._listener.on_notice(f"job {job}: {note}")
        reason = f"{outcome.reason}; {note}" if outcome.reason else note
        return Outcome(event=outcome.event, status=outcome.status, reason=reason)

    def _judge_room(
        self, running: RunningAttempt, failure: Failure | None, use: AttemptUse | None
    ) -> Verdict | None:
        """What becomes of a job for which a GPU's memory did not suffice; None for all others."""
        if self.sharing is None or failure is None:
            return None
        if failure.is_mute:
            return self.sharing.judge_mute(running)
        if failure.remedy is not Remedy.MORE_ROOM:
            return None
        verdict = self.sharing.judge_oom(running, failure, use)
        if verdict is not None and verdict.is_elsewhere:
            self.retry_policy.avoid(running)
        return verdict

    def _heed_failure(self) -> None:
        most, tally = self._rules.max_failures, self.tally
        if (
            most is not None
            and not self.draining
            and tally.failed + tally.killed + tally.lost >= most
        ):
            what = "a command failed" if most == 1 else f"{most} commands failed"
            option = "--fail-fast" if most == 1 else "--max-failures"
            self._listener.on_notice(f"{what}: starting no more ({option})")
            self.drain()

    def _go_round_again(self, running: RunningAttempt, *, revoked: bool) -> None:
        """Let a command wait once more: after a failure, or because its attempt never began."""
        self.slot_table.leave(running)
        job, number = running.attempt.job, running.attempt.number
        if revoked and self.sharing is not None:
            self.sharing.withdraw(running)
        if revoked:
            self._jobs.revoke(job)
            running.entry.tries -= 1
            number -= 1
        self.queue.put_back(running.entry, Known(job, State.WAITING, number))

    def _reject(self) -> None:
        """Record commands that can never run as failed."""
        while self.queue.rejected:
            entry, reason = self.queue.rejected.popleft()
            attempt = self.queue.record(entry, "")
            outcome = Outcome(event=Event.FAIL, reason=reason)
            self._jobs.end(attempt.job, outcome)
            self.tally.add(Event.FAIL)
            self._heed_failure()
            self._listener.on_end(
                RunningAttempt(key=attempt.key, attempt=attempt, entry=entry, slots=()),
                outcome,
                None,
                False,
            )

    def _fill(self, now: float) -> list[Launch]:
        """Plan, and record the intent of every start before it happens."""
        takers = self.slot_table.takers() if self._looks_ahead() else []
        self._offer(takers)
        self.gpu_leases.release_closed()
        self.queue.wake()
        if self.slot_table.seats and self.sharing is not None:
            self.sharing.review(now)
        free = self._leave_to_line(self.slot_table.free())
        room = self.slot_table.room(takers) if takers and not self._line_is_closed else {}
        cpu_places = self.slot_table.free_cpu_places()
        # Of a cluster's free slots many may be kept for the same jobs as in the turn before.
        loose = len(free) - sum(slot in self._kept for slot in free) if self._kept else len(free)
        wanted = max(loose + sum(room.values()), 1) + self.retry_policy.held_back
        entries = self.queue.peek(wanted, cpu_places, DEPTH if self.slot_table.grid else 0)
        demand = Candidates(entries, self.slot_table, self.retry_policy, self.sharing)
        slots_wanted = demand.slots_wanted(enough=loose)
        self._lacks_slots = slots_wanted > loose or demand.lacks_slots(free)
        if self._lacks_slots:
            self.gpu_leases.ask(now)
        self._reject()
        if self._has_to_give_way(demand):
            self.revoke_followers()
            room = {}
        elif not (slots_wanted or self.slot_table.line):
            self.gpu_leases.release_idle()
        if not entries:
            self._needs_slot_first = False
            return []
        if not (free or room or cpu_places):
            if self._on_stuck is not None and (first := demand.first()) is not None:
                self._on_stuck(first)
            return self._join(demand, set(), now)
        made = self._plan(demand, free, room, cpu_places, now)
        if self.slot_table.grid is not None:
            self._kept = made.reserved
            # More may fit on slots that were counted as kept: it has not been read yet.
            self._turn_again = loose < len(free) and len(made.starts) >= wanted
        if made.reserved_for is not None and self._on_stuck is not None:
            self._on_stuck(demand[made.reserved_for])
        launches: list[Launch] = []
        for start in made.starts:
            launch = (
                self._claim(demand[start.job], start, now)
                if start.job not in demand.sharers
                else self._shared_slots.begin(demand, start, now)
            )
            if launch is None:
                self._turn_again = True  # no event will tell that its slot is free again
                return launches
            launches.append(launch)
        return launches + self._join(demand, {start.job for start in made.starts}, now)

    def _looks_ahead(self) -> bool:
        """Whether jobs may be claimed in advance: where one line serves all slots, in queue order."""
        return (
            self._rules.in_advance
            and not self._needs_slot_first
            and self.policy is plan
            and self.slot_table.has_one_line
        )

    def _offer(self, takers: list[SlotState]) -> None:
        """Let these places take jobs from the line; with none left, nothing waits there."""
        if not self.slot_table.line:
            self._line_is_closed = False
        indices = [place.slot.index for place in takers]
        if indices != self._offered:
            self._offered = indices
            self._executor.offer([place.slot for place in takers])
        if not takers:
            self.revoke_followers()

    def _has_to_give_way(self, demand: Candidates) -> bool:
        """Whether a job waits that comes before one of the line, which is not being taken back yet."""
        if self._line_is_closed or not self.slot_table.line:
            return False
        return demand.precedes(next(reversed(self.slot_table.line.values())))

    def _leave_to_line(self, free: list[int]) -> list[int]:
        """The slots that a plan may use: while jobs wait in line none, free slots are for those.

        If a slot is free that takes nothing from the line, the line is taken back first.
        """
        if not self.slot_table.line:
            return free
        if not {*self._offered}.issuperset(free):
            self.revoke_followers()
        return []

    def _plan(
        self, demand: Candidates, free: list[int], room: dict[int, int], cpu_places: int, now: float
    ) -> Plan:
        nodes = self.slot_table.grid
        return self.policy(
            demand.candidates,
            free=free,
            busy=self.slot_table.busy() if nodes is None else Later(self.slot_table.busy),
            room=room,
            cpu_places=cpu_places,
            now=now,
            nodes=nodes,
        )

    def _join(self, demand: Candidates, begun: set[int], now: float) -> list[Launch]:
        """Let jobs start on GPUs that others use, as far as they share and there is room."""
        if not (demand.sharers or self.slot_table.seats):
            return []
        launches, complete = self._shared_slots.join(demand, begun, now)
        self._turn_again = self._turn_again or not complete
        return launches

    def _claim(self, entry: QueueEntry, start: Start, now: float) -> Launch | None:
        running = self._record_claim(entry, start, now)
        attempt, node = running.attempt, running.node
        if running.in_line and entry.request.options.mps and self._mps is not None:
            self._needs_slot_first = True
            self._take_back(running)
            return None
        try:
            order = self._prepare(attempt, entry)
        except OSError as error:
            text = error.strerror or str(error)
            self._on_refused(Refused(running.key, error.errno or 0, text), now)
            return None
        running.log, running.trace = order.log, order.trace
        if (story := order.trace or order.log) is not None:
            running.log_since = size_of(story)
            if running.log_since:
                self._jobs.note_log_since(attempt.job, running.log_since)
        if order.cold is not None:
            self.warm_status.on_cold(attempt.job, order.cold)
        argv, env = order.argv, order.env
        if self._mps is not None and self.retry_policy.wants_mps(running):
            argv = self._mps.serve(running, argv)
            if order.warm is not None:  # its words are not run through another program
                env = {**(env or {}), **self._mps.variables(running)}
        self._listener.on_launch(running)
        return Launch(
            running.key,
            () if running.in_line else start.slots,
            argv,
            order.log,
            order.context,
            env,
            order.warm,
            node,
            order.transfer,
            running.in_line,
        )

    def _record_claim(self, entry: QueueEntry, start: Start, now: float) -> RunningAttempt:
        """Record the intent to start a job, and put its attempt on its slots or into the line."""
        slots = tuple([self.slot_table.places[index].slot for index in start.slots])
        node = slots[0].node if slots else self.slot_table.node_without_gpu(entry.candidate)
        label = "" if start.in_advance else label_of(slots, node)
        attempt = self.queue.claim(entry, label)
        running = RunningAttempt(
            key=attempt.key, attempt=attempt, entry=entry, slots=(), begun=now, node=node
        )
        if start.in_advance:
            self.slot_table.line_up(running)
        else:
            running.slots = slots
            self.slot_table.seat(running)
        return running

    def _next_due(self, now: float) -> float:
        """The moment of the next promise that no event will remind us of."""
        if (self._turn_again or self.queue.unfinished) and not self.draining:
            return now
        due = self._paused_until if self._paused_until > now else _NEVER
        due = min(due, self.slot_table.deadlines.next())
        if self.slot_table.line and not self._line_is_closed:
            due = min([due, *self._turning_long()])
        if self._lacks_slots:
            due = min(due, self.gpu_leases.ask_again_at())
        if self.sharing is not None and (review_at := self.sharing.due_at()) is not None:
            due = min(due, review_at)
        space_due = self.retry_policy.due_s(now)
        if space_due is not None:
            due = min(due, space_due)
        delay_s = self.queue.due_s()
        return due if delay_s is None else min(due, now + delay_s)

    def _enforce_limits(self, now: float) -> None:
        """End what is over time, and let slots whose job turned out long take no more from the line."""
        for running in self.slot_table.deadlines.take_due(now):
            self.termination.check_deadline(running, now)
        if self.slot_table.line:
            for place in map(self.slot_table.places.__getitem__, self._offered):
                if place.current is not None and now >= place.current.begun + QUICK_S:
                    place.ahead = 0

    def _turning_long(self) -> list[float]:
        """When the jobs on slots that take from the line will have lasted too long for that."""
        return [
            place.current.begun + QUICK_S
            for place in map(self.slot_table.places.__getitem__, self._offered)
            if place.current is not None and place.ahead
        ]


def _project_of(running: RunningAttempt) -> str | None:
    return None if running.entry.facts is None else running.entry.facts.project


def _usage_of(ended: Ended | None) -> Usage:
    if ended is None:
        return Usage(time.time_ns() // 1000)
    return Usage(ended.at_us, ended.cpu_us, ended.max_rss_kb)
