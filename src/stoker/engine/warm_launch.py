"""From an order to one that is forked from a process with its imports done, where that can be."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from stoker.engine.engine_rules import Order
from stoker.warm.command import NEEDS_SHELL, make_warm


def make_order_warm(
    order: Order,
    words: list[str] | None,
    modules: Sequence[str],
    *,
    cwd: str,
    home: str,
    name: str = "",
) -> Order:
    """An order for the same command, which says how it is started warm, or why it is not.

    Without words it is one for the shell. By `name` different uses of one program are told apart.
    """
    if words is None:
        return msgspec.structs.replace(order, cold=NEEDS_SHELL)
    found = make_warm(words, list(modules), cwd, os.path.join(home, "warm"), name)
    if isinstance(found, str):
        return msgspec.structs.replace(order, cold=found)
    return msgspec.structs.replace(order, warm=found)
