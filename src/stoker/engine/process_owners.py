"""Finds the attempt that a process of this machine belongs to."""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.slots import SlotTable
from stoker.supervisor import process_tree


class ProcessOwners:
    """Finds an attempt by the ancestors of a process, and by the cookie that processes inherit.

    All descendants of `parents` belong to Stoker. Can be called from any thread.
    """

    def __init__(self, slot_table: SlotTable, name: str, parents: Callable[[], list[int]]) -> None:
        self._slot_table = slot_table
        self._prefix = f"{name}:"
        self._parents = parents

    def __call__(self, pid: int) -> str | None:
        """The key of an attempt, "" for another process of Stoker, None for a foreign process."""
        is_own = self._slot_table.is_own
        running = [each for each in list(self._slot_table.running.values()) if is_own(each.node)]
        roots = {each.pid: each.key for each in running if each.pid is not None}
        parents = self._parents()
        is_ours = False
        ancestor: int = pid
        while ancestor > 0 and not is_ours:
            if ancestor in roots:
                return roots[ancestor]
            is_ours = ancestor in parents
            process = process_tree.find_process(ancestor)
            ancestor = 0 if process is None else process.parent
        marks = process_tree.read_marks(pid)
        cookies = marks.cookies
        keys = [cookie for cookie in cookies if cookie.startswith(self._prefix)]
        if keys:
            return keys[-1].removeprefix(self._prefix)
        # Parts of Stoker such as the MPS server have no parent of ours.
        return "" if is_ours or marks.is_part else None
