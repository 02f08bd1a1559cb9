"""The line of attempts that wait for the first vacant slot.

Attempts that are launched ahead are bound to no slot. A slot that becomes vacant takes the first of them,
so they start in the order in which they were launched, however long the jobs before them last.
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
    """An order in the line, and its context: the client may let that be forgotten before a slot is free.

    No Attempt is made of it before a slot takes it: a supervisor that shares its line starts only a part.
    """

    order: AheadOrder
    context: AttemptContext


class AheadLine:
    """The line of a supervisor that serves all slots: first in, first out."""

    def __init__(self) -> None:
        self._orders: deque[WaitingOrder] = deque()

    def __len__(self) -> int:
        return len(self._orders)

    def put(self, waiting: WaitingOrder) -> None:
        """Let an attempt wait behind all others."""
        self._orders.append(waiting)

    def take(self, _place: SlotQueue) -> WaitingOrder | None:
        """The first of the line, which it leaves."""
        return self._orders.popleft() if self._orders else None

    def remove(self, key: str) -> bool:
        """Take an attempt out; False if it does not wait here."""
        for waiting in self._orders:
            if waiting.order.key == key:
                self._orders.remove(waiting)
                return True
        return False

    def clear(self) -> None:
        """Forget all of them."""
        self._orders.clear()


class Tickets:
    """A pipe of ticket numbers that several supervisors of one client read.

    The kernel hands each number to one reader, in the order written, and one read takes out all of them.
    So no two supervisors start the same attempt, none starts a later one first, and the client can take
    back at once whatever has not begun.
    """

    def __init__(self, reader: int, writer: int = -1) -> None:
        self.reader = reader
        self._writer = writer

    def write(self, tickets: Sequence[int]) -> None:
        """Put tickets at the end; no more of them wait at once than a pipe holds."""
        os.write(self._writer, struct.pack(f"={len(tickets)}I", *tickets))

    def take(self) -> int | None:
        """The first ticket, if there is one."""
        try:
            data = os.read(self.reader, _TICKET.size)
        except BlockingIOError:
            return None
        return int(_TICKET.unpack(data)[0]) if data else None

    def take_all(self) -> list[int]:
        """All tickets that no supervisor has taken."""
        try:
            data = os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return []
        return [ticket for (ticket,) in _TICKET.iter_unpack(data)]

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reader)
        os.close(self._writer)


class SharedLine:
    """The line of a supervisor that shares it with others: every one has all orders, tickets decide."""

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._orders: deque[WaitingOrder] = deque()
        self.expected: dict[
            int, SlotQueue
        ] = {}  # by ticket: the places whose orders are on their way

    def __len__(self) -> int:
        return len(self._orders)

    def put(self, waiting: WaitingOrder) -> None:
        """Keep an order until its ticket is taken here, or is known to be taken elsewhere."""
        self._orders.append(waiting)

    def take(self, place: SlotQueue) -> WaitingOrder | None:
        """The order of the first ticket; None if there is none, or its order is still on its way."""
        ticket = self._tickets.take()
        if ticket is None:
            return None
        self.forget_before(ticket)
        if not self._orders:
            self.expected[ticket] = place
            return None
        return self._orders.popleft()

    def remove(self, _key: str) -> bool:
        """Take nothing out: the client does that, by the tickets."""
        return False

    def clear(self) -> None:
        """Forget all orders."""
        self._orders.clear()

    def forget_before(self, ticket: int) -> None:
        """Drop the orders of earlier tickets: others have taken those, or the client has."""
        orders = self._orders
        while orders and orders[0].order.ticket < ticket:
            orders.popleft()
