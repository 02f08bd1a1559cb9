"""From an order to one that is forked from a process with its imports done, where that can be."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from stoker.engine.rules import Order
from stoker.engine.run_folder import VARIABLE
from stoker.executors.warm.command import NEEDS_SHELL, make_warm


def make_order_warm(
    order: Order,
    words: list[str] | None,
    modules: Sequence[str],
    *,
    cwd: str,
    home: str,
    run_dir: str | None = None,
) -> Order:
    """An order for the same command, which says how it is started warm, or why it is not.

    Without words it is one for the shell.
    """
    if words is None:
        return msgspec.structs.replace(order, cold=NEEDS_SHELL)
    env = {} if run_dir is None else {VARIABLE: run_dir}
    found = make_warm(words, list(modules), cwd, os.path.join(home, "warm"), env)
    if isinstance(found, str):
        return msgspec.structs.replace(order, cold=found)
    return msgspec.structs.replace(order, warm=found)
