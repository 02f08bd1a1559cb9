"""Framing of orders and reports: lines of JSON. A line has a list of orders, or one report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from stoker.supervisor.messages import ORDERS, AheadOrder, Order

_T = TypeVar("_T", bound=tuple[object, ...])


class LineBuffer:
    """Splits a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def take_in(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class OrderCodec(Generic[_T]):
    """Encodes orders as lines and decodes them; `kinds` has their types by the words in a line."""

    def __init__(self, kinds: Mapping[str, Callable[..., _T]]) -> None:
        self._kinds = kinds
        self._words = {kind: word for word, kind in kinds.items()}

    def encode(self, orders: Iterable[_T]) -> bytes:
        """Return one line with these orders. Bytes that are not UTF-8 stay as os.fsdecode gave them."""
        words = self._words
        return f"{json.dumps([(words[type(order)], *order) for order in orders])}\n".encode()

    def decode(self, line: bytes) -> list[_T]:
        """Return the orders of a line; raises KeyError, TypeError or ValueError for anything else."""
        orders: list[_T] = []
        for word, *fields in json.loads(line):
            if word == "ahead":
                fields[0] = [AheadOrder(*each) for each in fields[0]]
            orders.append(self._kinds[word](*fields))
        return orders


SUPERVISOR_ORDERS: OrderCodec[Order] = OrderCodec(ORDERS)
