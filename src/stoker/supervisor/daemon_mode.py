"""The supervisor of a daemon: it outlives its clients, and jobs outlive it.

It serves one client after another. To a new one it first tells what runs, and every end that no
client has acknowledged. When no client is there and nothing runs, it goes; the journal remembers.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import time

import stoker
from stoker import failpoints
from stoker.supervisor import process_tree, reports, unix_sockets
from stoker.supervisor.attempt_records import RememberingSupervisor
from stoker.supervisor.journal import Ending, Record
from stoker.supervisor.launcher import start_guard
from stoker.supervisor.lease_file import PARTING, LeaseFile
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.messages import (
    PROTOCOL,
    Acknowledge,
    CutAttempt,
    Disown,
    ForgetContext,
    HoldPlace,
    ReleasePlace,
    StartAhead,
    StartAttempt,
    StopSupervisor,
    Sync,
)
from stoker.supervisor.scheduling_latency import come_first
from stoker.supervisor.signals import ignore_signals
from stoker.supervisor.slot_queues import Attempt

_READY_FD = 3
_FIRST_CLIENT_WITHIN_S = 30.0


class DaemonSupervisor(RememberingSupervisor):
    """Serves clients one after another."""

    def __init__(self, name: str, boot: str, lease_file: LeaseFile | None = None) -> None:
        super().__init__(name, boot, lease_file)
        self.claimed: set[str] = set()
        self.detached: dict[str, list[str]] = {}
        self.disowned: set[str] = set()
        self.listener: socket.socket | None = None
        self.has_client = False
        self.had_client = False
        self.client_fd = -1
        self.fresh = True
        self.stopping = False
        self.expect_until = time.monotonic() + _FIRST_CLIENT_WITHIN_S
        self.handlers |= {
            Sync: self.on_sync,
            Acknowledge: self.on_acknowledge,
            ForgetContext: self.on_forget,
            StopSupervisor: self.on_stop,
            CutAttempt: self.on_cut,
            Disown: self.on_disown,
        }

    def serve(self, listener: socket.socket) -> None:
        """Work until there is nothing to do and nobody to do it for."""
        self.listener = listener
        listener.setblocking(False)
        self.poll.register(listener.fileno(), select.EPOLLIN)
        while not (self.stopping or self.is_needless()):
            events = self.poll.poll(self.patience())
            for fd, _event in events:
                self.on_event(fd)
            self.look_after()
            if self.finishing and self.is_idle():
                self.finishing = False
                self.tell(reports.finished())
            self.flush(late=not events)
            if self.journal.size > self.compact_bytes:
                self.compact()
        if self.worker_pool is not None:
            self.worker_pool.close()
        self.journal.flush()
        self.wire.flush_all(patience_s=LEFTOVER_GRACE_S)

    def on_event(self, fd: int) -> None:
        """Something has happened to a descriptor."""
        if fd == self.wake:
            os.read(self.wake, 4096)
        elif (key := self.orphan_watch.key_of(fd)) is not None:
            self.end_orphan(key)
        elif self.worker_pool is not None and fd in self.worker_pool.by_fd:
            self.worker_pool.receive(fd)
        elif self.listener is not None and fd == self.listener.fileno():
            self.welcome(self.listener)
        elif self.has_client:
            self.hear(is_gone=fd == self.client_fd)

    def patience(self) -> float:
        """How long to wait for the next event before a promise falls due."""
        patience_s = super().patience()
        left_s = self.left_s()
        if left_s is not None:
            patience_s = min(patience_s, left_s)
        if not self.had_client:
            return max(0.0, min(patience_s, self.expect_until - time.monotonic()))
        return patience_s

    def is_idle(self) -> bool:
        """Whether nothing is left of any attempt."""
        return not (self.pids or self.doomed or self.orphan_watch) and self.is_done()

    def is_needless(self) -> bool:
        """Whether all there is to know is in the journal, and nobody is here to ask."""
        if self.has_client or self.pids or not self.journal.is_written:
            return False
        if not self.had_client and time.monotonic() < self.expect_until:
            return False
        return self.is_idle()

    def welcome(self, listener: socket.socket) -> None:
        """Let in who has connected, and nobody after them until they are gone."""
        try:
            client, _address = listener.accept()
        except OSError:  # they have gone again, or no descriptor is left
            time.sleep(0.01)
            return
        peer = unix_sockets.peer_of(client)
        if peer.uid != os.getuid():
            client.close()
            return
        self.poll.unregister(listener.fileno())
        self.has_client = self.had_client = True
        failpoints.reach("supervisor-welcomed")
        self.wire.attach(client)
        # If it is gone already, or of another pid namespace, its end-of-file will tell.
        with contextlib.suppress(OSError):
            self.client_fd = os.pidfd_open(peer.pid)
            self.poll.register(self.client_fd, select.EPOLLIN)
        self.wire.say(reports.hello(PROTOCOL, os.getpid(), self.name, stoker.__version__))

    def hear(self, is_gone: bool) -> None:
        """Carry out what the client has sent; of one that has died all of it, and then forget it."""
        try:
            orders = self.wire.drain() if is_gone else self.wire.receive()
            self.carry_out(orders or [])
        except Exception:  # whatever a client sends, jobs must not lose their supervisor for it
            import traceback

            traceback.print_exc()
            orders = None
        if orders is None or is_gone:
            self.lose_client()

    def lose_client(self) -> None:
        """Go on without: what runs goes on, what has not started does not."""
        self.wire.detach()
        failpoints.reach("supervisor-client-lost")
        if self.client_fd >= 0:
            self.poll.unregister(self.client_fd)
            os.close(self.client_fd)
            self.client_fd = -1
        self.has_client = False
        self.forget_orders()
        if self.listener is not None:
            self.poll.register(self.listener.fileno(), select.EPOLLIN)

    def forget_orders(self) -> None:
        """Forget what the client ordered and defined; what runs keeps the leases it was started with."""
        left = [each.attempt for each in self.leftovers.waiting.values()]
        for attempt in [*self.running.values(), *left]:
            self.detached.setdefault(attempt.key, attempt.place.keys)
        for place in self.places.values():
            place.queue.clear()
        if self.worker_pool is not None:
            self.worker_pool.forget_waiting()
        self.line.clear()
        self.takers.clear()
        self.places.clear()
        self.composites.clear()
        self.occupied.clear()
        self.contexts.clear()
        self.claimed.clear()
        self.lease_check.forget()
        self.ordered.clear()
        self.finishing = False
        self.release_unused()
        gc.collect()  # a place refers to itself

    def release_unused(self) -> None:
        """Give back the leases that neither the client nor a job of an earlier client needs."""
        used = self.claimed.union(*self.detached.values())
        self.leases.release(self.leases.held.keys() - used)

    def on_sync(self, _order: Sync) -> None:
        """Begin with a client that knows nothing yet: tell all there is to know."""
        self.forget_orders()
        self.disowned.clear()
        self.wire.open()
        for key, record in self.records.items():
            self.retell(key, record)
        self.tell(reports.synced(list(self.records), self.fresh))
        if self.worker_pool is not None:
            self.worker_pool.report_all()
        self.fresh = False
        failpoints.reach("supervisor-synced")

    def retell(self, key: str, record: Record) -> None:
        """Report all that is known of an attempt."""
        if record.pid is not None and record.ticks is not None and record.at_us is not None:
            at_s = record.ticks / process_tree.TICKS_PER_S
            taken = "" if record.place is None else reports.taken_by(None, record.place)
            self.reports.append(reports.started(key, record.pid, record.at_us, at_s, taken))
        elif record.place is not None:
            self.tell(reports.placed(key, record.place))
        if record.ending is not None:
            self.reports.append(reports.ended(key, record.ending))
        elif record.refusal is not None:
            self.tell(reports.refused(key, *record.refusal))
        elif record.loss is not None:
            self.tell(reports.lost(key, record.loss, record.loss in PARTING))

    def on_acknowledge(self, order: Acknowledge) -> None:
        """Forget ends that are on record elsewhere."""
        for key in order.keys:
            record = self.records.get(key)
            if record is not None and record.is_over:
                del self.records[key]
                self.journal.note(f"ack {key} .\n")
        if failpoints.is_armed:
            failpoints.reach("supervisor-acknowledged")

    def on_forget(self, order: ForgetContext) -> None:
        """Forget a context; what waits to be started in it has it still."""
        self.contexts.pop(order.number, None)

    def on_stop(self, order: StopSupervisor) -> None:
        """Go, once everything is killed, or else only if nothing is left."""
        if order.kill:
            self.slay_all()
        failpoints.reach("supervisor-slain")
        if order.kill or self.is_idle():
            self.stopping = True
        else:
            self.wire.say(reports.busy())

    def on_disown(self, order: Disown) -> None:
        """Give their GPUs to nobody while these attempts run: the client has no record of them."""
        self.disowned = set(order.keys)

    def on_hold(self, order: HoldPlace) -> None:
        """Take the leases of a place: all of them or none."""
        keys = self.places[order.number].keys
        for attempt in self.disowned & self.detached.keys():
            if shared := set(keys).intersection(self.detached[attempt]):
                self.tell(reports.unheld(order.number, min(shared), None, attempt))
                return
        super().on_hold(order)
        if self.leases.held.keys() >= set(keys):
            self.claimed.update(keys)

    def on_release(self, order: ReleasePlace) -> None:
        """Give back the named leases of a place, except those a job of an earlier client needs."""
        self.claimed.difference_update(order.keys)
        used = set().union(*self.detached.values())
        super().on_release(order._replace(keys=[key for key in order.keys if key not in used]))

    def is_new(self, key: str) -> bool:
        """Whether an attempt has not been started, and does not wait to be."""
        return key not in self.records and key not in self.ordered

    def on_start(self, order: StartAttempt) -> None:
        """Start an attempt, unless it has been started already, or waits to be."""
        if self.is_new(order.key):
            self.ordered.add(order.key)
            super().on_start(order)

    def on_ahead(self, ahead: StartAhead) -> None:
        """Put attempts into the line, except those that were started already or wait to be."""
        fresh = [order for order in ahead.orders if self.is_new(order.key)]
        self.ordered.update(order.key for order in fresh)
        super().on_ahead(StartAhead(fresh, ahead.first))

    def revoke(self, key: str) -> None:
        """Take an attempt back, unless it has started; it may be ordered again."""
        super().revoke(key)
        self.ordered.discard(key)

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """Give back what an attempt of an earlier client still held."""
        super().end(attempt, ending)
        if self.detached.pop(attempt.key, None):
            self.release_unused()


def main() -> None:
    """Serve clients at a socket; the arguments: its path, the journal's, a name, a lease file's path."""
    gc.disable()
    ignore_signals()
    os.closerange(_READY_FD + 1, 1 << 16)  # leases of a job, if a job has started the daemon
    os.set_inheritable(_READY_FD, False)
    os.chdir("/")
    path, journal, name, *lease_file = sys.argv[1:]
    process_tree.become_subreaper()
    come_first()
    supervisor = DaemonSupervisor(
        name, process_tree.boot_id(), LeaseFile(lease_file[0]) if lease_file else None
    )
    try:
        story = supervisor.journal.claim(journal)
    except BlockingIOError:
        _say("busy")
        return
    except OSError as error:
        _say(f"{journal}: {error.strerror}")
        return
    failpoints.reach("supervisor-claimed")
    supervisor.take_over(story)
    failpoints.reach("supervisor-taken-over")
    if lease_file:
        start_guard(lease_file[0], name)
    try:
        listener = unix_sockets.listen(path)
    except OSError as error:
        _say(f"{path}: {error.strerror}")
        return
    failpoints.reach("supervisor-listening")
    _say("ready")
    _import_the_rest()
    supervisor.serve(listener)
    failpoints.reach("supervisor-leaving")
    # The journal is still locked: whoever is next finds no socket of ours, and does not lose its own.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _import_the_rest() -> None:
    """Import what may be needed later: Stoker can be upgraded or removed while this process lives."""
    import traceback  # noqa: F401

    from stoker.gpus import accounts  # noqa: F401
    from stoker.supervisor import worker_pool  # noqa: F401
    from stoker.warm import messages  # noqa: F401


def _say(word: str) -> None:
    """Tell who started this process what has become of it; who is gone need not know."""
    with contextlib.suppress(BrokenPipeError):
        os.write(_READY_FD, word.encode("utf-8", "backslashreplace"))
    os.close(_READY_FD)
