"""The terminal program of `stoker top`: keys, mouse, and a screen that is drawn again where it differs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from stoker.cli.top.feed import Feed, Snapshot
from stoker.cli.top.orders import hold_or_release, kill, pause_or_resume, retry
from stoker.cli.top.screen import Screen, draw
from stoker.cli.top.view import Mode, View
from stoker.wire import Job

_MESSAGE_S = 5.0
_WHEEL_LINES = 3


class Board(Widget):  # type: ignore[misc]  # Textual need not be installed
    """The whole screen. Lines that have not changed are not written to the terminal again."""

    DEFAULT_CSS = "Board { width: 1fr; height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self._drawn = Screen([], {})
        self._ruler = Console(highlight=False, force_terminal=True)

    def draw(self) -> None:
        """Draw the view again."""
        width, height = self.size
        if not height:
            return
        before = self._drawn.lines
        self._drawn = draw(self._view, width, height, time.time())
        regions = [
            Region(0, y, width, 1)
            for y, line in enumerate(self._drawn.lines)
            if y >= len(before) or not _is_same(before[y], line)
        ]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Return a line for the terminal."""
        lines = self._drawn.lines
        if y >= len(lines):
            return Strip.blank(self.size.width)
        segments = lines[y].render(self._ruler, end="")
        return Strip(segments).adjust_cell_length(self.size.width)

    def job_at(self, x: int, y: int) -> int | None:
        """Return the job that is drawn at a place."""
        found = (hit.job for hit in self._drawn.hits.get(y, ()) if hit.begin <= x < hit.end)
        return next(found, None)


def _is_same(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.spans == other.spans and one.style == other.style


class TopApp(App[None]):  # type: ignore[misc]
    """`stoker top`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; layout: vertical; }"
    BINDINGS = [Binding("ctrl+c", "quit", show=False, priority=True)]  # noqa: RUF012 - as Textual has it

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        self.view = View()
        self._board = Board(self.view)
        self._feed = Feed(
            lambda snapshot: self._from_feed(lambda: self._take(snapshot)),
            lambda problem: self._from_feed(lambda: self._fail(problem)),
        )
        self._message_until = 0.0

    def compose(self) -> ComposeResult:
        """Return the only widget."""
        yield self._board

    def on_mount(self) -> None:
        """Begin to fetch, and let the clocks go on."""
        self._feed.start()
        self.set_interval(1.0, self._tick)

    def on_unmount(self) -> None:
        """Fetch nothing more."""
        self._feed.stop()

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size."""
        self.call_after_refresh(self._board.draw)

    def on_key(self, event: events.Key) -> None:
        """Handle a key."""
        event.stop()
        if self.view.mode is Mode.FILTER:
            self._edit_filter(event)
        elif self.view.mode is Mode.CONFIRM_KILL:
            self.view.mode = Mode.JOBS
            if event.character == "y":
                self._order(kill)
        elif (action := self._actions().get(event.key)) is not None:
            action()
        self._changed()

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Move down."""
        self.view.move(_WHEEL_LINES)
        self._changed()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Move up."""
        self.view.move(-_WHEEL_LINES)
        self._changed()

    def on_click(self, event: events.Click) -> None:
        """Select the job at the pointer; a second click shows its log."""
        job = self._board.job_at(event.screen_x, event.screen_y)
        if job is not None:
            if job == self.view.selected and event.chain > 1:
                self.view.mode = Mode.LOG
            self.view.select(job)
            self._changed()

    def _actions(self) -> dict[str, Callable[[], object]]:
        view, page = self.view, max(1, self.view.rows_shown - 1)
        return {
            "q": self.exit,
            "up": partial(view.move, -1),
            "down": partial(view.move, 1),
            "pageup": partial(view.move, -page),
            "pagedown": partial(view.move, page),
            "home": partial(view.move, -(10**6)),
            "end": partial(view.move, 10**6),
            "s": view.next_sort,
            "h": lambda: self._order(hold_or_release),
            "r": lambda: self._order(retry),
            "p": lambda: self._order(pause_or_resume),
            "k": lambda: self._set_mode(Mode.CONFIRM_KILL if view.job() else view.mode),
            "f": partial(self._toggle, Mode.LOG),
            "enter": partial(self._toggle, Mode.LOG),
            "question_mark": partial(self._toggle, Mode.HELP),
            "slash": lambda: self._set_mode(Mode.FILTER),
            "escape": self._leave,
        }

    def _set_mode(self, mode: Mode) -> None:
        self.view.mode = mode

    def _toggle(self, mode: Mode) -> None:
        self.view.log_back = 0
        self.view.mode = Mode.JOBS if self.view.mode is mode else mode

    def _leave(self) -> None:
        if self.view.mode is Mode.JOBS:
            self.view.filter = ""
        self.view.mode = Mode.JOBS

    def _edit_filter(self, event: events.Key) -> None:
        if event.key in ("enter", "escape"):
            self.view.filter = "" if event.key == "escape" else self.view.filter
            self.view.mode = Mode.JOBS
        elif event.key == "backspace":
            self.view.filter = self.view.filter[:-1]
        elif event.is_printable and event.character:
            self.view.filter += event.character

    def _order(self, order: Callable[[Job], str]) -> None:
        """Carry out an order for the selected job in a thread: the daemon may be busy."""
        job = self.view.job()
        if job is not None:
            self.run_worker(partial(self._carry_out, order, job), thread=True)

    def _carry_out(self, order: Callable[[Job], str], job: Job) -> None:
        text = order(job)
        self._feed.hurry()
        self._from_feed(lambda: self._say(text))

    def _say(self, text: str) -> None:
        self.view.message, self._message_until = text, time.monotonic() + _MESSAGE_S
        self._board.draw()

    def _from_feed(self, action: Callable[[], None]) -> None:
        if self.is_running:
            self.call_from_thread(action)

    def _take(self, snapshot: Snapshot) -> None:
        self.view.take(snapshot)
        self._changed()

    def _fail(self, problem: str) -> None:
        self.view.problem = problem
        self._board.draw()

    def _tick(self) -> None:
        if self.view.message and time.monotonic() > self._message_until:
            self.view.message = ""
        self._board.draw()

    def _changed(self) -> None:
        self._feed.look_at(self.view.selected, self.view.filter)
        self._board.draw()
