"""Steers one sweep from its beginning to its end: the process of a controller."""

from __future__ import annotations

import os
import sys
import threading

import msgspec

from stoker.client.client import Client
from stoker.engine.controller_process import Line
from stoker.engine.searches import SearchRecord
from stoker.errors import UsageError
from stoker.sweep_results.collect import write_manifest
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.tuning.controller import Controller
from stoker.tuning.optuna_check import check_optuna
from stoker.tuning.sweep_queue import SweepQueue
from stoker.tuning.watch import Watch
from stoker.wire import SearchBegun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.tuning.search import Search


def steer(home: str) -> None:
    """Carry out the order on standard input. Ends with the input, which the daemon holds open."""
    record = msgspec.json.decode(sys.stdin.buffer.readline(), type=SearchRecord)
    threading.Thread(target=_end_with_input, daemon=True).start()
    order = record.order
    sweep = plan_sweep(order.definition, order.words, order.cwd, portable=order.portable)
    watch = Watch(sweep)
    search = None
    if sweep.is_adaptive:
        check_optuna()
        search = _open_search(sweep, watch, order.submission.request_id)
    try:
        write_manifest(sweep)
    except OSError as error:
        raise UsageError(f"cannot write to {sweep.root}: {error.strerror}", field="cwd") from error
    with Client(home, restart=False) as client:
        queue = SweepQueue(client, order.cwd, order.submission)
        controller = Controller(
            sweep,
            queue,
            watch,
            search,
            notify=_notify,
            closed=record.closed,
            resumed=not record.is_new,
        )
        controller.begin()
        _write(Line(begun=_describe(controller, search)))
        controller.run()


def _open_search(sweep: Sweep, watch: Watch, order: str) -> Search:
    from stoker.tuning.search import Search
    from stoker.tuning.study import Study, StudyLock

    StudyLock(sweep.root, sweep.name)
    return Search(sweep, Study(sweep, _notify), watch, order, _notify)


def _describe(controller: Controller, search: Search | None) -> SearchBegun:
    if search is None:
        return SearchBegun(left=0, ended=0)
    tally = search.study.tally()
    return SearchBegun(
        left=search.left + tally.live,
        ended=tally.all - tally.live,
        first=min(controller.jobs, default=None),
    )


def _notify(text: str) -> None:
    _write(Line(notice=text))


def _write(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _end_with_input() -> None:
    # Not by sys.stdin: at its end the interpreter would wait for a buffer that a thread reads.
    while os.read(0, 4096):
        pass
    os._exit(0)
