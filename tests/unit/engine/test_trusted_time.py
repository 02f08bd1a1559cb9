"""A clock that has jumped ahead is not believed at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.engine.trusted_time import TrustedTime
from stoker.store.database import Database

DAY_S = 86400.0
BEGIN_S = 20_000 * DAY_S


class Machine:
    """A machine whose clock can be set, and which can be restarted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.clock_s, self.uptime_s = BEGIN_S, 100.0
        monkeypatch.setattr("stoker.engine.trusted_time.time.time", lambda: self.clock_s)
        self.restart()

    def restart(self) -> None:
        """Start a new daemon on the same database."""
        self.time = TrustedTime(
            Database(str(self._folder / "stoker.db")), uptime_s=lambda: self.uptime_s
        )

    def spend(self, seconds: float) -> None:
        """Let time go by."""
        self.clock_s += seconds
        self.uptime_s += seconds


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine whose clock has been seen once."""
    machine = Machine(tmp_path, monkeypatch)
    assert machine.time.now() == BEGIN_S
    return machine


def test_time_that_goes_by_is_believed(machine: Machine) -> None:
    for _ in range(100):
        machine.spend(DAY_S)
        assert machine.time.now() == machine.clock_s
        assert machine.time.ahead_s == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_jump_ahead_is_believed_after_a_day(machine: Machine, *, restarts: bool) -> None:
    machine.clock_s += 91 * DAY_S
    if restarts:
        machine.restart()
    assert machine.time.now() == BEGIN_S
    assert machine.time.ahead_s == 91 * DAY_S
    machine.spend(DAY_S / 2)
    assert machine.time.now() == BEGIN_S + DAY_S / 2

    machine.spend(DAY_S / 2)

    assert machine.time.now() == machine.clock_s
    assert machine.time.ahead_s == 0


def test_a_jump_ahead_that_is_mended_leaves_no_trace(machine: Machine) -> None:
    machine.clock_s += 91 * DAY_S
    machine.time.now()
    machine.clock_s -= 91 * DAY_S
    machine.spend(3600)

    assert machine.time.now() == machine.clock_s
    assert machine.time.ahead_s == 0


def test_a_clock_that_is_set_back_is_believed(machine: Machine) -> None:
    machine.clock_s -= 3650 * DAY_S

    assert machine.time.now() == machine.clock_s
