"""Closes slots whose GPU is lost or, by default, in use by others; opens them again."""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.engine.board import Board
from stoker.engine.events import Listener
from stoker.gpus.nvml import Gpu, GpuProcess, Nvml, Reading
from stoker.gpus.survey import GpuState, look, state_of, taken_by
from stoker.gpus.users import GpuUser
from stoker.gpus.watch import Sample, Watch


class Watchman:
    """Watches the GPUs of a board in a thread, and judges what it saw in the engine's own.

    With `mind_others`, a slot is closed while a process that is not `ours` uses its GPU. A process
    that our /proc does not show may be one of our own, seen from outside our container: after the
    first look, before any job has run, such a one closes nothing.
    """

    def __init__(
        self,
        nvml: Nvml,
        board: Board,
        listener: Listener,
        ours: Callable[[int], bool],
        *,
        mind_others: bool,
        period_s: float = 2.0,
        appeared: Callable[[list[Gpu]], None] | None = None,
    ) -> None:
        self._nvml = nvml
        self._board = board
        self._listener = listener
        self._ours = ours
        self._mind_others = mind_others
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._outsiders: set[int] = set()
        self._states: dict[str, GpuState] = {}
        self._seen: dict[str, tuple[tuple[GpuProcess, ...], bool]] = {}
        self._appeared = appeared
        self._known = {gpu.uuid for gpu in nvml.gpus()}
        self._look_at_new()
        renewed = None if appeared is None else self._ring
        self._watch = Watch(nvml, period_s, changed=self._wake, renewed=renewed)
        self._judge()
        if all(place.closed for place in board.places):
            listener.on_notice(
                "every GPU is taken: waiting for one; to share one, name it: --gpus 0"
            )
        self._watch.active.set()
        self._watch.start()

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something new to review."""
        return self._reader

    def review(self) -> None:
        """Judge every slot anew by what the thread has seen."""
        os.read(self._reader, 4096)
        self._welcome()
        for key in self._states:
            reading = self._watch.latest.get(key)
            if reading is not None:
                self._states[key] = state_of(reading)
        self._judge()

    def reading(self, key: str) -> Reading | None:
        """The last reading of a GPU."""
        state = self._states.get(key)
        return self._watch.latest.get(key) or (state.reading if state else None)

    def seen(self) -> list[GpuState]:
        """All GPUs of the machine as they were seen last, or are now if nobody has looked lately."""
        if self._watch.active.is_set() and self._watch.latest:
            return [state_of(reading) for reading in list(self._watch.latest.values())]
        return [look(self._nvml, gpu) for gpu in self._nvml.gpus()]

    def history(self, key: str) -> list[Sample]:
        """The last minutes of a GPU, as far as it was watched."""
        return list(self._watch.history.get(key, ()))

    def is_ours(self, user: GpuUser) -> bool:
        """Whether a process on a GPU is a job's, as far as can be seen."""
        return self._ours(user.pid) if user.is_visible else user.pid not in self._outsiders

    def rest(self) -> None:
        """Look no more until roused: with nothing to run, who uses a GPU is nobody's concern."""
        self._watch.active.clear()

    def rouse(self) -> None:
        """Look at once, and from now on again; nothing has run here meanwhile."""
        if not self._watch.active.is_set():
            if self._appeared is not None and self._nvml.may_have_changed():
                self._nvml.look_anew()
                self._welcome()
            self._look()
            self._judge()
            self._watch.active.set()

    def look_again(self) -> None:
        """Have a look at GPUs of slots that have come since."""
        self._look_at_new()
        self._judge()

    def stop(self) -> None:
        """End the thread."""
        self._watch.stop()
        os.close(self._reader)
        os.close(self._writer)

    def _look(self) -> None:
        used = {key for place in self._board.places for key in place.slot.keys}
        for gpu in self._nvml.gpus():
            if gpu.uuid in used:
                self._states[gpu.uuid] = look(self._nvml, gpu)

    def _look_at_new(self) -> None:
        known = {*self._states}
        self._look()
        for key in self._states.keys() - known:
            users = self._states[key].users
            self._outsiders |= {user.pid for user in users if not user.is_visible}

    def _wake(self, key: str, reading: Reading) -> None:
        # Power and temperature always differ; who is there seldom does.
        seen = (reading.processes, reading.lost)
        if self._seen.get(key) == seen:
            return
        self._seen[key] = seen
        self._ring()

    def _welcome(self) -> None:
        """Tell of GPUs that were not there before."""
        new = [gpu for gpu in self._nvml.gpus() if gpu.uuid not in self._known]
        self._known |= {gpu.uuid for gpu in new}
        if new and self._appeared is not None:
            self._appeared(new)

    def _ring(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except (BlockingIOError, OSError):
            return  # it is awake already, or going home

    def _judge(self) -> None:
        reasons = {key: taken_by(state, self._is_ours) for key, state in self._states.items()}
        for place in self._board.places:
            found = [reason for key in place.slot.keys if (reason := reasons.get(key))]
            closed = found[0] if found else None
            if closed != place.closed:
                place.closed = closed
                state = f"is {closed}" if closed else "is free again"
                self._listener.on_notice(f"GPU {place.slot.label} {state}")

    def _is_ours(self, user: GpuUser) -> bool:
        return not self._mind_others or self.is_ours(user)
