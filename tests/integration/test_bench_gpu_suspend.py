"""The benchmark for real GPUs, on fake ones: minutes of a device are too dear to find its faults there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scale import long_only

ROOT = Path(__file__).parents[2]


@long_only
def test_it_measures_from_end_to_end(tmp_path: Path) -> None:
    words = [sys.executable, "benchmarks/gpu_suspend.py", "--dry", "--rounds", "1"]
    env = {**os.environ, "PYTHONPATH": "src", "OUT": str(tmp_path)}

    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "gpu_suspend.md").read_text()
    assert "losses that differ from an undisturbed run | 0.00 steps" in kept
    assert "1,024 MiB before, 0 MiB while suspended" in kept
