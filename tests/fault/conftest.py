"""What the fault tests share, and the table of faults at their end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from fault.home import Home
from fault.table import PROPERTY, Entry, format_table
from fault.work import Work, build_job
from scale import LONG

if TYPE_CHECKING:
    from pathlib import Path

    from fault.ledger import Verdict

Tell = Callable[..., None]


@pytest.fixture(scope="session")
def job_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the tiny job, compiled once."""
    return build_job(tmp_path_factory.mktemp("job"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Return a daemon's home; nothing that belongs to it is alive when the test is over."""
    home = Home(tmp_path)
    monkeypatch.setenv("STOKER_HOME", home.path)
    monkeypatch.setenv("STOKER_TEST_HOME", home.path)
    monkeypatch.setenv("STOKER_LEASE_DIR", home.lease_folder)
    for name in ("STOKER_FAILPOINT", "CUDA_VISIBLE_DEVICES", "STOKER_COOKIE", "STOKER_PART"):
        monkeypatch.delenv(name, raising=False)
    yield home
    home.close()


@pytest.fixture
def work(home: Home, job_program: str) -> Work:
    """Return a maker of jobs, the same in every run."""
    return Work(job_program, home.work, random.Random(0))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Return a function that enters what a test has found into the table of faults."""

    def enter(fault: str, rounds: int, verdict: Verdict, **details: int) -> None:
        entry = Entry(
            fault,
            rounds,
            len(verdict.lost),
            len(verdict.twice),
            len(verdict.overlaps),
            len(verdict.leaked),
            len(verdict.stranded),
        )
        record_property(PROPERTY, [*entry, details])

    return enter


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of faults, where there is anything to put into it."""
    found, failed = [], set()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                entries = [value for name, value in report.user_properties if name == PROPERTY]
                found += entries
                failed |= {entry[0] for entry in entries if report.failed}
    if found:
        terminalreporter.write_line("")
        terminalreporter.write_line(format_table(found, failed))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, on all workers: each gets two tests at first, and then one by one."""
    if LONG:
        items.sort(key=lambda item: "test_daemon_kills" not in item.nodeid)
        longest = sum("test_daemon_kills" in item.nodeid for item in items)
        for number in range(longest):
            items.insert(2 * number + 1, items.pop())
