"""What every supervisor does: parents all jobs, is their subreaper, journals, and kills whole trees."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from stoker import failpoints
from stoker.checkpoints import checkpoint_path
from stoker.supervisor import process_tree, reports
from stoker.supervisor.claimed_ahead import AheadLine, SharedLine, WaitingOrder
from stoker.supervisor.journal import (
    Ending,
    Journal,
    Refusal,
    Start,
    end_line,
    exit_line,
    refuse_line,
)
from stoker.supervisor.lease_check import LeaseCheck
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.messages import (
    AheadOrder,
    DefineContext,
    DefinePlace,
    Finish,
    HoldPlace,
    KillAttempt,
    OfferPlaces,
    Order,
    ReleasePlace,
    RevokeAttempt,
    SignalAttempt,
    StartAhead,
    StartAttempt,
)
from stoker.supervisor.process_tree import TICKS_PER_S
from stoker.supervisor.protocol import ProtocolServer
from stoker.supervisor.reaper import Reaper
from stoker.supervisor.signals import wake_on_child
from stoker.supervisor.slot_queues import (
    Attempt,
    AttemptContext,
    Leases,
    SlotQueue,
    bytes_env,
)
from stoker.supervisor.spawn import open_log, reason_of, spawn_process

if TYPE_CHECKING:
    from stoker.supervisor.worker_pool import WorkerPool
    from stoker.warm.messages import ForkRequest

_START_REPORT_DELAY_S = 0.02
_TOUCH_PERIOD_S = 3600.0


class Supervisor(Reaper):
    """All state of the process, and one method per order; subclasses add whom it serves, and until when."""

    apart: ClassVar[dict[str, Any]] = {"setsid": True}  # what tells a job's processes from others'

    def __init__(self) -> None:
        super().__init__()
        self.poll = select.epoll()
        self.wake = wake_on_child()
        self.poll.register(self.wake, select.EPOLLIN)
        self.wire = ProtocolServer(self.poll)
        self.reports = self.wire.reports
        self.tell = self.wire.tell
        self.journal = Journal()
        self.cookie = b""
        self.cwd = ""
        self.contexts: dict[int, AttemptContext] = {}
        self.places: dict[int, SlotQueue] = {}
        self.composites: list[SlotQueue] = []
        self.occupied: set[SlotQueue] = set()
        self.line: AheadLine | SharedLine = AheadLine()
        self.takers: set[SlotQueue] = set()
        self.leases = Leases()
        self.lease_check = LeaseCheck(self.leases, self.places, self.tell)
        self.worker_pool: WorkerPool | None = None  # once something is to be started warm
        self.touch_at = time.monotonic() + _TOUCH_PERIOD_S
        self.finishing = False
        self.handlers: dict[type[Order], Callable[[Any], None]] = {
            DefineContext: self.on_context,
            DefinePlace: self.on_place,
            HoldPlace: self.on_hold,
            ReleasePlace: self.on_release,
            StartAttempt: self.on_start,
            OfferPlaces: self.on_offer,
            StartAhead: self.on_ahead,
            RevokeAttempt: self.on_revoke,
            SignalAttempt: self.on_signal,
            KillAttempt: self.on_kill,
            Finish: self.on_finish,
        }

    def look_after(self) -> None:
        """Record ends, and do what has fallen due."""
        self.reap()
        now = time.monotonic()
        if now >= self.sweep_at:
            self.sweep()
        if now >= self.touch_at:
            self.touch_at = now + _TOUCH_PERIOD_S
            self.leases.touch()
        if now >= self.lease_check.due_at():
            self.confirm_leases()

    def is_done(self) -> bool:
        """Whether nothing is left, or only what cannot even be killed (another user's, or stuck)."""
        if self.leftovers.waiting:
            return False
        left = self.running.keys() | self.strays()
        given_up = time.monotonic() - 2 * LEFTOVER_GRACE_S
        return all(self.orphans.get(pid, float("inf")) < given_up for pid in left)

    def patience(self) -> float:
        """How long to wait for the next event before a promise falls due."""
        if self.reports:
            return _START_REPORT_DELAY_S
        due = min(self.sweep_at, self.touch_at, self.lease_check.due_at())
        return max(0.0, due - time.monotonic())

    def carry_out(self, orders: list[Order]) -> None:
        """Do what the client asks for."""
        for order in orders:
            self.handlers[type(order)](order)

    def flush(self, late: bool = False) -> None:
        """Report; a start waits a moment for company, which spares very short jobs a report of their own."""
        if failpoints.is_armed and not self.journal.is_written:
            failpoints.reach("supervisor-before-journal")
        self.journal.flush()
        if failpoints.is_armed and self.reports:
            failpoints.reach("supervisor-before-report")
        self.wire.flush(late)

    def take_name(self, name: str) -> None:
        """Sign cookies with a name that is unique on this host."""
        self.name = name
        outer = os.environ.get(process_tree.COOKIE)
        self.cookie = (f"{outer}/{name}:" if outer else f"{name}:").encode()
        self.leftovers.prefix = f"{name}:"

    def on_context(self, order: DefineContext) -> None:
        """Remember what many starts share."""
        order.env.pop(process_tree.MARKER, None)
        self.contexts[order.number] = AttemptContext(bytes_env(order.env), order.cwd, order.shell)

    def on_place(self, order: DefinePlace) -> None:
        """Remember a set of GPUs."""
        parts = None if order.parts is None else tuple(self.places[part] for part in order.parts)
        place = SlotQueue(bytes_env(order.env), list(order.keys), parts, order.number)
        self.places[order.number] = place
        if parts:
            self.composites.append(place)
            self.leases.fit([place])

    def on_hold(self, order: HoldPlace) -> None:
        """Take the leases of a place: all of them or none."""
        number = order.number
        missing = self.leases.take(self.places[number].keys, self.name)
        failpoints.reach("supervisor-leased")
        if missing is None:
            self.leases.fit(self.places.values())
            self.lease_check.grant(number)
            self.tell(reports.held(number))
        else:
            self.tell(reports.unheld(number, missing.key, missing.reason))

    def on_release(self, order: ReleasePlace) -> None:
        """Give back the named leases of a place."""
        self.lease_check.withdraw(order.number)
        self.leases.release(order.keys)
        failpoints.reach("supervisor-released")
        self.leases.fit(self.places.values())
        self.tell(reports.released(order.number))

    def on_start(self, order: StartAttempt) -> None:
        """Start an attempt: now, or when those before it on its place have ended."""
        place = self.places[order.place]
        self.queue_order(place, order, self.contexts[order.context], taken=False)
        self.start_next(place)

    def queue_order(
        self,
        place: SlotQueue,
        order: StartAttempt | AheadOrder,
        context: AttemptContext,
        taken: bool,
    ) -> None:
        """Let an attempt start next on a place."""
        env = None if order.env is None else bytes_env(order.env)
        warm = None if order.warm is None else _fork_request(order.warm)
        place.queue.append(
            Attempt(order.key, context, place, order.argv, order.log, env, warm, taken)
        )

    def on_offer(self, order: OfferPlaces) -> None:
        """Let these places take attempts from the line; each comes with its label."""
        self.takers = {self.places[number] for number, _label in order.places}
        for number, label in order.places:
            self.places[number].name(label)
        self.fill_takers()

    def on_ahead(self, ahead: StartAhead) -> None:
        """Put attempts into the line, in their order."""
        for order in ahead.orders:
            self.line.put(WaitingOrder(order, self.contexts[order.context]))
        self.fill_takers()

    def fill_takers(self) -> None:
        """Let vacant places take from the line."""
        for place in self.takers - self.occupied:
            self.start_next(place)

    def take_ahead(self, place: SlotQueue) -> bool:
        """Move the first attempt of the line to a vacant place; False if the place gets none now."""
        waiting = self.line.take(place) if place in self.takers else None
        if waiting is None:
            return False
        self.queue_order(place, waiting.order, waiting.context, taken=True)
        return True

    def on_revoke(self, order: RevokeAttempt) -> None:
        """Take an attempt back, unless it has started."""
        self.revoke(order.key)

    def revoke(self, key: str) -> None:
        """Take an attempt back, unless it has started."""
        if self.line.remove(key):
            self.tell(reports.revoked(key))
            return
        for place in self.places.values():
            for attempt in place.queue:
                if attempt.key == key:
                    place.queue.remove(attempt)
                    self.tell(reports.revoked(key))
                    return
        waiting = self.worker_pool.revoke(key) if self.worker_pool is not None else None
        if waiting is not None:
            self.tell(reports.revoked(key))
            self.vacate(waiting.place)

    def on_finish(self, _order: Finish) -> None:
        """No more jobs will come: end when the last process has, or its grace is over."""
        self.finishing = True
        self.sweep_at = 0.0
        strays = self.strays()
        if strays:
            self.tell(reports.strays(sorted(strays)))

    def start_next(self, place: SlotQueue) -> None:
        """Start the first attempt that waits for a place or in the line, if the place is free."""
        queue = place.queue
        while self.occupied.isdisjoint(place.parts) and (queue or place in self.takers):
            if place.keys and not self.lease_check.may_start(place, self.name):
                self.take_back(place)
                return
            if not (queue or self.take_ahead(place)):
                return
            attempt = queue.popleft()
            if attempt.warm is not None and self.waits_for_worker(attempt):
                continue
            try:
                where = place.word if attempt.taken else ""
                self.journal.intend(f"spawn {attempt.key} {where}.\n")
                if failpoints.is_armed:
                    failpoints.reach("supervisor-intended")
                self.spawn(attempt)
            except OSError as error:
                self.refuse(attempt, Refusal(error.errno or 0, reason_of(error)))
            except ValueError as error:  # a NUL byte in a word, or a variable without a name
                self.refuse(attempt, Refusal(errno.EINVAL, str(error)))

    def confirm_leases(self) -> None:
        """Confirm the leases, and take back what was to start on GPUs that are lost."""
        self.lease_check.confirm(self.name)
        if self.leases.lost:
            for place in list(self.places.values()):
                if not self.leases.lost.keys().isdisjoint(place.keys):
                    self.take_back(place)

    def take_back(self, place: SlotQueue) -> None:
        """Give the client back what waits to start on a place."""
        for attempt in list(place.queue):
            self.revoke(attempt.key)

    def waits_for_worker(self, attempt: Attempt) -> bool:
        """Whether an attempt must wait until it can be forked; its place is taken already."""
        if self.worker_pool is None:
            from stoker.supervisor.worker_pool import WorkerPool

            self.worker_pool = WorkerPool(self.poll, self.tell, self.resume, len(self.cookie))
        must_wait = self.worker_pool.must_wait(attempt)
        self.cwd = ""  # a worker may have been started elsewhere
        if must_wait:
            self.occupied.update(attempt.place.parts)
        return must_wait

    def resume(self, attempt: Attempt) -> None:
        """Start an attempt that has waited for its worker: that is ready, or will never be."""
        place = attempt.place
        self.occupied.difference_update(place.parts)
        place.queue.appendleft(attempt)
        self.start_next(place)

    def vacate(self, place: SlotQueue) -> None:
        """Let those start that wait for a place, or for a part of it."""
        self.occupied.difference_update(place.parts)
        for part in place.parts:
            self.start_next(part)
        for composite in self.composites:
            self.start_next(composite)

    def spawn(self, attempt: Attempt) -> Start:
        """Make a process of an attempt whose intent is on record; OSError if it cannot be."""
        context, place = attempt.context, attempt.place
        key = attempt.key.encode()
        env = context.environment(place).copy()
        if attempt.env is not None:
            env.update(attempt.env)
        env[b"STOKER_JOB_ID"], _, env[b"STOKER_ATTEMPT"] = key.partition(b".")
        env[process_tree.COOKIE_BYTES] = self.cookie + key
        if (checkpoints := env.get(b"STOKER_CHECKPOINTS")) is not None:
            path = checkpoint_path(int(env[b"STOKER_JOB_ID"]))
            env[b"STOKER_CHECKPOINT_DIR"] = checkpoints + b"/" + path.encode("ascii")
        actions = place.lease_actions
        log_fd = -1
        try:
            if context.cwd != self.cwd:
                os.chdir(context.cwd)
                self.cwd = context.cwd
            if attempt.log is not None:
                log_fd = open_log(attempt.log)
                actions = [
                    (os.POSIX_SPAWN_DUP2, log_fd, 1),
                    (os.POSIX_SPAWN_DUP2, log_fd, 2),
                    *actions,
                ]
            ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
            at_us = time.time_ns() // 1000
            if attempt.warm is None:
                pid = spawn_process(attempt.argv, env, actions, context.shell, self.apart)
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
        self.occupied.update(place.parts)
        self.journal.note(f"start {attempt.key} {pid} {ticks} {until} {at_us} .\n")
        taken = place.as_taken if attempt.taken else ""
        self.reports.append(reports.started(attempt.key, pid, at_us, ticks / TICKS_PER_S, taken))
        return Start(pid, ticks, until, at_us)

    def fork(
        self,
        attempt: Attempt,
        env: dict[bytes, bytes],
        log_fd: int,
        actions: list[tuple[int, int, int]],
    ) -> int:
        """Have an attempt forked by its worker, or start it as any other if that cannot be."""
        from stoker.supervisor.worker_pool import NoWarmStartError

        assert self.worker_pool is not None
        leases = [fd for _action, fd, _target in attempt.place.lease_actions]
        try:
            return self.worker_pool.fork(attempt, env, log_fd, leases)
        except NoWarmStartError as error:
            self.tell(reports.cold(attempt.key, str(error)))
            return spawn_process(attempt.argv, env, actions, attempt.context.shell, self.apart)

    def refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        """An attempt cannot be started."""
        failpoints.reach("supervisor-before-refusal")
        self.journal.note(refuse_line(attempt.key, refusal))
        self.tell(reports.refused(attempt.key, refusal.errno, refusal.reason))

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """An attempt is over: its first process has ended, and nothing else of it runs."""
        key, place = attempt.key, attempt.place
        self.note_end(key, ending)
        del self.pids[key]
        self.kill_at.pop(key, None)
        self.vacate(place)
        # While there is more to do, the client need not be woken for this end alone.
        if not place.queue and len(self.line) <= len(self.takers):
            self.wire.urgent = True
        self.sweep_soon()
        if self.wire.is_overdue():  # on a busy machine there may always be one more
            self.flush()

    def note_end(self, key: str, ending: Ending) -> None:
        """Put an end into the journal, and report it."""
        self.journal.note(end_line(key, ending))
        self.reports.append(reports.ended(key, ending))

    def note_exit(self, key: str, ending: Ending) -> None:
        """Put the end of an attempt's first process into the journal, while others of its processes run."""
        self.journal.note(exit_line(key, ending))

    def slay_all(self) -> None:
        """Kill every tree: what loses its parent becomes our child, so the loop ends with none left.

        Unless something cannot be killed: another user's, by sudo, or stuck in the kernel.
        """
        self.takers.clear()  # what waits in line is not to start in place of what is killed
        for key in self.pids:
            self.strike(key)
        for place in self.places.values():
            place.queue.clear()
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
            self.conclude(self.leftovers.waiting.popitem()[1])


def _fork_request(fields: Sequence[Any]) -> ForkRequest:
    from stoker.warm.messages import ForkRequest  # late: most supervisors have no use for it

    return ForkRequest(*fields)
