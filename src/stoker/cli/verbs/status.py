"""`stoker status`: shows the daemon, the counts of jobs, and what each GPU does."""

from __future__ import annotations

import time

from stoker.cli.arguments import JSON, Args
from stoker.cli.messages import print_json
from stoker.cli.pauses import describe_pauses
from stoker.cli.selection import format_ids
from stoker.cli.state_colours import STYLES, format_counts
from stoker.cli.tables import Cell, Column, Row, format_size, print_facts, print_line, print_table
from stoker.client.light_client import LightClient
from stoker.core.durations import format_duration, format_left
from stoker.core.lifecycle import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.wire import Shared, SlotInfo, Status, WarmWorker

SUMMARY = "Show how the queue is: the daemon, how many jobs stand where, and what each GPU does."
EXAMPLES = """\
  stoker status           for people
  stoker status --json    for scripts
"""

_COLUMNS = (Column("GPU"), Column("JOB"), Column("STATE", gives=True))
_FREE = ("free", "green")
_MODULES_SHOWN = 4

ARGUMENTS = (JSON,)


def run(args: Args) -> int:
    """Print the status."""
    if args.json:
        from stoker.client.client import Client

        with Client() as client:
            print_json(client.status())
        return 0
    with LightClient() as light:
        print_status(light.status())
    return 0


def print_status(status: Status) -> None:
    """Print the status as text."""
    up = format_duration(max(0.0, time.time() - status.since))
    print_facts(
        [
            ("daemon", f"stoker {status.version}, pid {status.pid}, up {up}"),
            ("home", status.home),
            ("CPU jobs", f"up to {status.cpu_places} at once"),
            *(("warm", _describe_warm_worker(worker)) for worker in status.warm),
        ]
    )
    print()
    print_line(*_counts(status))
    for pause in describe_pauses(status):
        print_line((pause, "bold yellow"))
    if status.slots:
        print()
        print_table(_COLUMNS, [_row(slot) for slot in status.slots])
    for notice in status.notices:
        print_line((notice, "yellow"))


def _describe_warm_worker(worker: WarmWorker) -> str:
    shown = ", ".join(worker.modules[:_MODULES_SHOWN]) or "nothing yet"
    more = len(worker.modules) - _MODULES_SHOWN
    memory = "" if worker.mem_bytes is None else f", {format_size(worker.mem_bytes)}"
    left_out = "" if worker.left_out is None else f"; left out: {worker.left_out}"
    return f"{shown}{f' and {more} more' if more > 0 else ''} (pid {worker.pid}{memory}){left_out}"


def _counts(status: Status) -> list[Cell]:
    counts = format_counts(status.counts)
    if not counts:
        return [("no job yet: stoker add python train.py", "dim")]
    pieces: list[Cell] = [piece for count in counts for piece in ("   ", count)][1:]
    if status.eta_s:
        pieces.append((f"   {format_left(status.eta_s)}", "dim"))
    return pieces


def _describe_shared(shared: Shared) -> str:
    """Describe the memory of a shared GPU that is set aside and in use."""
    capped = f", {shared.capped} capped" if shared.capped else ""
    kept = "" if shared.kept_for is None else f", kept for job {shared.kept_for}"
    return (
        f"{shared.reserved_bytes / 2**30:.1f} of {shared.capacity_bytes / 2**30:.1f} GiB set aside,"
        f" {shared.used_bytes / 2**30:.1f} in use{capped}{kept}"
    )


def _row(slot: SlotInfo) -> Row:
    words: list[tuple[str, str]] = []
    if slot.jobs:
        state = State.PAUSED if slot.paused else State.RUNNING
        words.append((state.value, STYLES[state]))
    if slot.shared is not None:
        words.append((_describe_shared(slot.shared), STYLES[State.RUNNING]))
    if slot.drained is not None:
        words.append((slot.drained, "yellow"))
    elif slot.closed is not None:
        words.append((slot.closed, "yellow"))
    if slot.reserved_until is not None:
        from stoker.core.user_reservation import spell_time

        words.append((f"reserved until {spell_time(slot.reserved_until, time.time())}", "cyan"))
    cell: Cell = (", ".join(word for word, _style in words), words[-1][1]) if words else _FREE
    return (slot.label, format_ids(slot.jobs) or "–", cell)
