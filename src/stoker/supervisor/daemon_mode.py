"""Supervisor of a daemon. It outlives its clients, and jobs outlive it.

It serves one client after another. A new client first gets a report of each attempt that runs and of each
end that no client has acknowledged. Without a client and without jobs, the process ends; the journal stays.
"""

from __future__ import annotations

import contextlib
import enum
import gc
import os
import select
import socket
import sys
import time

import stoker
from stoker import failpoints
from stoker.supervisor import messages, process_tree, reports, unix_sockets
from stoker.supervisor.attempt_records import RememberingSupervisor
from stoker.supervisor.exit_file import ExitReader
from stoker.supervisor.exit_recorder import fork_supervisor
from stoker.supervisor.journal import Ending, Loss, Record, Refusal
from stoker.supervisor.launcher import start_lease_watchdog
from stoker.supervisor.lease_file import NODE_REASONS, LeaseFile
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.phase import Phase
from stoker.supervisor.scheduling_latency import request_short_slices
from stoker.supervisor.shell_watchdog import ShellWatchdog
from stoker.supervisor.signals import ignore_signals
from stoker.supervisor.slot_queues import Attempt

_READY_FD = 3
_FIRST_CLIENT_WITHIN_S = 30.0


class ClientState(enum.Enum):
    """Whether the daemon is connected."""

    EXPECTED = enum.auto()  # the first one, until `expect_until`
    CONNECTED = enum.auto()
    GONE = enum.auto()


class DaemonSupervisor(RememberingSupervisor):
    """Serves clients one after another.

    `claimed` are the GPUs that the client holds, `detached` those that the attempts of earlier clients need,
    and `disowned` the attempts that the client does not know. `reserved` are the GPUs that are kept until a
    time of the boot clock, also when the client is gone.
    """

    def __init__(self, name: str, boot: str, lease_file: LeaseFile | None = None) -> None:
        super().__init__(name, boot, lease_file)
        self.claimed: set[str] = set()
        self.detached: dict[str, list[str]] = {}
        self.disowned: set[str] = set()
        self.reserved: dict[str, float] = {}
        self.listener: socket.socket | None = None
        self.client = ClientState.EXPECTED
        self.client_fd = -1
        self.is_fresh = True  # no client has synced yet
        self.expect_until = time.monotonic() + _FIRST_CLIENT_WITHIN_S
        self.handlers |= {
            messages.Sync: self.on_sync,
            messages.Acknowledge: self.on_acknowledge,
            messages.ForgetContext: self.on_forget,
            messages.LimitAttempt: self.on_limit,
            messages.StopSupervisor: self.on_stop,
            messages.CutAttempt: lambda order: self.cut(order.key, order.reason),
            messages.Disown: self.on_disown,
            messages.ReserveLeases: self.on_reserve,
        }

    def serve(self, listener: socket.socket) -> None:
        """Serve until stopped, or until there is no client and no job."""
        self.listener = listener
        listener.setblocking(False)
        self.poll.register(listener.fileno(), select.EPOLLIN)
        while not (self.phase is Phase.STOPPING or self.is_unneeded()):
            events = self.poll.poll(self.poll_timeout_s())
            for fd, _event in events:
                self.on_event(fd)
            self.do_due_work()
            if self.phase is Phase.FINISHING and self.is_idle():
                self.phase = Phase.SERVING
                self.report(reports.finished())
            self.flush(late=not events)
            if self.journal.size > self.compact_bytes:
                self.compact()
        if self.worker_pool is not None:
            self.worker_pool.close()
        self.journal.flush()
        self.protocol.flush_all(timeout_s=LEFTOVER_GRACE_S)

    def on_event(self, fd: int) -> None:
        """Handle an event of a descriptor."""
        if fd == self.wake:
            os.read(self.wake, 4096)
        elif (key := self.orphan_watch.key_of(fd)) is not None:
            self.end_orphan(key)
        elif self.worker_pool is not None and fd in self.worker_pool:
            self.worker_pool.receive(fd)
        elif self.listener is not None and fd == self.listener.fileno():
            self.accept_client(self.listener)
        elif self.client is ClientState.CONNECTED:
            self.receive_orders(is_dead=fd == self.client_fd)

    def poll_timeout_s(self) -> float:
        """Return how long to wait for events until the next work falls due."""
        timeout_s = super().poll_timeout_s()
        left_s = self.left_s()
        if left_s is not None:
            timeout_s = min(timeout_s, left_s)
        if self.reserved:
            timeout_s = max(0.0, min(timeout_s, min(self.reserved.values()) - boot_clock_s()))
        if self.client is ClientState.EXPECTED:
            return max(0.0, min(timeout_s, self.expect_until - time.monotonic()))
        return timeout_s

    def is_idle(self) -> bool:
        """Whether no process of any attempt is left."""
        return not (self.pids or self.pending_kills or self.orphan_watch) and self.is_done()

    def is_unneeded(self) -> bool:
        """Whether there is no client, no job and no reserved GPU, and everything is in the journal."""
        if self.client is ClientState.CONNECTED or self.pids or not self.journal.is_written:
            return False
        if self.reserved.keys() & self.leases.held.keys():
            return False
        if self.client is ClientState.EXPECTED and time.monotonic() < self.expect_until:
            return False
        return self.is_idle()

    def accept_client(self, listener: socket.socket) -> None:
        """Accept a client of this user, and no other client until it is gone."""
        try:
            client, _address = listener.accept()
        except OSError:  # the client is gone again, or no descriptor is left
            time.sleep(0.01)
            return
        peer = unix_sockets.peer_of(client)
        if peer.uid != os.getuid():
            client.close()
            return
        self.poll.unregister(listener.fileno())
        self.client = ClientState.CONNECTED
        failpoints.reach("supervisor-welcomed")
        self.protocol.attach(client)
        # A client that is gone, or in another pid namespace, is noticed by its end-of-file.
        with contextlib.suppress(OSError):
            self.client_fd = os.pidfd_open(peer.pid)
            self.poll.register(self.client_fd, select.EPOLLIN)
        self.protocol.answer(
            reports.hello(messages.PROTOCOL, os.getpid(), self.name, stoker.__version__)
        )

    def receive_orders(self, is_dead: bool) -> None:
        """Execute the orders that have arrived; of a client that has died all of them, and then drop it."""
        try:
            orders = self.protocol.drain() if is_dead else self.protocol.receive()
            self.execute(orders or [])
        except Exception:  # no order of a client may end the supervisor of running jobs
            import traceback

            traceback.print_exc()
            orders = None
        if orders is None or is_dead:
            self.drop_client()

    def drop_client(self) -> None:
        """Go on without a client. Running attempts go on; waiting ones are forgotten."""
        self.protocol.detach()
        failpoints.reach("supervisor-client-lost")
        if self.client_fd >= 0:
            self.poll.unregister(self.client_fd)
            os.close(self.client_fd)
            self.client_fd = -1
        self.client = ClientState.GONE
        self.forget_orders()
        if self.listener is not None:
            self.poll.register(self.listener.fileno(), select.EPOLLIN)

    def forget_orders(self) -> None:
        """Forget the definitions and waiting attempts of the client. Running attempts keep their leases."""
        left = [each.attempt for each in self.leftovers.waiting.values()]
        for attempt in [*self.running.values(), *left]:
            self.detached.setdefault(attempt.key, attempt.slot.keys)
        for slot in self.slots.values():
            slot.queue.clear()
        if self.worker_pool is not None:
            self.worker_pool.forget_waiting()
        self.ahead.clear()
        self.offered.clear()
        self.slots.clear()
        self.composites.clear()
        self.occupied.clear()
        self.contexts.clear()
        self.claimed.clear()
        self.leases.forget_client()
        self.ordered.clear()
        if self.phase is Phase.FINISHING:
            self.phase = Phase.SERVING
        self.release_unused()
        gc.collect()  # a slot refers to itself

    def release_unused(self) -> None:
        """Release the leases that neither the client nor a job of an earlier client needs."""
        used = self.claimed.union(self.reserved, *self.detached.values())
        self.leases.release(self.leases.held.keys() - used)

    def do_due_work(self) -> None:
        """Record ends, and release GPUs whose reservation has ended."""
        super().do_due_work()
        if self.reserved:
            now = boot_clock_s()
            left = {key: until for key, until in self.reserved.items() if until > now}
            if len(left) < len(self.reserved):
                self.reserved = left
                self.release_unused()

    def on_reserve(self, order: messages.ReserveLeases) -> None:
        """Keep these leases when the client is gone, and no longer those of the order before."""
        self.reserved = order.until_s
        self.release_unused()

    def on_sync(self, _order: messages.Sync) -> None:
        """Begin with a new client: report every attempt on record."""
        self.forget_orders()
        self.disowned.clear()
        self.protocol.open()
        for key, record in self.records.items():
            self.report_record(key, record)
        self.report(reports.synced(list(self.records), self.is_fresh))
        if self.worker_pool is not None:
            self.worker_pool.report_all()
        self.is_fresh = False
        failpoints.reach("supervisor-synced")

    def report_record(self, key: str, record: Record) -> None:
        """Report all that is known about an attempt."""
        if record.pid is not None and record.ticks is not None and record.at_us is not None:
            at_s = record.ticks / process_tree.TICKS_PER_S
            taken = "" if record.slot is None else reports.taken_by(None, record.slot)
            self.reports.append(reports.started(key, record.pid, record.at_us, at_s, taken))
        elif record.slot is not None:
            self.report(reports.placed(key, record.slot))
        match record.outcome:
            case Ending():
                self.reports.append(reports.ended(key, record.outcome))
            case Refusal(errno, reason):
                self.report(reports.refused(key, errno, reason))
            case Loss(reason):
                self.report(reports.lost(key, reason, reason in NODE_REASONS))

    def on_acknowledge(self, order: messages.Acknowledge) -> None:
        """Forget attempts whose ends the client has recorded."""
        for key in order.keys:
            record = self.records.get(key)
            if record is not None and record.outcome is not None:
                del self.records[key]
                self.journal.note(f"ack {key} .\n")
        if failpoints.is_armed:
            failpoints.reach("supervisor-acknowledged")

    def on_forget(self, order: messages.ForgetContext) -> None:
        """Forget a context; attempts that wait in it keep it."""
        self.contexts.pop(order.number, None)

    def on_stop(self, order: messages.StopSupervisor) -> None:
        """End this process: after killing everything, or else only if nothing runs."""
        if order.kill:
            self.kill_all()
        failpoints.reach("supervisor-slain")
        if order.kill or self.is_idle():
            self.phase = Phase.STOPPING
        else:
            self.protocol.answer(reports.busy())

    def on_disown(self, order: messages.Disown) -> None:
        """Keep the GPUs of these attempts while they run: the client has no record of them."""
        self.disowned = set(order.keys)

    def on_hold(self, order: messages.HoldSlot) -> None:
        """Take the leases of a slot, unless a job that the client does not know runs there."""
        keys = self.slots[order.number].keys
        for attempt in self.disowned & self.detached.keys():
            if shared := set(keys).intersection(self.detached[attempt]):
                self.report(reports.unheld(order.number, min(shared), None, attempt))
                return
        before = self.leases.gathered.get(order.number, ())
        super().on_hold(order)
        self.claimed.difference_update(key for key in before if key not in self.leases.held)
        if self.leases.held.keys() >= set(keys):
            self.claimed.update(keys)
        else:
            self.claimed.update(self.leases.gathered.get(order.number, ()))

    def on_release(self, order: messages.ReleaseSlot) -> None:
        """Release the named leases of a slot, except those that a job of an earlier client needs."""
        self.claimed.difference_update(order.keys)
        used = set().union(*self.detached.values())
        super().on_release(order._replace(keys=[key for key in order.keys if key not in used]))

    def is_new(self, key: str) -> bool:
        """Whether an attempt has neither been started nor waits for its start."""
        return key not in self.records and key not in self.ordered

    def on_start(self, order: messages.StartAttempt) -> None:
        """Start an attempt, unless it was ordered before."""
        if self.is_new(order.key):
            self.ordered.add(order.key)
            super().on_start(order)

    def on_ahead(self, ahead: messages.StartAhead) -> None:
        """Append attempts without a slot to `ahead`, except those that were ordered before."""
        fresh = [order for order in ahead.orders if self.is_new(order.key)]
        self.ordered.update(order.key for order in fresh)
        super().on_ahead(messages.StartAhead(fresh, ahead.first))

    def revoke(self, key: str) -> None:
        """Take an attempt back, unless it has started. It may be ordered again."""
        super().revoke(key)
        self.ordered.discard(key)

    def on_move(self, order: messages.MoveAttempt) -> None:
        """Move an attempt. The leases that only it needed are released when it is suspended."""
        super().on_move(order)
        if self.detached.pop(order.key, None):
            self.release_unused()

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """Record the end of an attempt, and release the leases that only it needed."""
        super().end(attempt, ending)
        if self.detached.pop(attempt.key, None):
            self.release_unused()


def boot_clock_s() -> float:
    """Return the time of the boot clock, which includes suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main() -> None:
    """Serve clients. The arguments are the paths of socket and journal, a name, and perhaps a lease file."""
    gc.disable()
    ignore_signals()
    os.closerange(_READY_FD + 1, 1 << 16)  # such as the leases of a job that started the daemon
    os.set_inheritable(_READY_FD, False)
    os.chdir("/")
    path, journal, name, *lease_file = sys.argv[1:]
    fork_supervisor(journal)
    process_tree.become_subreaper()
    request_short_slices()
    supervisor = DaemonSupervisor(
        name, process_tree.boot_id(), LeaseFile(lease_file[0]) if lease_file else None
    )
    try:
        contents = supervisor.journal.claim(journal)
    except BlockingIOError:
        _report_start("busy")
        return
    except OSError as error:
        _report_start(f"{journal}: {error.strerror}")
        return
    failpoints.reach("supervisor-claimed")
    supervisor.take_over(contents, ExitReader(journal))
    failpoints.reach("supervisor-taken-over")
    shell_watchdog = None
    if lease_file:
        start_lease_watchdog(lease_file[0], name)
        shell_watchdog = ShellWatchdog(lease_file[0], name)
    try:
        listener = unix_sockets.listen(path)
    except OSError as error:
        _report_start(f"{path}: {error.strerror}")
        return
    failpoints.reach("supervisor-listening")
    _report_start("ready")
    _import_the_rest()
    supervisor.serve(listener)
    failpoints.reach("supervisor-leaving")
    if shell_watchdog is not None and supervisor.is_idle():
        shell_watchdog.end()  # it would notice only some seconds later
    # Before the journal is unlocked: the next supervisor must not lose its own socket.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _import_the_rest() -> None:
    """Import what may be needed later: Stoker can be upgraded or removed while this process runs."""
    import traceback  # noqa: F401

    from stoker import accounts  # noqa: F401
    from stoker.supervisor import cgroups, memory_watch, worker_pool  # noqa: F401
    from stoker.warm import messages as warm_messages  # noqa: F401


def _report_start(text: str) -> None:
    """Report to the starter of this process, if it still runs, whether the start succeeded."""
    with contextlib.suppress(BrokenPipeError):
        os.write(_READY_FD, text.encode("utf-8", "backslashreplace"))
    os.close(_READY_FD)
