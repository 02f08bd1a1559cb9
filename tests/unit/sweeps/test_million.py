"""Large sweeps: made one run at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any

from stoker.sweeps.plan import plan_sweep

LARGE: dict[str, Any] = {
    "command": "python train.py {args} --out {dir}",
    "parameters": {"a": "range(1000)", "b": "range(1000)", "c": [0.5]},
}


def test_a_million_runs_start_at_once_and_are_never_in_memory_together() -> None:
    tracemalloc.start()

    sweep = plan_sweep(LARGE)
    first = next(iter(sweep))
    begun_bytes = tracemalloc.get_traced_memory()[1]
    for _number, _run in zip(range(20_000), sweep, strict=False):
        pass
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert sweep.count == 1_000_000
    assert first.params == {"a": 0, "b": 0, "c": 0.5}
    assert begun_bytes < 2**20
    assert peak_bytes < 20 * 2**20
