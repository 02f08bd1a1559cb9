"""Progress of an executor's calls: a bar in a terminal (rich), or in a notebook (HTML)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stoker.core.durations import format_duration

if TYPE_CHECKING:
    from rich.live import Live

_PERIOD_S = 0.2


class Counts(msgspec.Struct, frozen=True):
    """How many calls there are, how many run, and how many have ended well or badly."""

    total: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """How many calls have ended."""
        return self.done + self.failed

    @property
    def is_over(self) -> bool:
        """Whether no call is left."""
        return self.ended == self.total

    def describe(self, elapsed_s: float) -> str:
        """Describe them in words: `3/10, 2 running, 1 failed, 0:32, about 1:10 left`."""
        parts = [f"{self.ended:,}/{self.total:,}"]
        parts += [f"{self.running:,} running"] if self.running else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        parts.append(format_duration(elapsed_s))
        left = self.total - self.ended
        if left and self.done:
            parts.append(f"about {format_duration(elapsed_s / self.ended * left)} left")
        return ", ".join(parts)


class View(Protocol):
    """Draws counts in place of what it drew before."""

    def draw(self, counts: Counts, text: str) -> None:
        """Draw counts, and their description."""

    def close(self) -> None:
        """Draw no more."""


class Progress:
    """Counts calls and draws them, a few times a second at most. For any thread."""

    def __init__(
        self, make_view: Callable[[], View], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make_view = make_view
        self._clock = clock
        self._lock = threading.Lock()
        self._view: View | None = None
        self._running: set[int] = set()
        self._counts = Counts()
        self._began_s = self._drawn_s = clock()

    def on_submit(self) -> None:
        """Count a new call."""
        with self._lock:
            if not self._counts.total:
                self._began_s = self._clock()
            self._change(total=self._counts.total + 1)

    def on_start(self, number: int) -> None:
        """Count a call as running."""
        with self._lock:
            self._running.add(number)
            self._change()

    def on_end(self, number: int, *, is_good: bool, retried: bool) -> None:
        """Count the end of a call, or of an attempt that is repeated."""
        with self._lock:
            self._running.discard(number)
            name = "done" if is_good else "failed"
            self._change(**({} if retried else {name: getattr(self._counts, name) + 1}))

    def close(self) -> None:
        """Draw the final counts, and no more."""
        with self._lock:
            if self._view is not None:
                self._draw(self._clock())
                self._view.close()
            self._view = None

    def _change(self, **values: int) -> None:
        self._counts = msgspec.structs.replace(self._counts, running=len(self._running), **values)
        now = self._clock()
        if self._view is None or self._counts.is_over or now - self._drawn_s >= _PERIOD_S:
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn_s = now
        try:
            if self._view is None:
                self._view = self._make_view()
            self._view.draw(self._counts, self._counts.describe(now - self._began_s))
        except (OSError, ValueError):  # the terminal has gone, and the calls go on
            self._view = _NoView()


class _NoView:
    """Draws nothing."""

    def draw(self, counts: Counts, text: str) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Do nothing."""


def find_view(wanted: bool | None) -> Callable[[], View] | None:
    """Return what makes the view; None for none. By default notebooks and terminals have one."""
    if wanted is False:
        return None
    if _is_notebook():
        return NotebookView
    return TerminalView if wanted or sys.stderr.isatty() else None


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class TerminalView:
    """A bar on standard error while calls are left; at the end a line stays."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._text = ""

    def draw(self, counts: Counts, text: str) -> None:
        """Draw the bar, or remove it when no call is left."""
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        self._text = text
        if counts.is_over:
            self._remove()
            return
        if self._live is None:
            # What the user prints goes on as it is: this is a library's bar.
            self._live = Live(
                console=self._console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(max(1, counts.total), counts.ended, width=30), text)
        self._live.update(line, refresh=True)

    def close(self) -> None:
        """Leave the last counts as a line."""
        self._remove()
        self._console.print(self._text)

    def _remove(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class NotebookView:
    """A bar of HTML that notebooks update in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, counts: Counts, text: str) -> None:
        """Draw the bar."""
        from IPython.display import display

        bar = _Bar(counts, text)
        if self._handle is None:
            self._handle = display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def close(self) -> None:
        """Leave the bar as it is."""


class _Bar:
    """One state of the bar. Its text has only numbers and our own words."""

    def __init__(self, counts: Counts, text: str) -> None:
        self._counts = counts
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        most = max(1, self._counts.total)
        return (
            f"<progress max='{most}' value='{self._counts.ended}' style='width:20em'></progress>"
            f" <small>{self._text}</small>"
        )
