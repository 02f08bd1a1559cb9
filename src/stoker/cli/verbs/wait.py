"""`stoker wait`: returns when jobs are over."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stoker.cli.selection import add_selection, format_ids, join_ids, parse_states
from stoker.cli.state_colours import BAD, sum_up
from stoker.cli.tables import print_line
from stoker.cli.verbs.status import pauses
from stoker.client.client import Client
from stoker.core.durations import format_duration
from stoker.core.lifecycle import State
from stoker.wire import Progress, Selection

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Wait until jobs are over: those named, else those that wait or run now. Jobs that ended before do not
count, and held jobs are not waited for. The exit code is 0 only if every one that was waited for
succeeded. Shows a bar on a terminal."""
EXAMPLES = """\
examples:
  stoker wait                           for all that waits or runs now
  stoker wait 12 && python report.py    go on if job 12 succeeds
  stoker wait 5-9,train                 for some
  stoker wait -P vision                 for a project, with what has ended of it
  stoker wait --all                     for all jobs in the list, with those that ended before
"""

# States that lead on by themselves, and those that somebody has to end.
_GOING = (State.RUNNING, State.STARTING, State.DELAYED)
_STUCK = {
    State.PAUSED: "stoker resume --all",
    State.HELD: "stoker release --all",
    State.BLOCKED: "stoker ls -s blocked",
}
_NAMED = 20
_HELD = Selection(states=[State.HELD])


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all in the list, with those that ended before or are held")


def run(args: argparse.Namespace) -> int:
    """Wait; 1 if any failed, was killed or is lost."""
    named = bool(args.ids or args.state or args.project or args.all)
    selection = Selection(
        ids=join_ids(args.ids),
        states=parse_states(args.state),
        project=args.project,
        all=args.all,
    )
    with Client(tell=_tell) as client:
        progress = client.wait(selection, unfinished=not named)
        steps = progress if named else _announce(client, progress)
        steps = _mind_standstill(client, steps, args.project)
        last = _show(steps) if sys.stdout.isatty() else _last(steps)
    if last is None:
        return 0
    if sys.stdout.isatty() and last.counts:
        took = [] if last.took_s is None else [(f"  in {format_duration(last.took_s)}", "dim")]
        print_line(*_pieces(last), *took)
    bad = {state: count for state in BAD if (count := last.counts.get(state, 0))}
    if not bad:
        return 0
    told = ", ".join(text for text, _style in sum_up(bad))
    states = ",".join(state.value for state in bad)
    _tell(f"{told}: stoker ls -s {states} tells which")
    return 1


def _announce(client: Client, steps: Iterator[Progress]) -> Iterator[Progress]:
    """Say first what is waited for and what is not."""
    first = next(steps, None)
    if first is None:
        return
    held = [job.id for job in itertools.islice(client.jobs(_HELD), _NAMED + 1)]
    if held:
        more = ",…" if len(held) > _NAMED else ""
        jobs = "job" if len(held) == 1 else "jobs"
        ids = f"{format_ids(held[:_NAMED])}{more}"
        _tell(f"not waiting for held {jobs} {ids} (stoker release {ids})")
    if first.left:
        if sys.stdout.isatty():
            counts = ", ".join(text for text, _style in sum_up(first.counts))
            _tell(f"waiting for what is there now: {counts}")
    else:
        _tell_nothing(client)
    yield first
    yield from steps


def _tell_nothing(client: Client) -> None:
    """Say that nothing is waited for: always where earlier failures are not counted."""
    counts = client.status().counts
    bad = {state: counts[state] for state in BAD if counts.get(state)}
    if bad:
        told = ", ".join(text for text, _style in sum_up(bad))
        _tell(f"nothing is waiting or running ({told} before: stoker wait --all counts them)")
    elif sys.stdout.isatty():
        _tell("nothing is waiting or running")


def _tell(text: str) -> None:
    sys.stderr.write(f"stoker: {text}\n")


def _mind_standstill(
    client: Client, steps: Iterable[Progress], project: str | None
) -> Iterator[Progress]:
    """Say, once, that nothing will go on by itself: nobody wants to wait for that without knowing."""
    told = False
    for step in steps:
        going = any(step.counts.get(state) for state in _GOING)
        if step.left and not going and not told:
            reasons = pauses(client.status(), project)
            reasons += [
                f"{text}: {way}" for state, way in _STUCK.items() for text in _some(step, state)
            ]
            if reasons:
                _tell(f"nothing runs; {'; '.join(reasons)}")
                told = True
        yield step


def _some(progress: Progress, state: State) -> list[str]:
    return [text for text, _style in sum_up({state: progress.counts.get(state, 0)})]


def _last(steps: Iterable[Progress]) -> Progress | None:
    last = None
    for step in steps:
        last = step
    return last


def _show(steps: Iterable[Progress]) -> Progress | None:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from stoker.cli.tables import join

    last = None
    with Live(console=Console(highlight=False), transient=True, auto_refresh=False) as live:
        for last in steps:
            total = sum(last.counts.values())
            line = Table.grid(padding=(0, 2), expand=True)
            line.add_column(no_wrap=True)
            line.add_column(ratio=1)
            line.add_column(no_wrap=True)
            over = total - last.left
            bar = ProgressBar(total=max(1, total), completed=over)
            line.add_row(join(_pieces(last)), bar, f"{over:,}/{total:,}")
            live.update(line, refresh=True)
    return last


def _pieces(progress: Progress) -> list[tuple[str, str]]:
    counts = sum_up(progress.counts)
    return [piece for count in counts for piece in (("  ", ""), count)][1:]
