"""How long jobs may run without word from their head."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stoker.supervisor import process_tree
from stoker.supervisor.lease_file import LeaseFile, write


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_jobs_may_run_until_the_end_of_the_lease(tmp_path: Path) -> None:
    path = str(tmp_path / "lease_file")
    assert LeaseFile(path).left_s() == 0
    write(path, boot_s() + 30)
    assert 29 < LeaseFile(path).left_s() < 30.001
    write(path, boot_s() - 1)
    assert LeaseFile(path).left_s() == 0


def test_a_lease_of_an_earlier_boot_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lease_file"
    write(str(path), boot_s() + 30)
    monkeypatch.setattr(process_tree, "boot_id", lambda: "00000000-0000-0000-0000-000000000000")
    assert LeaseFile(str(path)).left_s() == 0


def test_a_torn_or_foreign_lease_file_has_expired(tmp_path: Path) -> None:
    path = tmp_path / "lease_file"
    write(str(path), boot_s() + 30)
    whole = path.read_text()
    for text in ("", "nonsense", whole[:-4], whole.replace(".", "9."), "é"):
        path.write_text(text)
        assert LeaseFile(str(path)).left_s() == 0
