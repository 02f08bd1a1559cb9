"""`stoker ls --watch`: the list on a screen of its own, drawn again after each event."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stoker.cli.event_listener import EventListener
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


def watch(selection: Selection, hint: str = "") -> int:
    """Show the list until Ctrl-C, with a hint below it."""
    console = Console(highlight=False)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            try:
                _follow(selection, live, hint)
            except StokerError as error:
                gone = Text(f"{error}\ntrying again every second; Ctrl-C ends this", "yellow")
                live.update(gone, refresh=True)
                time.sleep(_TICK_S)
    return 0


def _follow(selection: Selection, live: Live, hint: str) -> None:
    listener = EventListener()
    listener.start()
    with Client() as client:
        while True:
            listener.changed.clear()
            status = client.status()
            listing = fetch_overview(client, selection, live.console.height - _LINES_AROUND)
            asked_at = time.monotonic()
            live.update(_draw(listing, status, hint), refresh=True)
            while not listener.changed.wait(_TICK_S):
                # Nothing has happened: only the clocks change.
                live.update(_draw(listing, status, hint), refresh=True)
            if listener.is_over:
                raise StokerError("the daemon has stopped: stoker daemon start starts it")
            time.sleep(max(0.0, asked_at + _ASK_AGAIN_S - time.monotonic()))


def _draw(listing: JobOverview, status: Status, hint: str) -> Group:
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
    if hint:
        lines.append(Text(hint, "dim"))
    return Group(*lines)
