"""Executor that asks the client for a job's environment before it launches the job."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stoker.executors.contract import Executor, Launch, Refused, Report, Revoked


class EnvironmentQueryExecutor:
    """Delays launches of another executor until the client has answered.

    `ask` is called for each launch and returns whether an answer will come. Until then the launch
    occupies its slots and can be revoked. Other launches do not wait for it.
    """

    def __init__(self, executor: Executor, ask: Callable[[Launch], bool]) -> None:
        self._executor = executor
        self._ask = ask
        self._asked: dict[str, Launch] = {}
        self._reports: list[Report] = []
        self.fileno = executor.fileno
        self.define_slots = executor.define_slots
        self.define_context = executor.define_context
        self.hold = executor.hold
        self.offer = executor.offer
        self.release = executor.release
        self.reserve = executor.reserve
        self.acknowledge = executor.acknowledge
        self.move = executor.move
        self.limit = executor.limit
        self.signal = executor.signal
        self.finish = executor.finish
        self.close = executor.close

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start recorded attempts; those that the client is asked about start after the answer."""
        ready = []
        for order in launches:
            if self._ask(order):
                self._asked[order.key] = order
            else:
                ready.append(order)
        if ready:
            self._executor.launch(ready)

    def answer(self, key: str, env: Mapping[str, str], error: str | None) -> None:
        """Launch an attempt or refuse it; nothing if it was revoked meanwhile."""
        order = self._asked.pop(key, None)
        if order is None:
            return
        if error is not None:
            self._reports.append(Refused(key, errno.ECANCELED, error))
        else:
            more = {**(order.env or {}), **env}
            self._executor.launch([msgspec.structs.replace(order, env=more)])

    def observe(self) -> list[Report]:
        """Return the reports since the last call, without waiting."""
        reports, self._reports = self._reports, []
        return reports + self._executor.observe()

    def revoke(self, key: str) -> None:
        """Revoke an attempt that has not started."""
        if self._asked.pop(key, None) is not None:
            self._reports.append(Revoked(key))
        else:
            self._executor.revoke(key)

    def kill(self, key: str) -> None:
        """Kill an attempt's whole process tree; revoke it if it has not started."""
        if self._asked.pop(key, None) is not None:
            self._reports.append(Revoked(key))
        else:
            self._executor.kill(key)
