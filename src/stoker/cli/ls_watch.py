"""`stoker ls --watch`: the list on a screen of its own, drawn again after each event."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stoker.cli.job_overview import JobOverview, fetch_overview
from stoker.cli.job_table import COLUMNS, rows_of
from stoker.cli.messages import harmless
from stoker.cli.pauses import describe_pauses, paused_projects
from stoker.cli.state_colours import format_counts
from stoker.cli.tables import draw_titled
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
                gone = Text(f"{error}\ntrying again every second; Ctrl-C ends this", "yellow")
                live.update(gone, refresh=True)
                time.sleep(_TICK_S)
    return 0


def _follow(selection: Selection, live: Live) -> None:
    listener = _EventListener()
    listener.start()
    with Client() as client:
        while True:
            listener.changed.clear()
            status = client.status()
            listing = fetch_overview(client, selection, live.console.height - _LINES_AROUND)
            asked_at = time.monotonic()
            live.update(_draw(listing, status), refresh=True)
            while not listener.changed.wait(_TICK_S):
                # Nothing has happened: only the clocks change.
                live.update(_draw(listing, status), refresh=True)
            if listener.is_over:
                raise StokerError("the daemon has stopped: stoker daemon start starts it")
            time.sleep(max(0.0, asked_at + _ASK_AGAIN_S - time.monotonic()))


class _EventListener(threading.Thread):
    """Sets `changed` after each event of the queue, and when the daemon has gone."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.changed = threading.Event()
        self.is_over = False

    def run(self) -> None:
        """Read events until the daemon goes."""
        with contextlib.suppress(StokerError), Client() as client:
            # An event before this connection may have been missed.
            timer = threading.Timer(_TICK_S, self.changed.set)
            timer.daemon = True
            timer.start()
            for _event in client.events():
                self.changed.set()
        self.is_over = True
        self.changed.set()


def _draw(listing: JobOverview, status: Status) -> Group:
    counts = format_counts(status.counts) or [("no job yet: stoker add python train.py", "dim")]
    headline = Text("   ").join(Text(text, style) for text, style in counts)
    if status.eta_s:
        headline.append(f"   {format_left(status.eta_s)}", "dim")
    headline.append(f"   {time.strftime('%H:%M:%S')}", "dim")
    lines: list[RenderableType] = [headline]
    lines += [Text(harmless(pause), "bold yellow") for pause in describe_pauses(status)]
    lines += [Text(harmless(notice), "yellow") for notice in status.notices]
    lines.append(Text())
    if listing.jobs:
        rows, titles = rows_of(listing.jobs, time.time(), paused_projects(status))
        lines.append(draw_titled(COLUMNS, rows, titles))
    if listing.left_out:
        lines.append(Text(f"… {', '.join(listing.left_out)}", "dim"))
    return Group(*lines)
