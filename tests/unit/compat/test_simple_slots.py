"""simple_gpu_scheduler leases GPUs by the keys that other runs of Stoker use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stoker.compat.simple_gpu_scheduler import read_slots
from stoker.testing.state import FakeGpus

if TYPE_CHECKING:
    from pathlib import Path


def test_a_gpu_is_leased_by_its_uuid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = FakeGpus(tmp_path).create(2)
    for name, value in box.env().items():
        monkeypatch.setenv(name, value)
    zero, one = (gpu.uuid for gpu in box.gpus())

    keys = [slot.keys for slot in read_slots(["0", "1", "0,1", zero, "7", "-1", "0"])]

    assert keys == [(zero,), (one,), (zero, one), (zero,), ("7",), (), (zero,)]
