"""`stoker ls --watch`: the list on a screen of its own, drawn anew when something happens."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stoker.cli.job_overview import JobOverview, take_listing
from stoker.cli.job_table import COLUMNS, lines_of
from stoker.cli.state_colours import sum_up
from stoker.cli.tables import draw_titled, harmless
from stoker.cli.verbs.status import paused_projects, pauses
from stoker.client.client import Client
from stoker.core.durations import format_left
from stoker.errors import StokerError

if TYPE_CHECKING:
    from stoker.wire import Selection, Status

_ASK_AGAIN_S = 0.5
_TICK_S = 1.0
_LINES_AROUND = 5


def watch(selection: Selection) -> int:
    """Show the list until Ctrl-C."""
    console = Console(highlight=False)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            try:
                _follow(selection, live)
            except StokerError as error:
                gone = Text(f"{error}\nlooking again every second; Ctrl-C ends this", "yellow")
                live.update(gone, refresh=True)
                time.sleep(_TICK_S)
    return 0


def _follow(selection: Selection, live: Live) -> None:
    bell = _Bell()
    bell.start()
    with Client() as client:
        while True:
            bell.rung.clear()
            status = client.status()
            listing = take_listing(client, selection, live.console.height - _LINES_AROUND)
            asked_at = time.monotonic()
            live.update(_draw(listing, status), refresh=True)
            while not bell.rung.wait(_TICK_S):
                # Nothing has happened: only the clocks go on, and nobody is asked.
                live.update(_draw(listing, status), refresh=True)
            if bell.is_over:
                raise StokerError("the daemon has gone: stoker daemon start")
            time.sleep(max(0.0, asked_at + _ASK_AGAIN_S - time.monotonic()))


class _Bell(threading.Thread):
    """Rings when something happens in the queue, and when there is no more to hear."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rung = threading.Event()
        self.is_over = False

    def run(self) -> None:
        """Listen until the daemon goes."""
        with contextlib.suppress(StokerError), Client() as client:
            # What happened before we could listen was perhaps not seen.
            timer = threading.Timer(_TICK_S, self.rung.set)
            timer.daemon = True
            timer.start()
            for _event in client.events():
                self.rung.set()
        self.is_over = True
        self.rung.set()


def _draw(listing: JobOverview, status: Status) -> Group:
    counts = sum_up(status.counts) or [("no job yet: stoker add python train.py", "dim")]
    headline = Text("   ").join(Text(text, style) for text, style in counts)
    if status.eta_s:
        headline.append(f"   {format_left(status.eta_s)}", "dim")
    headline.append(f"   {time.strftime('%H:%M:%S')}", "dim")
    lines: list[RenderableType] = [headline]
    lines += [Text(harmless(pause), "bold yellow") for pause in pauses(status)]
    lines += [Text(harmless(notice), "yellow") for notice in status.notices]
    lines.append(Text())
    if listing.jobs:
        rows, titles = lines_of(listing.jobs, time.time(), paused_projects(status))
        lines.append(draw_titled(COLUMNS, rows, titles))
    if listing.left_out:
        lines.append(Text(f"… {', '.join(listing.left_out)}", "dim"))
    return Group(*lines)
