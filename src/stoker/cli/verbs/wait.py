"""`stoker wait`: waits until jobs have ended."""

from __future__ import annotations

import itertools
import sys

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note, print_json
from stoker.cli.pauses import describe_pauses
from stoker.cli.selection import format_ids, read_selection, selection_arguments
from stoker.cli.state_colours import BAD, format_counts
from stoker.cli.tables import print_line
from stoker.client.light_client import LightClient, Selection
from stoker.core.durations import format_duration, parse_option
from stoker.core.lifecycle import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stoker.client.client import Client
    from stoker.wire import Progress

SUMMARY = """\
Wait until jobs are over: those named, else those that wait or run now. Jobs that ended before do not
count. Held jobs, and runs that a sweep has parked, are only waited for by their ids. The exit code is 0
only if every one that was waited for succeeded. Shows a bar on a terminal."""
EXAMPLES = """\
  stoker wait                           for all that waits or runs now
  stoker wait 12 && python report.py    go on if job 12 succeeds
  stoker wait 5-9,train                 for some
  stoker wait -P vision                 for a project, with what has ended of it
  stoker wait --all                     for all jobs in the list, with those that ended before
  stoker wait 12 --timeout 1h           for an hour at most; then the exit code is 124
"""

# States that end by themselves, and those that the user has to end.
_GOING = (State.RUNNING, State.STARTING, State.DELAYED)
_STUCK = {
    State.PAUSED: "stoker resume --all",
    State.SUSPENDED: "stoker resume --all",
    State.HELD: "stoker release --all",
    State.BLOCKED: "stoker ls -s blocked",
}
_NAMED = 20
_STAMP = len("2026-12-31 23:59:59 ")  # what a notice of the daemon begins with
_HELD = Selection(states=[State.HELD])

ARGUMENTS = (
    *selection_arguments("all in the list, with those that ended before or are held"),
    arg("--timeout", metavar="TIME", help="wait no longer than this; the exit code is then 124"),
)
TIMED_OUT = 124  # as of timeout(1)


def run(args: Args) -> int:
    """Wait; 1 if a job failed, was killed, skipped or lost, 124 if the time was over before."""
    if args.timeout is None:
        return _wait(args)
    import signal

    seconds = parse_option("--timeout", args.timeout)
    signal.signal(signal.SIGALRM, _end_wait)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return _wait(args)
    except _TimeOverError:
        note(f"not over after {format_duration(seconds)}: the jobs go on")
        return TIMED_OUT
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _TimeOverError(Exception):
    """The time of --timeout is over."""


def _end_wait(_number: int, _frame: object) -> None:
    raise _TimeOverError


def _wait(args: Args) -> int:
    named = bool(args.ids or args.state or args.project or args.all)
    with _connect(args) as client:
        progress = client.wait(Selection(**read_selection(args)), unfinished=not named)
        steps = progress if named else _announce(client, progress)
        steps = _report_standstill(client, steps, args.project)
        shows = sys.stdout.isatty() and not args.json
        last = _show(steps) if shows else _last(steps)
        if args.project is not None and last is not None:
            _pass_on_notices(client, args.project)
    if last is None:
        return 0
    if args.json:
        print_json(last)
    elif sys.stdout.isatty() and last.counts:
        took = [] if last.took_s is None else [(f"  in {format_duration(last.took_s)}", "dim")]
        print_line(*_pieces(last), *took)
    bad = {state: count for state in BAD if (count := last.counts.get(state, 0))}
    if not bad:
        return 0
    states = ",".join(state.value for state in bad)
    note(f"{_join(bad)}: stoker ls -s {states} lists them")
    return 1


def _pass_on_notices(client: Client | LightClient, project: str) -> None:
    """Write what the daemon has told of a sweep, such as why it ended early."""
    texts = [notice[_STAMP:] for notice in client.status().notices]
    for text in dict.fromkeys(texts):
        if text.startswith((f"sweep {project}: ", f"sweep {project} ")):
            note(text)


def _connect(args: Args) -> Client | LightClient:
    if not args.json:
        return LightClient(on_notice=note)
    from stoker.client.client import Client

    return Client(on_notice=note)


def _announce(client: Client | LightClient, steps: Iterator[Progress]) -> Iterator[Progress]:
    """First write which jobs are waited for and which are not."""
    first = next(steps, None)
    if first is None:
        return
    held = [job.id for job in itertools.islice(client.jobs(_HELD), _NAMED + 1)]
    if held:
        more = ",…" if len(held) > _NAMED else ""
        jobs = "job" if len(held) == 1 else "jobs"
        ids = f"{format_ids(held[:_NAMED])}{more}"
        note(f"not waiting for held {jobs} {ids} (stoker release {ids})")
    if first.left:
        if sys.stdout.isatty():
            note(f"waiting for what waits or runs now: {_join(first.counts)}")
    else:
        _announce_nothing(client)
    yield first
    yield from steps


def _announce_nothing(client: Client | LightClient) -> None:
    """Write that there is nothing to wait for; in a pipe only if earlier failures are not counted."""
    counts = client.status().counts
    bad = {state: counts[state] for state in BAD if counts.get(state)}
    if bad:
        note(f"nothing is waiting or running ({_join(bad)} before: stoker wait --all counts them)")
    elif sys.stdout.isatty():
        note("nothing is waiting or running")


def _report_standstill(
    client: Client | LightClient, steps: Iterable[Progress], project: str | None
) -> Iterator[Progress]:
    """Write once that no job will start by itself, and what to do about it.

    For a project, a pause is told also while some of its jobs still run.
    """
    reported = False
    for step in steps:
        if step.left and not reported:
            going = any(step.counts.get(state) for state in _GOING)
            lines = (
                _describe_pause(client, step, project)
                if going
                else _describe_stop(client, step, project)
            )
            for line in lines:
                note(line)
            reported = bool(lines)
        yield step


def _describe_pause(client: Client | LightClient, step: Progress, project: str | None) -> list[str]:
    """Describe why waiting jobs of a project will not start, although others still run."""
    if project is None or not step.counts.get(State.WAITING):
        return []
    return describe_pauses(client.status(), project)


def _describe_stop(client: Client | LightClient, step: Progress, project: str | None) -> list[str]:
    """Describe in a line why nothing runs."""
    reasons = describe_pauses(client.status(), project)
    reasons += [
        f"{_join({state: count})}: {remedy}"
        for state, remedy in _STUCK.items()
        if (count := step.counts.get(state, 0))
    ]
    return [f"still waiting, but nothing runs; {'; '.join(reasons)}"] if reasons else []


def _last(steps: Iterable[Progress]) -> Progress | None:
    last = None
    for last in steps:  # noqa: B007 - only the last one counts
        pass
    return last


def _join(counts: dict[State, int]) -> str:
    return ", ".join(text for text, _style in format_counts(counts))


def _show(steps: Iterable[Progress]) -> Progress | None:
    from rich.console import Console
    from rich.live import Live

    from stoker.cli.tables import draw_progress, join

    last = None
    with Live(console=Console(highlight=False), transient=True, auto_refresh=False) as live:
        for last in steps:
            total = sum(last.counts.values())
            ended = total - last.left
            text = f"{ended:,}/{total:,}"
            live.update(draw_progress(join(_pieces(last)), total, ended, text), refresh=True)
    return last


def _pieces(progress: Progress) -> list[tuple[str, str]]:
    counts = format_counts(progress.counts)
    return [piece for count in counts for piece in (("  ", ""), count)][1:]
