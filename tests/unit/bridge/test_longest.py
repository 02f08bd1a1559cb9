"""What a bridge has to reckon with that is not the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.bridge import longest as module
from stoker.bridge.longest import LongestLease


def test_a_lease_that_was_longer_counts_until_it_has_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(module, "boot_s", lambda: now_s)
    path = str(tmp_path / "lease")
    first = LongestLease(path)
    for lease_s, longest_s in ((30.0, 30.0), (3600.0, 3600.0), (10.0, 3600.0)):
        first.cover(lease_s)
        assert first.seconds == longest_s

    now_s += 3000
    second = LongestLease(path)  # the first may have granted one just before it died
    second.cover(10.0)
    now_s += 3599
    second.cover(10.0)
    assert second.seconds == 3600.0
    now_s += 2
    second.cover(10.0)
    assert LongestLease(path).seconds == second.seconds == 10.0


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "lease").write_text("?")
    assert LongestLease(str(tmp_path / "lease")).seconds == 0.0
