"""Daemon and supervisor die at every place that has a name: nothing is lost, nothing is doubled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stoker
from fault.work import SLOTS, Work
from fault.workload import Day
from scale import LONG, long_only

if TYPE_CHECKING:
    from fault.conftest import Tell
    from fault.home import Home
    from fault.ledger import Verdict

_REACHED = re.compile(r"\breach\(\s*\"([a-z-]+)\"\s*\)")


def places() -> list[str]:
    """Every name in the source."""
    folder = Path(stoker.__file__).parent
    found = [
        name
        for path in sorted(folder.rglob("*.py"))
        for name in _REACHED.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) == len({*found}), "two places have the same name"
    return found


PLACES = places()
# These need a GPU and a driver: test_suspend_kills.py strikes there.
OF_SUSPENSION = [name for name in PLACES if name.startswith(("suspension-", "resumption-"))]
# test_tune.py strikes in an adaptive sweep, test_executor_memory.py with a job over its RAM.
ELSEWHERE = ("trial-", "supervisor-over-memory")
OF_DAY = [name for name in PLACES if name not in OF_SUSPENSION and not name.startswith(ELSEWHERE)]
OF_SUPERVISOR = [name for name in OF_DAY if name.startswith("supervisor-")]
OF_DAEMON = [name for name in OF_DAY if name not in OF_SUPERVISOR]

# Where it is more interesting later; all others strike when they are reached for the first time.
LATER = {
    "before-commit": 4,
    "after-commit": 3,
    "after-acknowledge": 2,
    "after-launch": 5,
    "database-after-commit": 2,
    "supervisor-intended": 7,
    "supervisor-spawned": 5,
    "supervisor-reaped": 6,
    "supervisor-before-journal": 9,
    "supervisor-before-report": 4,
    "supervisor-acknowledged": 3,
}


class Trap:
    """Armed places, each to strike once."""

    def __init__(self, folder: Path, at: Mapping[str, int]) -> None:
        self._files = {name: folder / f"struck-{name}" for name in at}
        self.variable = ",".join(f"{name}:{at[name]}:{self._files[name]}" for name in at)

    def awaits(self, name: str) -> bool:
        """Whether a place is armed at which nobody has died."""
        return name in self._files and not self._files[name].exists()

    def struck(self) -> set[str]:
        """The places at which somebody has died."""
        return {name for name, file in self._files.items() if file.exists()}


def spend_a_day(
    home: Home, work: Work, *, may_lose: bool, is_orphan_seen: Callable[[], bool] = lambda: True
) -> Verdict:
    """Use the queue while it dies again and again."""
    day = Day(home, work)
    day.begin("--gpus", ",".join(map(str, range(SLOTS))))
    day.spend(is_orphan_seen)
    return day.verdict(may_lose=may_lose)


def enter(tell: Tell, trap: Trap, verdict: Verdict) -> None:
    """Put what was found into the table, and see that it is nothing."""
    who = {"supervisor" if name in OF_SUPERVISOR else "daemon" for name in trap.struck()}
    if trap.struck():
        tell(f"{' and '.join(sorted(who))} killed at named places", len(trap.struck()), verdict)


@pytest.mark.parametrize("names", [OF_DAEMON, OF_SUPERVISOR], ids=["daemon", "supervisor"])
def test_a_death_at_every_place_in_one_day(
    home: Home,
    work: Work,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    names: list[str],
) -> None:
    trap = Trap(tmp_path, {name: LATER.get(name, 1) for name in names})
    monkeypatch.setenv("STOKER_FAILPOINT", trap.variable)

    verdict = spend_a_day(
        home,
        work,
        may_lose=names is OF_SUPERVISOR,
        is_orphan_seen=lambda: not trap.awaits("supervisor-orphan-ended"),
    )

    enter(tell, trap, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
    assert trap.struck() == {*names}


@long_only
@pytest.mark.parametrize("at", [1, 3] if LONG else [1])
@pytest.mark.parametrize("name", OF_DAEMON + OF_SUPERVISOR if LONG else ["after-launch"])
def test_a_death_at_one_place(
    home: Home,
    work: Work,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    at: int,
) -> None:
    trap = Trap(tmp_path, {name: at})
    monkeypatch.setenv("STOKER_FAILPOINT", trap.variable)

    verdict = spend_a_day(home, work, may_lose=name in OF_SUPERVISOR)

    enter(tell, trap, verdict)
    assert verdict.is_clean, f"{verdict}\n{home.log()[-3000:]}"
    assert trap.struck() or at > 1
