"""How a node's GPUs are: its own watchman, over a board of what the relay knows to be running."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.board import Board, Running
from stoker.engine.owners import Owners
from stoker.engine.queue import Entry
from stoker.engine.watchman import Watchman
from stoker.executors.contract import Ended
from stoker.executors.node import GpuState, Sight
from stoker.gpus.nvml import Nvml

_NOTHING = Entry(b"", Request())


class Outlook:
    """Sees while it is wanted; a node without NVML sees nothing."""

    def __init__(
        self,
        nvml: Nvml | None,
        slots: tuple[Slot, ...],
        cookie: str,
        parents: Callable[[], list[int]],
        *,
        mind_others: bool,
    ) -> None:
        self._board = Board(slots)
        self._watchman: Watchman | None = None
        if nvml is not None and slots:
            owners = Owners(self._board, cookie, parents)
            self._watchman = Watchman(nvml, self._board, self, owners, mind_others=mind_others)

    def follow(self, running: Mapping[str, int], keys_of: Callable[[str], tuple[str, ...]]) -> None:
        """Know what runs now: attempts with their pids, and on which GPUs."""
        if self._watchman is None:
            return
        for key in self._board.running.keys() - running.keys():
            self._watchman.on_end(self._board.running.pop(key))
        for key in running.keys() - self._board.running.keys():
            gpus = set(keys_of(key))
            self._board.running[key] = Running(
                key=key,
                attempt=Attempt.from_key(key),
                entry=_NOTHING,
                slots=tuple(
                    place.slot
                    for place in self._board.places
                    if not gpus.isdisjoint(place.slot.keys)
                ),
                pid=running[key],
            )

    def see(self, *, wanted: bool) -> Sight | None:
        """What was seen last; None where nobody looks."""
        if self._watchman is None:
            return None
        if not (wanted or self._board.running):
            self._watchman.rest()
            return None
        self._watchman.rouse()
        self._watchman.refresh()
        look = self._watchman.look()
        return None if look is None else Sight(look, self._states(look))

    def _states(self, look: Look) -> dict[str, GpuState]:
        assert self._watchman is not None
        closed = {key: place.closed for place in self._board.places for key in place.slot.keys}
        states = {}
        for key in look.gpus:
            reading = self._watchman.reading(key)
            states[key] = GpuState(
                closed=closed.get(key),
                temperature_c=None if reading is None else reading.temperature_c,
                power_w=None if reading is None else reading.power_w,
                lost=reading is not None and reading.lost,
            )
        return states

    def close(self) -> None:
        """Look no more."""
        if self._watchman is not None:
            self._watchman.stop()

    def on_notice(self, _text: str) -> None:
        """What a watchman tells people is told by the head, from what it is shown."""

    def on_launch(self, _running: Running) -> None:
        """Is told by the head."""

    def on_start(self, _running: Running) -> None:
        """Is told by the head."""

    def on_end(
        self, _running: Running, _outcome: Outcome, _ended: Ended | None, _retried: bool
    ) -> None:
        """Is told by the head."""
