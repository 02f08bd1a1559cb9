"""Base of all supervisors: starts attempts on slots, journals them, and reports to one client."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from stoker import failpoints
from stoker.supervisor import messages, process_tree, reports
from stoker.supervisor.attempt_limits import AttemptLimits
from stoker.supervisor.claimed_ahead import AheadQueue, WaitingOrder
from stoker.supervisor.journal import (
    Ending,
    Journal,
    Refusal,
    Start,
    end_line,
    exit_line,
    refuse_line,
    spawn_lines,
)
from stoker.supervisor.leases import Leases
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.phase import Phase
from stoker.supervisor.process_tree import TICKS_PER_S
from stoker.supervisor.protocol import ProtocolServer
from stoker.supervisor.reaper import Reaper
from stoker.supervisor.rendezvous import RendezvousPorts
from stoker.supervisor.signals import wake_on_child
from stoker.supervisor.slot_queues import (
    Attempt,
    AttemptContext,
    SlotQueue,
    bytes_env,
    fork_request,
)
from stoker.supervisor.spawn import build_environment, explain_failure, open_log, spawn_process

if TYPE_CHECKING:
    from stoker.supervisor.worker_pool import WorkerPool

_START_REPORT_DELAY_S = 0.02
_TOUCH_PERIOD_S = 3600.0


class Supervisor(Reaper):
    """State of a supervisor, with one handler for each order. Subclasses add how it serves its clients."""

    isolation: ClassVar[dict[str, Any]] = {"setsid": True}  # how posix_spawn separates jobs

    def __init__(self) -> None:
        super().__init__()
        self.poll = select.epoll()
        self.wake = wake_on_child()
        self.poll.register(self.wake, select.EPOLLIN)
        self.protocol = ProtocolServer(self.poll)
        self.reports = self.protocol.reports
        self.report = self.protocol.report
        self.journal = Journal()
        self.cookie = b""
        self.cwd = ""
        self.contexts: dict[int, AttemptContext] = {}
        self.slots: dict[int, SlotQueue] = {}
        self.composites: list[SlotQueue] = []
        self.occupied: set[SlotQueue] = set()
        self.ahead = AheadQueue()
        self.offered: set[SlotQueue] = set()  # slots that may take attempts from `ahead`
        self.leases = Leases(self.slots, self.report)
        self.ports = RendezvousPorts()
        self.worker_pool: WorkerPool | None = None  # made for the first warm start
        self.limits = AttemptLimits(self.journal, self.on_over_memory)
        self.touch_at = time.monotonic() + _TOUCH_PERIOD_S
        self.phase = Phase.SERVING
        self.handlers: dict[type[messages.Order], Callable[[Any], None]] = {
            messages.DefineContext: self.on_context,
            messages.DefineSlot: self.on_slot,
            messages.HoldSlot: self.on_hold,
            messages.ReleaseSlot: self.on_release,
            messages.StartAttempt: self.on_start,
            messages.OfferSlots: self.on_offer,
            messages.StartAhead: self.on_ahead,
            messages.RevokeAttempt: lambda order: self.revoke(order.key),
            messages.MoveAttempt: self.on_move,
            messages.SignalAttempt: self.on_signal,
            messages.SignalMain: self.on_signal,
            messages.KillAttempt: lambda order: self.kill(order.key),
            messages.Finish: self.on_finish,
        }

    def set_name(self, name: str) -> None:
        """Use a name that is unique on this host for cookies and leases."""
        self.name = self.leases.owner = self.limits.name = name
        outer = os.environ.get(process_tree.COOKIE)
        self.cookie = (f"{outer}/{name}:" if outer else f"{name}:").encode()
        self.leftovers.prefix = f"{name}:"

    def do_due_work(self) -> None:
        """Record ends, and do what has fallen due."""
        self.reap()
        self.limits.enforce()
        self.renew_workers()
        now = time.monotonic()
        if now >= self.sweep_at:
            self.sweep()
        if now >= self.touch_at:
            self.touch_at = now + _TOUCH_PERIOD_S
            self.leases.touch()
        if now >= self.leases.check_due_at():
            self.check_leases()

    def poll_timeout_s(self) -> float:
        """Return how long to wait for events until the next work falls due."""
        if self.reports:
            return _START_REPORT_DELAY_S
        due = min(self.sweep_at, self.touch_at, self.leases.check_due_at())
        return max(0.0, due - time.monotonic())

    def is_done(self) -> bool:
        """Whether no process is left, except those that cannot be killed (another user's, or stuck)."""
        if self.leftovers.waiting:
            return False
        left = self.running.keys() | self.strays()
        given_up = time.monotonic() - 2 * LEFTOVER_GRACE_S
        return all(self.stray_since.get(pid, float("inf")) < given_up for pid in left)

    def execute(self, orders: list[messages.Order]) -> None:
        """Execute the orders of the client."""
        for order in orders:
            self.handlers[type(order)](order)

    def flush(self, late: bool = False) -> None:
        """Write the journal, then send reports. Reports of starts wait a moment, to be sent with others."""
        if failpoints.is_armed and not self.journal.is_written:
            failpoints.reach("supervisor-before-journal")
        self.journal.flush()
        if failpoints.is_armed and self.reports:
            failpoints.reach("supervisor-before-report")
        self.protocol.flush(late)

    def on_context(self, order: messages.DefineContext) -> None:
        """Define a context for later starts."""
        order.env.pop(process_tree.MARKER, None)
        self.contexts[order.number] = AttemptContext(bytes_env(order.env), order.cwd, order.shell)

    def on_slot(self, order: messages.DefineSlot) -> None:
        """Define a slot."""
        parts = None if order.parts is None else tuple(self.slots[part] for part in order.parts)
        slot = SlotQueue(bytes_env(order.env), list(order.keys), parts, order.number)
        self.slots[order.number] = slot
        if parts:
            self.composites.append(slot)
            self.leases.fit([slot])

    def on_hold(self, order: messages.HoldSlot) -> None:
        """Take the leases of a slot: all of them or, unless the order says to gather, none."""
        missing = self.leases.grant(order.number, gather=order.gather)
        failpoints.reach("supervisor-leased")
        if missing is None:
            self.report(reports.held(order.number))
        else:
            gathered = self.leases.gathered.get(order.number, ())
            self.report(
                reports.unheld(order.number, missing.key, missing.reason, gathered=gathered)
            )

    def on_release(self, order: messages.ReleaseSlot) -> None:
        """Release the named leases of a slot. It takes no more attempts from `ahead`."""
        self.offered.discard(slot := self.slots[order.number])
        in_use = not self.occupied.isdisjoint(slot.parts)
        self.leases.withdraw(order.number, order.keys, in_use=in_use)
        failpoints.reach("supervisor-released")
        self.report(reports.released(order.number))

    def check_leases(self) -> None:
        """Check the leases, and revoke the attempts that wait for GPUs whose leases are lost."""
        self.leases.check()
        if self.leases.lost:
            for slot in list(self.slots.values()):
                if not self.leases.lost.keys().isdisjoint(slot.keys):
                    self.revoke_waiting(slot)

    def on_start(self, order: messages.StartAttempt) -> None:
        """Start an attempt when the earlier attempts on its slot have ended."""
        slot = self.slots[order.slot]
        self.queue_order(slot, order, self.contexts[order.context], taken=False)
        self.start_next(slot)

    def queue_order(
        self,
        slot: SlotQueue,
        order: messages.StartAttempt | messages.AheadOrder,
        context: AttemptContext,
        taken: bool,
    ) -> None:
        """Append an attempt to the queue of a slot."""
        env = None if order.env is None else bytes_env(order.env)
        warm = None if order.warm is None else fork_request(order.warm)
        limits = (order.mem_bytes, order.cpus) if isinstance(order, messages.StartAttempt) else ()
        each = Attempt(order.key, context, slot, order.argv, order.log, env, warm, taken, *limits)
        slot.queue.append(each)

    def on_offer(self, order: messages.OfferSlots) -> None:
        """Let these slots, and no others, take attempts from `ahead`."""
        self.offered = {self.slots[number] for number, _label in order.slots}
        for number, label in order.slots:
            self.slots[number].set_label(label)
        self.fill_offered()

    def on_ahead(self, ahead: messages.StartAhead) -> None:
        """Append attempts without a slot to `ahead`."""
        for order in ahead.orders:
            self.ahead.put(WaitingOrder(order, self.contexts[order.context]))
        self.fill_offered()

    def fill_offered(self) -> None:
        """Let free slots take attempts from `ahead`."""
        for slot in self.offered - self.occupied:
            self.start_next(slot)

    def take_ahead(self, slot: SlotQueue) -> bool:
        """Move the first attempt of `ahead` to a free slot; False if the slot gets none now."""
        waiting = self.ahead.take(slot) if slot in self.offered else None
        if waiting is None:
            return False
        self.queue_order(slot, waiting.order, waiting.context, taken=True)
        return True

    def revoke(self, key: str) -> None:
        """Take an attempt back, unless it has started."""
        if self.ahead.remove(key):
            self.report(reports.revoked(key))
            return
        for slot in self.slots.values():
            for attempt in slot.queue:
                if attempt.key == key:
                    slot.queue.remove(attempt)
                    self.report(reports.revoked(key))
                    return
        waiting = self.worker_pool.revoke(key) if self.worker_pool is not None else None
        if waiting is not None:
            self.report(reports.revoked(key))
            self.vacate(waiting.slot)

    def on_move(self, order: messages.MoveAttempt) -> None:
        """Free the slot of a suspended attempt, or let a resumed one occupy a slot again."""
        pid = self.pids.get(order.key)
        attempt = None if pid is None else self.running.get(pid)
        if pid is None or attempt is None:
            return
        slot = SlotQueue({}, []) if order.slot is None else self.slots[order.slot]
        self.leases.take(
            slot.keys
        )  # after a crash they may be free; the driver finds out who uses the GPU
        self.running[pid] = attempt._replace(slot=slot)
        self.vacate(attempt.slot)
        self.occupied.update(slot.parts)

    def revoke_waiting(self, slot: SlotQueue) -> None:
        """Give the attempts that wait for a slot back to the client."""
        for attempt in list(slot.queue):
            self.revoke(attempt.key)

    def on_finish(self, _order: messages.Finish) -> None:
        """Report to the client when the last process has ended, or its grace is over."""
        if self.phase is Phase.SERVING:
            self.phase = Phase.FINISHING
        self.sweep_at = 0.0
        strays = self.strays()
        if strays:
            self.report(reports.strays(sorted(strays)))

    def start_next(self, slot: SlotQueue) -> None:
        """Start the first attempt that waits for a slot or in `ahead`, if the slot is free."""
        queue = slot.queue
        while self.occupied.isdisjoint(slot.parts) and (queue or slot in self.offered):
            if slot.keys and not self.leases.may_start(slot):
                self.revoke_waiting(slot)
                return
            if not (queue or self.take_ahead(slot)):
                return
            attempt = queue.popleft()
            if attempt.warm is not None and self.waits_for_worker(attempt):
                continue
            try:
                label = slot.journal_label if attempt.taken else ""
                self.journal.intend(spawn_lines(attempt.key, label, attempt.mem_bytes))
                if failpoints.is_armed:
                    failpoints.reach("supervisor-intended")
                self.spawn(attempt)
            except OSError as error:
                self.refuse(attempt, Refusal(error.errno or 0, explain_failure(error)))
            except ValueError as error:  # a NUL byte in an argument, or a variable without a name
                self.refuse(attempt, Refusal(errno.EINVAL, str(error)))

    def vacate(self, slot: SlotQueue) -> None:
        """Start attempts that wait for a slot that has become free, or for a part of it."""
        self.occupied.difference_update(slot.parts)
        for part in slot.parts:
            self.start_next(part)
        for composite in self.composites:
            self.start_next(composite)

    def waits_for_worker(self, attempt: Attempt) -> bool:
        """Whether an attempt must wait for its warm worker. If so, it occupies its slot already."""
        if self.worker_pool is None:
            from stoker.supervisor.worker_pool import WorkerPool

            self.worker_pool = WorkerPool(self.poll, self.report, self.resume, len(self.cookie))
        must_wait = self.worker_pool.must_wait(attempt)
        if must_wait:
            self.occupied.update(attempt.slot.parts)
        return must_wait

    def read_gpu_peak(self, attempt: Attempt) -> int:
        """Return the most GPU memory that an ended attempt used, by its own report; 0 if there is none."""
        if self.worker_pool is None or attempt.warm is None:
            return 0
        return self.worker_pool.job_reports.take(attempt.key)

    def renew_workers(self) -> None:
        """Let warm workers make the imports that running attempts have reported."""
        if self.worker_pool is not None and self.phase is Phase.SERVING:
            self.worker_pool.review()

    def resume(self, attempt: Attempt) -> None:
        """Start an attempt whose warm worker is ready or gone."""
        slot = attempt.slot
        self.occupied.difference_update(slot.parts)
        slot.queue.appendleft(attempt)
        self.start_next(slot)

    def spawn(self, attempt: Attempt) -> Start:
        """Start the process of an attempt whose intent is in the journal. Raises OSError if that fails."""
        context, slot = attempt.context, attempt.slot
        env = build_environment(attempt, self.cookie, self.ports, self.pids)
        actions = slot.lease_actions
        log_fd = -1
        try:
            if context.cwd != self.cwd or self.worker_pool is not None:
                os.chdir(context.cwd)
                self.cwd = context.cwd
            if attempt.log is not None:
                log_fd = open_log(attempt.log)
                outputs = [(os.POSIX_SPAWN_DUP2, log_fd, number) for number in (1, 2)]
                actions = outputs + actions
            ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
            at_us = time.time_ns() // 1000
            if attempt.warm is None:
                with self.limits.entered(attempt):
                    pid = spawn_process(attempt.argv, env, actions, context.shell, self.isolation)
            else:
                pid = self.fork(attempt, env, log_fd, actions)
        finally:
            if log_fd >= 0:
                os.close(log_fd)
        if failpoints.is_armed:
            failpoints.reach("supervisor-spawned")
        until = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
        self.running[pid] = attempt
        self.pids[attempt.key] = pid
        self.limits.begin(attempt, pid, f"{self.name}:{attempt.key}")
        self.occupied.update(slot.parts)
        self.journal.note(f"start {attempt.key} {pid} {ticks} {until} {at_us} .\n")
        taken = slot.taken_fields if attempt.taken else ""
        self.reports.append(reports.started(attempt.key, pid, at_us, ticks / TICKS_PER_S, taken))
        return Start(pid, ticks, until, at_us)

    def fork(
        self,
        attempt: Attempt,
        env: dict[bytes, bytes],
        log_fd: int,
        actions: list[tuple[int, int, int]],
    ) -> int:
        """Let the warm worker fork an attempt; if that fails, start a new process."""
        from stoker.supervisor.warm_worker import NoWarmStartError

        assert self.worker_pool is not None
        leases = [fd for _action, fd, _target in attempt.slot.lease_actions]
        try:
            return self.worker_pool.fork(attempt, env, log_fd, leases, self.limits.placer(attempt))
        except NoWarmStartError as error:
            self.report(reports.cold(attempt.key, str(error)))
        with self.limits.entered(attempt):
            return spawn_process(attempt.argv, env, actions, attempt.context.shell, self.isolation)

    def refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        """Record that an attempt cannot be started."""
        failpoints.reach("supervisor-before-refusal")
        self.limits.abandon(attempt.key)
        self.journal.note(refuse_line(attempt.key, refusal))
        self.report(reports.refused(attempt.key, *refusal))

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """Record the end of an attempt of which no process is left, and free its slot."""
        key, slot = attempt.key, attempt.slot
        if self.worker_pool is not None:
            self.renew_workers()
            self.worker_pool.forget(key)
        self.record_end(key, self.limits.conclude(key, ending))
        del self.pids[key]
        self.kill_at.pop(key, None)
        self.vacate(slot)
        # While attempts wait for slots, the client need not be woken for this end alone.
        if not slot.queue and len(self.ahead) <= len(self.offered):
            self.protocol.urgent = True
        self.sweep_soon()
        if self.protocol.is_overdue():  # on a busy machine there may always be one more end
            self.flush()

    def on_over_memory(self, key: str, _used_bytes: int) -> None:
        """Kill an attempt that uses more RAM than it may; the journal has the reason."""
        self.kill(key)

    def record_end(self, key: str, ending: Ending) -> None:
        """Record the end of an attempt in the journal, and report it."""
        self.journal.note(end_line(key, ending))
        self.reports.append(reports.ended(key, ending))

    def record_exit(self, key: str, ending: Ending) -> None:
        """Record the end of an attempt's first process, while others of its processes run."""
        self.journal.note(exit_line(key, ending))

    def kill_all(self) -> None:
        """Kill every process tree.

        A process that loses its parent becomes a child of this process, so the loop ends when no child is
        left. It gives up on processes that cannot be killed: another user's, or stuck in the kernel.
        """
        self.offered.clear()  # no waiting attempt may start on a slot that becomes free
        for key in self.pids:
            self.kill_group(key)
        for slot in self.slots.values():
            slot.queue.clear()
        if self.worker_pool is not None:
            self.worker_pool.forget_waiting()
            self.worker_pool.close()
        give_up_at = time.monotonic() + 2 * LEFTOVER_GRACE_S
        while (left := self.own_children()) and time.monotonic() < give_up_at:
            process_tree.send(left, signal.SIGKILL)
            time.sleep(0.001)
            self.reap()
        self.reap()
        while self.leftovers.waiting:
            self.end_remainder(self.leftovers.waiting.popitem()[1])
