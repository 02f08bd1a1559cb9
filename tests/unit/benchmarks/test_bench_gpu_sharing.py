"""What the benchmark for real GPUs measures, and in which order."""

from __future__ import annotations

from benchmarks.gpu_sharing import MODES, ORDER, WORKLOADS


def test_every_workload_is_measured_in_every_mode_it_names() -> None:
    named = {(workload.kind, mode) for workload in WORKLOADS for mode in workload.modes}
    assert set(ORDER) == named
    assert {mode for _kind, mode in ORDER} == set(MODES)
    assert len(ORDER) == len(set(ORDER))
