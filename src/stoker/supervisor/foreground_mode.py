"""The supervisor of a foreground run: it ends every tree the moment its client is gone.

After `finish` it waits for leftovers, and ends. Its parent, a process of its own, ends what it leaves if
it is killed.
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
from stoker.supervisor.claimed_ahead import SharedLine, Tickets, WaitingOrder
from stoker.supervisor.cleanup import fork_supervisor
from stoker.supervisor.messages import PROTOCOL, OpenJournal, StartAhead
from stoker.supervisor.scheduling_latency import come_first
from stoker.supervisor.signals import ignore_signals
from stoker.supervisor.slot_queues import SlotQueue


class ForegroundSupervisor(Supervisor):
    """Serves one client, and dies with it."""

    # A group does: this session has no terminal, and is over with its jobs. Linux makes a scheduling
    # group of every session, which takes as long as all that this process does for a short job. Where
    # jobs outlive their supervisor, only a session of their own keeps the paused ones from a SIGHUP then.
    apart: ClassVar[dict[str, Any]] = {"setpgroup": 0}

    def __init__(self, client: socket.socket, client_fd: int, name_fd: int, tickets: int) -> None:
        super().__init__()
        self.name_fd = name_fd
        self.line = self.shared = SharedLine(Tickets(tickets))
        self.wire.attach(client)
        self.client_fd = client_fd
        self.poll.register(client_fd, select.EPOLLIN)
        self.handlers[OpenJournal] = self.on_open

    def serve(self) -> None:
        """Work until the client is gone or has finished."""
        self.wire.say(reports.hello(PROTOCOL, os.getpid()))
        self.wire.open()
        self.flush()
        while True:
            events = self.poll.poll(self.patience())
            for fd, _event in events:
                if fd == self.wake:
                    os.read(self.wake, 4096)
                elif self.worker_pool is not None and fd in self.worker_pool.by_fd:
                    self.worker_pool.receive(fd)
                elif fd == self.client_fd or (orders := self.wire.receive()) is None:
                    self.slay_all()
                    self.journal.flush()
                    return
                else:
                    self.carry_out(orders)
            self.look_after()
            if self.finishing and self.is_done():
                if self.worker_pool is not None:
                    self.worker_pool.close()
                self.journal.flush()
                self.wire.flush_all()
                return
            self.flush(late=not events)

    def on_ahead(self, ahead: StartAhead) -> None:
        """Take in orders that all supervisors of this client have."""
        self.shared.forget_before(ahead.first)
        for order in ahead.orders:
            waiting = WaitingOrder(order, self.contexts[order.context])
            place = self.shared.expected.pop(order.ticket, None)
            if place is None:
                self.shared.put(waiting)
            else:
                self.occupied.difference_update(place.parts)
                self.queue_order(place, order, waiting.context, taken=True)
                self.start_next(place)
        self.fill_takers()

    def take_ahead(self, place: SlotQueue) -> bool:
        """Move the first attempt of the line to a vacant place; False if the place gets none now."""
        if super().take_ahead(place):
            return True
        if place in self.shared.expected.values():
            self.occupied.update(place.parts)
        return False

    def on_open(self, order: OpenJournal) -> None:
        """Begin to keep a journal."""
        name = order.name
        with contextlib.suppress(BrokenPipeError):  # the parent was killed
            os.write(self.name_fd, name.encode())
        self.take_name(name)
        self.journal.open(order.journal)
        self.journal.note(f"boot {process_tree.boot_id()} {name} .\n")


def main() -> None:
    """Serve the client on descriptor 3, whose pid is the only argument; descriptor 4 is for tickets."""
    gc.disable()
    ignore_signals()
    name_fd = fork_supervisor()
    client = socket.socket(fileno=os.dup(3))  # a duplicate is not inherited by jobs
    tickets = os.dup(4)
    os.close(3)
    os.close(4)
    process_tree.become_subreaper()
    come_first()
    with contextlib.suppress(ProcessLookupError):  # the client is gone already
        ForegroundSupervisor(client, os.pidfd_open(int(sys.argv[1])), name_fd, tickets).serve()
    # To take the interpreter apart would copy every page that is shared with the parent.
    os._exit(0)
