"""Live view of `stoker run`: progress, what runs on each GPU, and the last lines of failed commands."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stoker.cli.live_terminal import is_in_front, without_echoed_controls
from stoker.cli.run_report import FailedCommand, Report, tail_of
from stoker.cli.safe_text import one_line
from stoker.cli.tables import CutInTheMiddle, draw_progress
from stoker.core.durations import format_duration
from stoker.core.job import Outcome
from stoker.engine.engine import Engine
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.executors.contract import Ended

_PERIOD_S = 0.2
_COMMAND_WIDTH = 1000


class RunView(Report):
    """Draws the view on a terminal, a few times a second."""

    def __init__(self, total: int | None, *, shows_output: bool = True) -> None:
        super().__init__()
        self._shows_output = shows_output
        self._output: str | None = None
        self._make_live()
        self._fd = sys.stdout.fileno()
        self._shown = contextlib.ExitStack()  # what ends with the view
        self._total = total
        self._engine: Engine | None = None
        self._gpu_monitor: GpuMonitor | None = None
        self._drawn_at = 0.0

    def attach(self, engine: Engine, gpu_monitor: GpuMonitor | None) -> None:
        """Show this engine's slot table."""
        self._engine, self._gpu_monitor = engine, gpu_monitor

    def __enter__(self) -> None:
        self._show()

    def __exit__(self, *_exception: object) -> None:
        self._hide()

    def refresh(self) -> float | None:
        """Draw if it is time; return the seconds until the next time. In the background, draw nothing."""
        left_s = self._drawn_at + _PERIOD_S - time.monotonic()
        if left_s > 0:
            return left_s
        if is_in_front(self._fd):
            self._show()
            self._live.update(self._draw(), refresh=True)
        else:
            self._leave()
        self._drawn_at = time.monotonic()
        return _PERIOD_S

    def _show(self) -> None:
        if not self._live.is_started and is_in_front(self._fd):
            self._shown.enter_context(without_echoed_controls(self._fd))
            self._live.start()

    def _hide(self) -> None:
        if not is_in_front(self._fd):
            self._leave()
        elif self._live.is_started:
            self._live.stop()
            self._shown.close()

    def _leave(self) -> None:
        """Forget the view that is on the terminal, which belongs to the shell and its user again."""
        if self._live.is_started:
            self._shown.close()
            self._make_live()
            self._console.show_cursor()

    def _make_live(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Remember where the output is: a file, or the folder of several files."""
        super().on_end(running, outcome, ended, retried)
        if outcome.is_success and running.log is not None:
            known = (running.log, self._output or running.log)
            self._output = os.path.commonpath(known)

    def describe_output(self) -> str:
        """Describe where the output of successful commands is: the view does not show it."""
        return f" (output: {self._output})" if self._shows_output and self._output else ""

    def write(self, text: str) -> None:
        """Print a line above the view."""
        self._console.print(f"[dim]stoker:[/] {escape(text)}", soft_wrap=True)

    def report_failure(self, failure: FailedCommand, *, retried: bool) -> None:
        """Print a failure, with its last lines, above the view."""
        colour = "yellow" if retried else "red"
        again = ", trying again" if retried else ""
        self._console.print(
            f"[{colour}]✗ {failure.job} {escape(failure.reason)}{again}[/]  {escape(failure.command)}"
        )
        for line in tail_of(failure):
            self._console.print(
                Text.assemble(("  │ ", "dim"), Text.from_ansi(line)), overflow="fold"
            )

    def list_failures(self, count: int) -> None:
        """List the logs of failed commands; the failures are above."""
        for failure in self._failures if count else ():
            if failure.log:
                line = f"[red]✗ {failure.job}[/]  log: {escape(failure.log)}"
                self._console.print(line, soft_wrap=True)

    def _draw(self) -> Group:
        assert self._engine is not None
        table = Table(box=None, pad_edge=False, expand=True, show_header=True, header_style="dim")
        for name in ("GPU", "MEMORY"):
            table.add_column(name, no_wrap=True)
        for name in ("UTIL", "JOB", "FOR"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("COMMAND", ratio=1, no_wrap=True, overflow="ellipsis")
        slot_table = self._engine.slot_table
        all_slots = [p for p in slot_table.states if p.current is not None or p.is_idle]
        shown = all_slots[: max(1, self._console.height - 4)]
        for slot_state in shown:
            table.add_row(*self._row(slot_state))
        if len(shown) < len(all_slots):
            table.add_row("", "", "", "", "", Text(f"… {len(all_slots) - len(shown)} more", "dim"))
        return Group(self._headline(), table)

    def _headline(self) -> Table:
        assert self._engine is not None
        tally = self._engine.tally
        before = self._engine.queue.already_done
        bad = tally.failed + tally.killed + tally.lost
        ended = tally.done + bad
        counts = Text.assemble((f"{tally.done} done", "green"))
        if bad:
            counts.append(f"  {bad} failed", "red")
        running = sum(
            slot_state.current is not None for slot_state in self._engine.slot_table.states
        )
        counts.append(f"  {running} running", "cyan")
        if before:
            counts.append(f"  {before} done before", "dim")
        took_s = time.monotonic() - self._began
        if self._engine.progress.draining:
            counts.append(f"  {self._describe_drain(running, before + ended)}", "bold yellow")
        if self._total is None:
            line = Table.grid(padding=(0, 2), expand=True)
            line.add_row(counts, Text(format_duration(took_s), "dim", justify="right"))
            return line
        left = max(0, self._total - before - ended)
        eta = format_duration(took_s / ended * left) if ended and left else "–"
        completed = ended + before
        text = Text(f"{completed}/{self._total}  {format_duration(took_s)}  ETA {eta}", "dim")
        return draw_progress(counts, self._total, completed, text)

    def _describe_drain(self, running: int, over: int) -> str:
        """Say that nothing more starts: `draining: 2 left, 23 not started`."""
        text = f"draining: {running} left"
        waiting = 0 if self._total is None else self._total - over - running
        return f"{text}, {waiting} not started" if waiting > 0 else text

    def _row(self, slot_state: SlotState) -> tuple[RenderableType, ...]:
        used, rate = self._load(slot_state)
        label = Text(slot_state.slot.label)
        running = slot_state.current
        if running is None or running.started_at_us is None:
            state = f"closed: {slot_state.fault}" if slot_state.fault else "idle"
            if slot_state.refusal is not None:
                state = slot_state.refusal.reason
            return (label, used, rate, Text(), Text(), Text(state, "dim"))
        return (
            label,
            used,
            rate,
            Text(str(running.attempt.job), "cyan"),
            Text(format_duration(time.time() - running.started_at_us / 1e6)),
            CutInTheMiddle(Text(one_line(running.entry.command, _COMMAND_WIDTH), no_wrap=True)),
        )

    def _load(self, slot_state: SlotState) -> tuple[Text, Text]:
        readings = [
            reading
            for key in slot_state.slot.keys
            if self._gpu_monitor and (reading := self._gpu_monitor.reading(key))
        ]
        if not readings:
            return Text("–", "dim"), Text("–", "dim")
        used = sum(reading.mem_used_bytes for reading in readings) / 2**30
        total = sum(reading.gpu.mem_total_bytes for reading in readings) / 2**30
        rates = [r.utilisation_pct for r in readings if r.utilisation_pct is not None]
        rate = f"{sum(rates) / len(rates):.0f}%" if rates else "–"
        return Text(f"{used:.1f}/{total:.0f} GiB"), Text(rate)
