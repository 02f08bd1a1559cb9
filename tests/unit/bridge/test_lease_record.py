"""What a bridge has to reckon with that is not the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.bridge import lease_record as module
from stoker.bridge.lease_record import LeaseRecord


class Clock:
    """The head's boot clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.boot = "first"
        monkeypatch.setattr(module, "boot_clock_s", lambda: self.now_s)
        monkeypatch.setattr(module, "boot_id", lambda: self.boot)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_was_granted_until_now_lasts_for_a_whole_lease(tmp_path: Path, clock: Clock) -> None:
    path = str(tmp_path / "leases")
    assert LeaseRecord(path).lease_s is None
    LeaseRecord(path).grant(30.0)
    clock.now_s += 500
    assert LeaseRecord(path).lease_s == 30.0
    assert LeaseRecord(path).over_at() == clock.now_s + 30


def test_longer_leases_count_until_they_have_run_out(tmp_path: Path, clock: Clock) -> None:
    path = str(tmp_path / "leases")
    LeaseRecord(path).grant(3600.0)
    clock.now_s += 100
    LeaseRecord(path).grant(10.0)
    clock.now_s += 100
    LeaseRecord(path).grant(20.0)
    assert LeaseRecord(path).over_at() == 1000 + 100 + 3600
    clock.now_s += 3490
    assert LeaseRecord(path).over_at() == clock.now_s + 20


def test_after_a_restart_of_the_machine_they_may_have_been_granted_just_now(
    tmp_path: Path, clock: Clock
) -> None:
    path = str(tmp_path / "leases")
    LeaseRecord(path).grant(3600.0)
    LeaseRecord(path).grant(10.0)
    LeaseRecord(path).grant(5.0)
    clock.now_s, clock.boot = 5.0, "second"
    assert LeaseRecord(path).over_at() == 5 + 3600


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("?")
    assert LeaseRecord(str(tmp_path / "leases")).lease_s is None


def test_a_lease_that_could_not_be_put_on_record_is_not_granted(
    tmp_path: Path, clock: Clock
) -> None:
    leases = LeaseRecord(str(tmp_path / "leases"))
    leases.grant(30.0)
    (tmp_path / "leases.new").mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            leases.grant(300.0)
    assert leases.lease_s == 30.0
    assert leases.over_at() == clock.now_s + 30
