"""`python -m stoker.worker_tasks NAME HOME`: runs one worker task; the exit code gives the kind of error."""

from __future__ import annotations

import os
import sys

import msgspec

from stoker import wire
from stoker.engine.worker_process import CODES
from stoker.errors import StokerError


def main() -> int:
    """Run the worker task that the command line names."""
    name, home = sys.argv[1:]
    try:
        answer = _do(name, home)
        code = 0
    except StokerError as error:
        code = next(code for kind, code in CODES if isinstance(error, kind))
        answer = msgspec.json.encode({"detail": str(error), "field": error.field})
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return code


def _do(name: str, home: str) -> bytes:
    os.nice(5)  # jobs come first
    if name == "steer":
        from stoker.worker_tasks.steer import steer

        steer(home)
        return b""
    data = sys.stdin.buffer.read()
    if name == "plan":
        from stoker.worker_tasks.plan import plan

        return msgspec.json.encode(plan(home, msgspec.json.decode(data, type=wire.SweepDraft)))
    if name == "queue":
        from stoker.worker_tasks.queue import queue

        return msgspec.json.encode(queue(home, msgspec.json.decode(data, type=wire.SweepOrder)))
    if name in ("suspend", "check", "restore", "states"):
        from stoker.engine.suspend_helper import HelperOrder
        from stoker.worker_tasks import suspend

        order = msgspec.json.decode(data, type=HelperOrder)
        return msgspec.json.encode(suspend.carry_out(name, home, order))
    from stoker.worker_tasks import results

    question = msgspec.json.decode(data, type=results.Question)
    if name == "results":
        return msgspec.json.encode(results.collect_results(home, question))
    if name == "curves":
        return msgspec.json.encode(results.collect_curves(home, question))
    assert name == "export"
    return results.export(home, question)


sys.exit(main())
