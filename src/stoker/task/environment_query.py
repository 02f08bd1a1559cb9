"""Holds a launch back until whoever submitted the job has been asked for its environment."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.executors.contract import Executor, Launch, Refused, Report, Revoked


class EnvironmentQueryExecutor:
    """Keeps the executor contract over another executor.

    `ask` is called for each launch and tells whether an answer will come; until it has, the launch
    occupies its slots and can be taken back. Nothing else waits for it.
    """

    def __init__(self, executor: Executor, ask: Callable[[Launch], bool]) -> None:
        self._executor = executor
        self._ask = ask
        self._asked: dict[str, Launch] = {}
        self._reports: list[Report] = []
        self.fileno = executor.fileno
        self.define_context = executor.define_context
        self.hold = executor.hold
        self.offer = executor.offer
        self.release = executor.release
        self.acknowledge = executor.acknowledge
        self.signal = executor.signal
        self.finish = executor.finish
        self.close = executor.close

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Make known the slots that later calls number."""
        self._executor.define_slots(slots)

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts whose intent is on record; those that are to be asked about, later."""
        ready = []
        for order in launches:
            if self._ask(order):
                self._asked[order.key] = order
            else:
                ready.append(order)
        if ready:
            self._executor.launch(ready)

    def answer(self, key: str, env: Mapping[str, str], error: str | None) -> None:
        """Go on with a launch, or refuse it; nothing if it has been taken back meanwhile."""
        order = self._asked.pop(key, None)
        if order is None:
            return
        if error is not None:
            self._reports.append(Refused(key, errno.ECANCELED, error))
        else:
            more = {**(order.env or {}), **env}
            self._executor.launch([msgspec.structs.replace(order, env=more)])

    def observe(self) -> list[Report]:
        """Return what has happened since the last call, without waiting."""
        reports, self._reports = self._reports, []
        return reports + self._executor.observe()

    def revoke(self, key: str) -> None:
        """Take back an attempt that has not started."""
        if self._asked.pop(key, None) is not None:
            self._reports.append(Revoked(key))
        else:
            self._executor.revoke(key)

    def kill(self, key: str) -> None:
        """Kill the attempt's whole process tree; one that was not started is taken back."""
        if self._asked.pop(key, None) is not None:
            self._reports.append(Revoked(key))
        else:
            self._executor.kill(key)
