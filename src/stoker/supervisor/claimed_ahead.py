"""Queue of attempts that wait for the first free slot.

Attempts that are launched ahead have no slot yet. A slot that becomes free takes the first of them, so they
start in the order of their launch, however long the jobs before them run.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stoker.supervisor.messages import AheadOrder

if TYPE_CHECKING:
    from stoker.supervisor.slot_queues import AttemptContext, SlotQueue

_TICKET = struct.Struct("=I")


class WaitingOrder(NamedTuple):
    """An order in the queue, with its context: the client may let the context be forgotten meanwhile.

    It becomes an Attempt when a slot takes it: a supervisor that shares its queue starts only some of them.
    """

    order: AheadOrder
    context: AttemptContext


class AheadQueue:
    """Queue of a supervisor that serves all slots of its client: first in, first out."""

    def __init__(self) -> None:
        self._orders: deque[WaitingOrder] = deque()

    def __len__(self) -> int:
        return len(self._orders)

    def put(self, waiting: WaitingOrder) -> None:
        """Append an order."""
        self._orders.append(waiting)

    def take(self, _slot: SlotQueue) -> WaitingOrder | None:
        """Remove and return the first order for a slot; None if there is none."""
        return self._orders.popleft() if self._orders else None

    def remove(self, key: str) -> bool:
        """Remove an attempt; False if it is not in the queue."""
        for waiting in self._orders:
            if waiting.order.key == key:
                self._orders.remove(waiting)
                return True
        return False

    def clear(self) -> None:
        """Remove all orders."""
        self._orders.clear()


class Tickets:
    """A pipe of ticket numbers that several supervisors of one client read.

    The kernel gives each number to one reader, in the order written, and one read takes all of them out. So
    no two supervisors start the same attempt, none starts a later one first, and the client can take back
    all attempts that have not begun.
    """

    def __init__(self, reader: int, writer: int = -1) -> None:
        self.reader = reader
        self._writer = writer

    def write(self, tickets: Sequence[int]) -> None:
        """Append tickets; no more of them may wait at once than a pipe holds."""
        os.write(self._writer, struct.pack(f"={len(tickets)}I", *tickets))

    def take(self) -> int | None:
        """Take out the first ticket; None if there is none."""
        try:
            data = os.read(self.reader, _TICKET.size)
        except BlockingIOError:
            return None
        return int(_TICKET.unpack(data)[0]) if data else None

    def take_all(self) -> list[int]:
        """Take out all tickets that no supervisor has taken."""
        try:
            data = os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return []
        return [ticket for (ticket,) in _TICKET.iter_unpack(data)]

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self._writer)


class SharedAheadQueue(AheadQueue):
    """Queue that several supervisors of one client share: each has all orders, and tickets decide.

    `expected` has, by ticket, the slots whose orders are still on their way here.
    """

    def __init__(self, tickets: Tickets) -> None:
        super().__init__()
        self._tickets = tickets
        self.expected: dict[int, SlotQueue] = {}

    def take(self, slot: SlotQueue) -> WaitingOrder | None:
        """Return the order of the first ticket; None if there is no ticket, or its order has not arrived."""
        ticket = self._tickets.take()
        if ticket is None:
            return None
        self.forget_before(ticket)
        if not self._orders:
            self.expected[ticket] = slot
            return None
        return self._orders.popleft()

    def remove(self, _key: str) -> bool:
        """Remove nothing: the client takes attempts back by their tickets."""
        return False

    def forget_before(self, ticket: int) -> None:
        """Drop the orders of earlier tickets: other supervisors, or the client, have taken those."""
        orders = self._orders
        while orders and orders[0].order.ticket < ticket:
            orders.popleft()
