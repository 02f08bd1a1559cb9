"""Draws the screen of `stoker top`: lines of text for any size from 80×24, and what a click on them means."""

from __future__ import annotations

import time
from typing import NamedTuple

from rich.text import Text

from stoker.cli.job_table import cut, full_name, gpus_of, took, when
from stoker.cli.messages import harmless
from stoker.cli.pauses import describe_pauses
from stoker.cli.state_colours import MARKED, STYLES, format_counts
from stoker.cli.tables import cut_middle
from stoker.cli.top.feed import Snapshot
from stoker.cli.top.gpu_lines import Hit, colour_of, gpu_line, label_width_of
from stoker.cli.top.view import Mode, Sort, View
from stoker.core.durations import format_left
from stoker.core.lifecycle import State, is_final, is_live
from stoker.wire import Job, SweepInfo

_WIDE = 140  # from here on the log is beside the jobs
_LEAST_JOBS = 5
_LOG_SHARE = 4  # of the lines below the GPUs, one in so many is for the log
_GLYPHS = {
    State.WAITING: "·",
    State.HELD: "‖",
    State.BLOCKED: "⋯",
    State.DELAYED: "◷",
    State.STARTING: "▷",
    State.RUNNING: "▶",
    State.PAUSED: "⏸",
    State.SUSPENDED: "⏸",
    State.DONE: "✓",
    State.PRUNED: "✂",
}
_KEYS_LINE = (
    ("↑↓", "select"),
    ("f", "log"),
    ("k", "kill"),
    ("h", "hold"),
    ("r", "retry"),
    ("p", "pause"),
    ("/", "filter"),
    ("s", "sort"),
    ("?", "help"),
    ("q", "quit"),
)
_HELP = """\
 ↑ ↓  PgUp PgDn  Home End   select a job (also: click, wheel)
 f or Enter                 its log on the whole screen, and back; ↑ ↓ scroll
 k                          kill it (asks first)
 h                          hold it, or release it if it is held
 r                          retry it after its end
 p                          pause it, or let it go on
 /                          filter: part of a name or command, or a state (failed)
 s                          sort: queue, longest, GPU, name, problems
 Esc                        leave the log, the filter or this help
 q or Ctrl-C                quit; jobs go on

 A GPU's bar is its memory: a block with a number is used by that job, ░ is
 set aside for it, ▓ is used by others, · is free. The graph at the right is
 the GPU's use in the last minute."""


class Screen(NamedTuple):
    """The lines of a screen, and by line the stretches that select a job."""

    lines: list[Text]
    hits: dict[int, list[Hit]]


def draw(view: View, width: int, height: int, now: float) -> Screen:
    """Draw the screen; fits the view's table to it."""
    lines: list[Text] = []
    hits: dict[int, list[Hit]] = {}
    snapshot = view.snapshot
    if snapshot is None:
        lines = [Text(view.problem or "connecting to the daemon …", "yellow")]
    else:
        lines += _header(snapshot, view, now)
        if view.mode is Mode.HELP:
            lines += [Text(), *(Text(line) for line in _HELP.split("\n"))]
        elif view.mode is Mode.LOG:
            lines += _log_page(snapshot, view, width, height - len(lines) - 1)
        else:
            _add_gpus(lines, hits, snapshot, width, max(2, height // 3))
            lines += [_sweep_line(sweep, width) for sweep in _shown_sweeps(snapshot, height)]
            _add_body(lines, hits, view, width, height - 1, now)
    lines = [*lines[: height - 1], *([Text()] * max(0, height - 1 - len(lines)))]
    lines.append(_footer(view))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Screen(lines, hits)


def _header(snapshot: Snapshot, view: View, now: float) -> list[Text]:
    counts = format_counts(snapshot.status.counts) or [("no job yet: stoker add", "dim")]
    line = Text("  ").join(Text(text, style) for text, style in counts)
    if snapshot.status.eta_s:
        line.append(f"  {format_left(snapshot.status.eta_s)}", "dim")
    line.append(f"  {time.strftime('%H:%M:%S', time.localtime(now))}", "dim")
    lines = [line]
    if view.problem:
        lines.append(Text(harmless(view.problem), "bold yellow"))
    lines += [Text(harmless(pause), "bold yellow") for pause in describe_pauses(snapshot.status)]
    lines += [Text(harmless(notice), "yellow") for notice in snapshot.status.notices[-1:]]
    return lines


def _add_gpus(
    lines: list[Text], hits: dict[int, list[Hit]], snapshot: Snapshot, width: int, most: int
) -> None:
    gpus = snapshot.gpus
    shown = gpus if len(gpus) <= most else gpus[: most - 1]
    label_width = label_width_of(gpus)
    for gpu in shown:
        past = snapshot.utilisation.get(gpu.label, ())
        line, found = gpu_line(gpu, past, width, label_width)
        hits[len(lines)] = found
        lines.append(line)
    if len(shown) < len(gpus):
        lines.append(Text(f"… {len(gpus) - len(shown)} more GPUs", "dim"))


def _shown_sweeps(snapshot: Snapshot, height: int) -> list[SweepInfo]:
    """Return the sweeps that have not ended, as many as there is room for."""
    open_ones = [
        each for each in snapshot.sweeps if any(not is_final(state) for state in each.counts)
    ]
    return open_ones[: 1 if height < 30 else 4]


def _sweep_line(sweep: SweepInfo, width: int) -> Text:
    total = max(1, sum(sweep.counts.values()))
    done = sum(count for state, count in sweep.counts.items() if is_final(state))
    bad = sum(sweep.counts.get(state, 0) for state in (State.FAILED, State.LOST))
    text = f" {done:,}/{total:,} ended" + (f", {bad:,} failed" if bad else "")
    line = Text("sweep ", "dim") + Text(harmless(sweep.name)[:24] + " ")
    room = max(5, width - line.cell_len - len(text))
    filled = round(done / total * room)
    line.append("━" * filled, "color(36)").append("─" * (room - filled), "dim")
    return line.append(text)


def _add_body(
    lines: list[Text], hits: dict[int, list[Hit]], view: View, width: int, height: int, now: float
) -> None:
    """Add the table of jobs and, below or beside it, why the selected job is in its state, and its log."""
    room = height - len(lines)
    if width >= _WIDE:
        table_width = width * 3 // 5
        right = _detail(view, width - table_width - 3, room)
        begin = len(lines)
        _add_table(lines, hits, view, table_width, room, now)
        for number, line in enumerate(right):
            at = begin + number
            if at == len(lines):
                lines.append(Text())
            left = lines[at]
            left.truncate(table_width, overflow="ellipsis", pad=True)
            lines[at] = left.append(" │ ", "dim").append_text(line)
        return
    detail_height = max(3, min(room - _LEAST_JOBS - 1, room // _LOG_SHARE))
    _add_table(lines, hits, view, width, room - detail_height, now)
    lines += [Text()] * (height - detail_height - len(lines))
    lines += _detail(view, width, detail_height)


def _add_table(
    lines: list[Text], hits: dict[int, list[Hit]], view: View, width: int, height: int, now: float
) -> None:
    assert view.snapshot is not None
    left_out = view.snapshot.left_out
    view.fit(height - 1 - bool(left_out))
    jobs = view.jobs()
    id_width = max([2, *(len(str(job.id)) for job in jobs)])
    title = f"{'ID':>{id_width}}   {'STATE':<11} {'GPU':<7} {'TOOK':>8}  {'WHEN':<11} "
    name_width = 0 if width < 100 else min(30, width // 5)
    name = f"{'NAME':<{name_width}} " if name_width else ""
    suffix = "" if view.sort is Sort.QUEUE else f" ({view.sort.value})"
    lines.append(Text(f"{title}{name}COMMAND{suffix}", "dim"))
    for job in jobs[view.first : view.first + view.rows_shown]:
        hits.setdefault(len(lines), []).append(Hit(0, width, job.id))
        lines.append(_row(job, view, id_width, name_width, width, now))
    if not jobs:
        lines.append(Text("no job matches" if view.filter else "no job", "dim"))
    if left_out:
        lines.append(Text(f"… {', '.join(left_out)}", "dim"))


def _row(job: Job, view: View, id_width: int, name_width: int, width: int, now: float) -> Text:
    style = MARKED if job.mark else STYLES[job.state]
    state = job.state.value if job.mark is None else job.mark.kind.value
    gpu = gpus_of(job)
    line = Text(f"{job.id:>{id_width}} ", colour_of(job.id) if is_live(job.state) else "")
    line.append(f"{'!' if job.mark else _GLYPHS.get(job.state, '✗')} {state:<11} ", style)
    line.append(f"{harmless(gpu if isinstance(gpu, str) else gpu[0])[:7]:<7} ")
    line.append(f"{took(job, now):>8}  ")
    line.append(f"{when(job, now)[:11]:<11} ", "dim")
    if name_width:
        line.append(f"{cut_middle(harmless(full_name(job)), name_width):<{name_width}} ")
    words = harmless(" ".join(job.command.split()))
    if job.reason and job.reason != job.state.value:
        line.append(f"{cut(harmless(job.reason), max(12, width // 5))}  ", "yellow")
    line.append(cut_middle(words, max(8, width - line.cell_len)))
    if job.id == view.selected:
        line.truncate(width, overflow="ellipsis", pad=True)
        line.stylize("reverse")
    return line


def _detail(view: View, width: int, height: int) -> list[Text]:
    """Draw a title, why the selected job is in its state, and the last lines of its log."""
    snapshot, job = view.snapshot, view.job()
    if snapshot is None or job is None:
        return []
    title = f"── job {job.id} {harmless(full_name(job))} "
    lines = [Text(title + "─" * max(0, width - len(title)), "dim")]
    if snapshot.about != job.id:
        return lines
    if snapshot.why:
        why = Text(harmless(snapshot.why), "yellow")
        why.truncate(width * 2, overflow="ellipsis")
        lines += [Text(part, "yellow") for part in _wrap(why.plain, width)][: max(1, height // 3)]
    room = height - len(lines)
    lines += [Text.from_ansi(line) for line in snapshot.log[-room:]] if room > 0 else []
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _wrap(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(10, width)) or [""]


def _log_page(snapshot: Snapshot, view: View, width: int, height: int) -> list[Text]:
    job = view.job()
    if job is None:
        return [Text("no job is selected", "dim")]
    state = "following" if is_live(job.state) and not view.log_back else job.state.value
    title = f"── log of job {job.id} {harmless(full_name(job))} ({state}) "
    lines = [Text(title + "─" * max(0, width - len(title)), "dim")]
    if snapshot.about != job.id:
        return lines
    view.log_back = min(view.log_back, max(0, len(snapshot.log) - height + 1))
    end = len(snapshot.log) - view.log_back
    shown = snapshot.log[max(0, end - height + 1) : end]
    return lines + ([Text.from_ansi(line) for line in shown] or [Text("nothing yet", "dim")])


def _footer(view: View) -> Text:
    if view.mode is Mode.FILTER:
        return Text.assemble(("filter: ", "bold"), harmless(view.filter), ("▏", "bold"))
    if view.mode is Mode.CONFIRM_KILL:
        return Text(f"kill job {view.selected}? y = yes, any other key = no", "bold yellow")
    if view.message:
        return Text(harmless(view.message), "bold")
    line = Text()
    if view.filter:
        line.append(f"filter: {harmless(view.filter)} (Esc: all) ", "yellow")
    for key, meaning in _KEYS_LINE:
        line.append(f" {key}", "bold").append(f" {meaning}", "dim")
    return line
