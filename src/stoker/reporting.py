"""`stoker.report(step, val_acc=0.9)`: metrics of a training script.

Standard library only; does nothing outside of a sweep. Each call appends one line to `metrics.jsonl` in the
run's folder, in one write, so that several processes may report at once.
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
    """Record metrics of this run, with its step if given. Returns True if the run should stop early.

    Accepts numbers of numpy and torch. Does nothing outside of Stoker.
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
    """Convert a value for JSON; numbers that JSON lacks (nan, inf) become text."""
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if not isinstance(value, float):
        item = getattr(value, "item", None)
        if not callable(item):
            raise TypeError(f"a metric is a number or a text, not {value!r}")
        return _plain(item())
    return value if value - value == 0 else str(value)
