"""Supervisor of a foreground run. It kills every process tree when its client is gone.

After `finish` it waits for leftovers, and ends. Its parent is the clean-up process, which ends what a killed
supervisor leaves.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
from typing import Any, ClassVar

from stoker.supervisor import process_tree, reports
from stoker.supervisor.base import Supervisor
from stoker.supervisor.claimed_ahead import SharedAheadQueue, Tickets, WaitingOrder
from stoker.supervisor.cleanup import fork_supervisor
from stoker.supervisor.messages import PROTOCOL, OpenJournal, StartAhead
from stoker.supervisor.phase import Phase
from stoker.supervisor.scheduling_latency import request_short_slices
from stoker.supervisor.signals import ignore_signals
from stoker.supervisor.slot_queues import SlotQueue


class ForegroundSupervisor(Supervisor):
    """Serves one client, and ends with it."""

    # A process group is enough: this session has no terminal, and ends with its jobs. Linux makes a
    # scheduling group for each session, which takes as long as all other work for a short job. Jobs that
    # outlive their supervisor need a session: without it, paused ones would get a SIGHUP.
    isolation: ClassVar[dict[str, Any]] = {"setpgroup": 0}

    def __init__(self, client: socket.socket, client_pid: int, name_fd: int, tickets: int) -> None:
        super().__init__()
        self.limits.kin = (client_pid, os.getppid())
        self.name_fd = name_fd
        self.ahead = self.shared = SharedAheadQueue(Tickets(tickets))
        self.protocol.attach(client)
        self.client_fd = os.pidfd_open(client_pid)
        self.poll.register(self.client_fd, select.EPOLLIN)
        self.handlers[OpenJournal] = self.on_open

    def serve(self) -> None:
        """Serve until the client is gone or has finished."""
        self.protocol.answer(reports.hello(PROTOCOL, os.getpid()))
        self.protocol.open()
        self.flush()
        while True:
            events = self.poll.poll(self.poll_timeout_s())
            for fd, _event in events:
                if fd == self.wake:
                    os.read(self.wake, 4096)
                elif self.worker_pool is not None and fd in self.worker_pool:
                    self.worker_pool.receive(fd)
                elif fd == self.client_fd or (orders := self.protocol.receive()) is None:
                    self.kill_all()
                    self.journal.flush()
                    return
                else:
                    self.execute(orders)
            self.do_due_work()
            if self.phase is Phase.FINISHING and self.is_done():
                if self.worker_pool is not None:
                    self.worker_pool.close()
                self.journal.flush()
                self.protocol.flush_all()
                return
            self.flush(late=not events)

    def on_ahead(self, ahead: StartAhead) -> None:
        """Add orders that all supervisors of this client get."""
        self.shared.forget_before(ahead.first)
        for order in ahead.orders:
            waiting = WaitingOrder(order, self.contexts[order.context])
            slot = self.shared.expected.pop(order.ticket, None)
            if slot is None:
                self.shared.put(waiting)
            else:
                self.occupied.difference_update(slot.parts)
                self.queue_order(slot, order, waiting.context, taken=True)
                self.start_next(slot)
        self.fill_offered()

    def take_ahead(self, slot: SlotQueue) -> bool:
        """Move the first attempt of `ahead` to a free slot; False if the slot gets none now."""
        if super().take_ahead(slot):
            return True
        if slot in self.shared.expected.values():
            self.occupied.update(slot.parts)
        return False

    def on_open(self, order: OpenJournal) -> None:
        """Set the name, and open the journal."""
        name = order.name
        with contextlib.suppress(BrokenPipeError):  # the clean-up process was killed
            os.write(self.name_fd, name.encode())
        self.set_name(name)
        self.journal.open(order.journal)
        self.journal.note(f"boot {process_tree.boot_id()} {name} .\n")


def main() -> None:
    """Serve the client on descriptor 3, whose pid is the only argument. Tickets come on descriptor 4."""
    gc.disable()
    ignore_signals()
    name_fd = fork_supervisor()
    client = socket.socket(fileno=os.dup(3))  # a duplicate is not inherited by jobs
    tickets = os.dup(4)
    os.close(3)
    os.close(4)
    process_tree.become_subreaper()
    request_short_slices()
    with contextlib.suppress(ProcessLookupError):  # the client is gone already
        ForegroundSupervisor(client, int(sys.argv[1]), name_fd, tickets).serve()
    # An orderly exit of the interpreter would copy every page that is shared with the parent.
    os._exit(0)
