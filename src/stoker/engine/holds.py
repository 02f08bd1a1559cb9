"""Which slots are ours: asked for when jobs wait, given back when nothing runs there."""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.board import Board, Place
from stoker.executors.contract import Executor, Unheld
from stoker.gpus.lease import holder

_LEASE_RETRY_S = 1.0


class Holds:
    """Keeps the leases of a board's places in step with what is needed."""

    def __init__(self, board: Board, executor: Executor, tell_once: Callable[[str], None]) -> None:
        self._board = board
        self._executor = executor
        self._tell_once = tell_once

    def ask(self, now: float) -> None:
        """Ask for every slot that is not ours."""
        for place in self._board.places:
            if place.base is None and now >= place.ask_again_at and place.is_open:
                self.claim(place)

    def will_ask(self, place: Place) -> bool:
        """Whether a slot is somebody else's that will be asked for again; a seat comes with its slot."""
        wanted = place.base is None and place.is_open
        return wanted and place.waits_for is not None and not place.asked

    def claim(self, place: Place) -> None:
        """Ask for a slot, unless it is ours or asked for."""
        if not (place.held or place.asked):
            place.asked = True
            self._executor.hold(place.slot.index)

    def on_held(self, slot: int) -> None:
        """A slot is ours."""
        place = self._board.places[slot]
        place.held, place.asked, place.waits_for = True, False, None

    def on_unheld(self, report: Unheld, now: float) -> None:
        """A slot is somebody else's for now."""
        place = self._board.places[report.slot]
        place.asked = False
        place.ask_again_at = now + _LEASE_RETRY_S
        held_by = holder(report.gpu_key)
        who = f"{held_by.user}'s {held_by.what} (pid {held_by.pid})" if held_by else "another"
        place.waits_for = f"held by {who}"
        if report.reason is not None:
            self._tell_once(f"no lease for GPU {place.slot.label} can be kept: {report.reason}")
        elif held_by is not None:
            self._tell_once(f"GPU {place.slot.label} is {place.waits_for}: waiting for it")

    def forget(self, node: str = "") -> None:
        """Take note that the executor holds nothing of a node any more."""
        for place in self._board.of_node.get(node, ()):
            place.held = place.asked = False

    def release_idle(self) -> None:
        """With nothing waiting, give back GPUs that nothing runs on."""
        for place in self._board.places:
            self._release(place)

    def release_closed(self) -> None:
        """Give back GPUs on which nothing may start."""
        for place in self._board.places:
            base = None if place.base is None else self._board.places[place.base]
            if not place.is_open or (base is not None and not base.is_open):
                self._release(place)

    def _release(self, place: Place) -> None:
        if place.held and place.current is None and not place.releasing:
            place.held = False
            keys = set(place.slot.keys) - self._board.keys_in_use(place)
            self._executor.release(place.slot.index, sorted(keys))
