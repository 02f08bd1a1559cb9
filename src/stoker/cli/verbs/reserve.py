"""`stoker reserve`: keeps GPUs of a shared machine for some time, and lists what is reserved."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import print_json
from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.core.durations import format_duration, parse_duration, spell_duration
from stoker.core.user_reservation import spell_time
from stoker.errors import UsageError
from stoker.wire import EndReservation, Reserve, UserReservationInfo
from stoker.wire.gpus import MAX_RESERVE_S
from stoker.wire.values import MAX_GPUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.cli.tables import Row

SUMMARY = """\
Keep GPUs of a shared machine for yourself for some time: other users do not get them in turn, also while
they are idle. Your own jobs run on them. The time counts as use. Without arguments it shows what you have
reserved."""
EXAMPLES = """\
  stoker reserve 2 --for 4h                 two GPUs from now on; those that others use, when it is your turn
  stoker reserve 1 --for 2h --from 14:00    one, from two o'clock on
  stoker reserve                            what is reserved, and which GPUs that is
  stoker reserve --end 3                    end reservation 3 now
"""
ARGUMENTS = (
    arg("gpus", nargs="?", metavar="N", help="how many GPUs"),
    arg("--for", metavar="TIME", help="for how long: 4h, 90m"),
    arg("--from", metavar="WHEN", help="when it begins, as --begin of stoker add (default: now)"),
    arg("--end", metavar="ID", help="end this reservation"),
    JSON,
)

_HEADERS = ("ID", "GPUS", "FROM", "UNTIL", "HAS")


def run(args: Args) -> int:
    """Reserve, end a reservation, or list what is reserved."""
    for_, from_ = getattr(args, "for"), getattr(args, "from")
    if args.end is not None:
        if args.gpus is not None or for_ is not None or from_ is not None:
            raise UsageError(f"--end stands alone: stoker reserve --end {args.end}")
        return _end(args.end, as_json=args.json)
    if args.gpus is None and for_ is None and from_ is None:
        return _list(as_json=args.json)
    order = _read_order(args.gpus, for_, from_, time.time())
    with Client(start=True) as client:
        made = client.reserve(order)
    if args.json:
        print_json(made)
    else:
        print(_describe(made, time.time()))
    return 0


def _read_order(gpus: str | None, for_: str | None, from_: str | None, now: float) -> Reserve:
    if gpus is None:
        raise UsageError(f"how many GPUs? stoker reserve 1 --for {for_ or '4h'}")
    if not gpus.isdecimal() or len(gpus) > len(str(MAX_GPUS)) or not 1 <= int(gpus) <= MAX_GPUS:
        raise UsageError(f"'{gpus}' is no number of GPUs: stoker reserve 1 --for {for_ or '4h'}")
    if for_ is None:
        raise UsageError(f"for how long? stoker reserve {gpus} --for 4h")
    for_s = _read("--for", for_, parse_duration)
    if for_s > MAX_RESERVE_S:
        raise UsageError(f"--for: {for_} is too long: {spell_duration(MAX_RESERVE_S)} at most")
    begin_at = None if from_ is None else _read("--from", from_, lambda text: _moment(text, now))
    return Reserve(gpus=int(gpus), for_s=for_s, begin_at=begin_at)


def _read(option: str, text: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def _moment(text: str, now: float) -> float:
    from stoker.cli.times import parse_moment

    return parse_moment(text, now)


def _end(number: str, *, as_json: bool) -> int:
    if not number.isdecimal() or len(number) > 15 or not int(number):
        raise UsageError(f"--end: '{number}' is no id of a reservation: stoker reserve shows them")
    with Client(start=True) as client:
        ended = client.end_reservation(EndReservation(id=int(number)))
    if as_json:
        print_json(ended)
    elif ended.begin_at > time.time():
        print(f"reservation {ended.id} is forgotten; it had not begun")
    else:
        print(f"reservation {ended.id} has ended")
    return 0


def _list(*, as_json: bool) -> int:
    from stoker.cli.tables import Column, print_table

    with Client() as client:
        try:
            found = client.reservations()
        except NoDaemonError:
            if os.path.exists(os.path.join(client.home, "stoker.db")):
                raise
            found = []  # a queue that never existed has reserved nothing
    if as_json:
        print_json(found)
    elif found:
        now = time.time()
        columns = [Column(header, fold=header == _HEADERS[-1]) for header in _HEADERS]
        print_table(columns, [_row(each, now) for each in found])
    else:
        print("nothing is reserved: stoker reserve 1 --for 4h")
    return 0


def _row(each: UserReservationInfo, now: float) -> Row:
    return (
        str(each.id),
        str(each.gpus),
        spell_time(each.begin_at, now),
        spell_time(each.end_at, now),
        _describe_state(each, now),
    )


def _describe(made: UserReservationInfo, now: float) -> str:
    gpus = f"{made.gpus} GPU{'s' * (made.gpus != 1)}"
    begin = f" from {spell_time(made.begin_at, now)}" if made.begin_at > now else ""
    until = spell_time(made.end_at, now)
    return f"reservation {made.id}: {gpus}{begin} until {until}; {_describe_state(made, now)}"


def _describe_state(each: UserReservationInfo, now: float) -> str:
    if each.begin_at > now and each.waits_for is None:
        return f"begins in {format_duration(each.begin_at - now)}"
    has = [f"GPU {', '.join(each.held)}"] if each.held else []
    if each.elsewhere:
        has.append(f"{each.elsewhere} in use by another Stoker of yours")
    return "; ".join([*has, *filter(None, [each.waits_for])])
