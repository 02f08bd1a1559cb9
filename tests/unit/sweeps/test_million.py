"""Large sweeps: made one run at a time."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

from stoker.sweeps.plan import plan_sweep

LARGE: dict[str, Any] = {
    "command": "python train.py {args} --out {dir}",
    "parameters": {"a": "range(1000)", "b": "range(1000)", "c": [0.5]},
}


def test_a_million_runs_begin_at_once_and_are_never_held() -> None:
    tracemalloc.start()
    started_s = time.process_time()

    sweep = plan_sweep(LARGE)
    first = next(iter(sweep))
    begun_s = time.process_time() - started_s
    for _number, _run in zip(range(20_000), sweep, strict=False):
        pass
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert sweep.count == 1_000_000
    assert first.params == {"a": 0, "b": 0, "c": 0.5}
    assert begun_s < 1.0
    assert peak_bytes < 20 * 2**20


def test_a_run_costs_less_than_its_share_of_the_limit() -> None:
    sweep = plan_sweep(LARGE)
    started_s = time.process_time()

    for _number, _run in zip(range(50_000), sweep, strict=False):
        pass

    assert time.process_time() - started_s < 50_000 * 20e-6  # 20 s for a million
