"""Orders and reports: what one end writes, the other end reads as the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec
import pytest

from stoker.executors.connection import REPLIES, Busy, Hello
from stoker.executors.contract import Ended, Started, SupervisorReport
from stoker.executors.node_orders import (
    NODE_ORDERS,
    KeepAttempts,
    NodeOrder,
    RunInCopy,
    SendScript,
    SendTree,
)
from stoker.supervisor import reports
from stoker.supervisor.framing import SUPERVISOR_ORDERS, LineBuffer
from stoker.supervisor.journal import Ending
from stoker.supervisor.messages import (
    ORDERS,
    Acknowledge,
    AheadOrder,
    CutAttempt,
    DefineContext,
    DefineSlot,
    Disown,
    Finish,
    ForgetContext,
    HoldSlot,
    KillAttempt,
    LimitAttempt,
    MoveAttempt,
    OfferSlots,
    OpenJournal,
    Order,
    ReleaseSlot,
    ReserveLeases,
    RevokeAttempt,
    SignalAttempt,
    SignalMain,
    StartAhead,
    StartAttempt,
    StopSupervisor,
    Sync,
)
from stoker.warm.messages import ForkRequest

WARM = ForkRequest(["/bin/python", "a.py"], 1, "/", ["json"])
SAMPLES: list[Order] = [
    DefineContext(1, {"NOT_UTF8": "\udcff"}, "/a b\n", "/bin/sh"),
    ForgetContext(1),
    DefineSlot(0, {"CUDA_VISIBLE_DEVICES": "0"}, ["key"]),
    DefineSlot(-1, {}, ["key"], [0, 1]),
    HoldSlot(0),
    ReleaseSlot(0, ["key"]),
    ReserveLeases({"key": 123.5}),
    StartAttempt("1.1", 1, 0, ["/bin/true", '["kill","1.1"]'], "/log"),
    StartAttempt("1.1", 1, 0, ["/bin/true"], None, {"A": "b"}, [*WARM], 7),
    OfferSlots([(0, "h0/0")]),
    StartAhead([AheadOrder(7, "1.1", 1, ["/bin/true"], None)], 5),
    RevokeAttempt("1.1"),
    StartAttempt("1.1", 1, 0, ["/bin/true"], None, mem_bytes=1 << 30),
    MoveAttempt("1.1", None),
    LimitAttempt("1.1", 1 << 30),
    SignalAttempt("1.1", 15, 2.5),
    SignalMain("1.1", 12, 2.5),
    KillAttempt("1.1"),
    CutAttempt("1.1", "its node leaves"),
    Finish(),
    OpenJournal("name", "/journal"),
    Sync(),
    Acknowledge(["1.1"]),
    Disown(["1.1"]),
    StopSupervisor(True),
]
KINDS = {kind.__struct_config__.tag: kind for kind in (*get_args(SupervisorReport), Hello, Busy)}
WRITERS: Mapping[str, Callable[..., str]] = {
    name: function
    for name, function in inspect.getmembers(reports, inspect.isfunction)
    if function.__module__ == reports.__name__ and name != "taken_by"
}


def as_lists(order: object) -> object:
    """JSON has no tuples."""
    return [*map(as_lists, order)] if isinstance(order, tuple | list) else order


@pytest.mark.parametrize("order", SAMPLES)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    line = SUPERVISOR_ORDERS.encode([order])
    assert line.count(b"\n") == 1
    (read,) = SUPERVISOR_ORDERS.decode(line)

    assert type(read) is type(order)
    assert repr(as_lists(read)) == repr(as_lists(order))


def test_every_order_has_a_sample() -> None:
    assert {type(order) for order in SAMPLES} == {*ORDERS.values()} == {*get_args(Order)}


def test_orders_to_proxies_are_read_as_they_were_written_among_those_of_the_supervisor() -> None:
    orders: list[NodeOrder] = [
        SendScript("/a", "eA=="),
        SendTree("1.1", {}),
        RunInCopy("1.1", "/", None),
        KeepAttempts(["1.1"]),
    ]
    line = NODE_ORDERS.encode([*orders, *SAMPLES])
    read = NODE_ORDERS.decode(line)

    assert [type(order) for order in read] == [type(order) for order in (*orders, *SAMPLES)]
    with pytest.raises(KeyError):
        SUPERVISOR_ORDERS.decode(line)


def test_lines_are_joined_from_pieces() -> None:
    buffer = LineBuffer()
    assert [buffer.take_in(piece) for piece in (b"a", b"b\nc\nd", b"\n")] == [
        [],
        [b"ab", b"c"],
        [b"d"],
    ]


def test_every_report_has_a_writer_and_a_struct_with_the_same_fields() -> None:
    assert WRITERS.keys() == KINDS.keys()
    for word in WRITERS.keys() - {"started", "ended"}:
        fields = msgspec.structs.fields(KINDS[word])
        parameters = inspect.signature(WRITERS[word]).parameters.values()
        written = [(each.name, each.default is not each.empty) for each in parameters]
        # A client may know more of it than a supervisor does: the node of Synced.
        assert written == [(each.name, not each.required) for each in fields][: len(written)], word
        assert not any(each.required for each in fields[len(written) :])


VALUES: dict[str, Any] = {
    "protocol": 1,
    "pid": 7,
    "name": "a b",
    "version": "1",
    "slot": 3,
    "gpu_key": "GPU-0",
    "reason": 'no "room" \u00fc',
    "attempt": "2.1",
    "gathered": ("GPU-1",),
    "key": "1.1",
    "place": "h0/0",
    "errno": 2,
    "cut_off": True,
    "is_over": True,
    "keys": ["1.1", "2.1"],
    "fresh": True,
    "pids": [7, 8],
    "modules": ["json"],
    "left_out": "import starter: it started threads",
}


@pytest.mark.parametrize("word", sorted(WRITERS.keys() - {"started", "ended"}))
def test_a_report_is_read_as_it_was_written(word: str) -> None:
    names = inspect.signature(WRITERS[word]).parameters
    read = REPLIES.decode(WRITERS[word](**{name: VALUES[name] for name in names}))

    assert type(read) is KINDS[word]
    for name in names:
        found = getattr(read, name)
        assert (sorted(found) if isinstance(found, frozenset) else found) == VALUES[name]


def test_the_report_of_a_start_is_read_as_it_was_written() -> None:
    taken = reports.taken_by(3, 'h "0"')
    assert REPLIES.decode(reports.started("1.1", 7, 8, 9.5)) == Started("1.1", 7, 8, 9.5)
    assert REPLIES.decode(reports.started("1.1", 7, 8, 9.5, taken)) == Started(
        key="1.1", pid=7, at_us=8, at_s=9.5, slot=3, place='h "0"'
    )
    later = REPLIES.decode(reports.started("1.1", 7, 8, 9.5, reports.taken_by(None, "0")))
    assert later == Started("1.1", 7, 8, 9.5, None, "0")


@pytest.mark.parametrize(
    "ending",
    [
        Ending(256, 1, 2, 3),
        Ending(0, 1, 2, 3, ('a "b"',), (7, 8)),
        Ending(0, 1, 2, 3, gpu_peak_bytes=4),
    ],
)
def test_the_report_of_an_end_is_read_as_it_was_written(ending: Ending) -> None:
    assert REPLIES.decode(reports.ended("1.1", ending)) == Ended("1.1", **ending._asdict())
    assert Ended.__struct_fields__ == ("key", *Ending._fields)
