"""The benchmark for real GPUs, on fake ones: minutes of a device are too dear to find its faults there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scale import long_only

ROOT = Path(__file__).parents[2]


@long_only
def test_it_measures_from_end_to_end_and_keeps_what_it_has(tmp_path: Path) -> None:
    words = [sys.executable, "benchmarks/gpu_sharing.py", "--dry", "--warm", "--budget", "300"]
    env = {**os.environ, "PYTHONPATH": "src", "OUT": str(tmp_path)}
    before = (ROOT / "benchmarks" / "RESULTS.md").read_bytes()

    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    for mode in ("exclusive", "shared", "shared, warm", "known, shared, warm"):
        assert f"16 small MLP runs, {mode}: " in done.stdout
    assert "starts cold" not in done.stderr
    assert "known, shared, warm, ÷ by hand (12.4 s)" in (tmp_path / "gpu_sharing.md").read_text()
    assert (ROOT / "benchmarks" / "RESULTS.md").read_bytes() == before
