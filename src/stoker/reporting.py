"""`stoker.report(step, val_acc=0.9)`: what a training script says to Stoker.

Standard library only, and nothing at all outside of a sweep: a script that reports needs no Stoker
to run. Each call appends one line to `metrics.jsonl` in the run's folder, in one write, so that
several processes may report at once.
"""

from __future__ import annotations

import os

RUN_DIR = "STOKER_RUN_DIR"
METRICS = "metrics.jsonl"
STOP = ".stop"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def report(step: int | None = None, **metrics: Any) -> bool:
    """Record metrics of this run, at a step if it has any; True if the run has been asked to stop.

    Numbers of numpy and torch are taken as they are. Outside of Stoker it does nothing.
    """
    folder = os.environ.get(RUN_DIR)
    if not folder:
        return False
    import json
    import time

    entry: dict[str, Any] = {} if step is None else {"step": _plain(step)}
    entry["time"] = round(time.time(), 3)
    entry.update((name, _plain(value)) for name, value in metrics.items())
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        file = os.open(os.path.join(folder, METRICS), flags, 0o666)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        file = os.open(os.path.join(folder, METRICS), flags, 0o666)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return os.path.exists(os.path.join(folder, STOP))


def _plain(value: Any) -> Any:
    """A value as JSON can say it; what is no number to JSON (nan, inf) as a text."""
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if not isinstance(value, float):
        item = getattr(value, "item", None)
        if not callable(item):
            raise TypeError(f"a metric is a number or a text, not {value!r}")
        return _plain(item())
    return value if value - value == 0 else str(value)
