from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run

import pytest

from stoker.gpus.topology import CACHE
from stoker.testing.state import FakeGpus

# The library is found when a process starts, so each boot is one of its own.
READ = """
import sys
from stoker.gpus import topology
from stoker.gpus.nvml import Nvml
topology._BOOT_ID = sys.argv[2]
nvml = Nvml()
found = topology.read_links(nvml, sys.argv[1])
keys = [gpu.uuid for gpu in nvml.gpus()]
print(*[found[frozenset((a, b))].name for a in keys for b in keys if a < b])
"""


@pytest.fixture
def read(tmp_path: Path, fake_gpus: Callable[..., FakeGpus]) -> Callable[[], list[str]]:
    box = fake_gpus(3)
    box.join("pcie-2x4")
    (tmp_path / "boot").write_text("first\n")

    def links() -> list[str]:
        words = [sys.executable, "-c", READ, str(tmp_path), str(tmp_path / "boot")]
        env = {**os.environ, **box.env()}
        return run(words, env=env, capture_output=True, text=True, check=True).stdout.split()

    return links


def test_links_are_read_once_per_boot(
    tmp_path: Path, fake_gpus: Callable[..., FakeGpus], read: Callable[[], list[str]]
) -> None:
    box = FakeGpus(tmp_path / "nvml")
    assert read() == ["SWITCH"] * 3
    box.join("nvswitch")
    assert read() == ["SWITCH"] * 3
    (tmp_path / "boot").write_text("second\n")
    assert read() == ["NVLINK"] * 3
    box.join("equal")
    box.plug()
    assert read() == ["NODE"] * 6


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"boot_id":"first","gpus":[],"links":[9]}', None]
)
def test_a_cache_that_is_no_cache_changes_nothing(
    tmp_path: Path, read: Callable[[], list[str]], content: bytes | None
) -> None:
    if content is None:
        (tmp_path / CACHE).mkdir()
    else:
        (tmp_path / CACHE).write_bytes(content)
    assert read() == ["SWITCH"] * 3
