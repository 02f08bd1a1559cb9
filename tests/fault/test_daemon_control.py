"""The negative control: a daemon that spawns first and saves afterwards does not pass these tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from fault.ledger import expectations, judge
from fault.work import Batch, Expected
from patience import until
from stoker.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fault.home import Home
    from fault.work import Work
    from stoker.wire import Added

NAIVE = [os.path.join(os.path.dirname(__file__), "naive_daemon.py")]
TRUE = ["-m", "stoker.daemon"]
JOBS = 250  # more than all deaths together can launch
DEATHS = 3

Start = Callable[[list[str]], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Return a starter of daemons, of either kind, that returns once they are up."""
    started: list[subprocess.Popen[bytes]] = []

    def run(words: list[str]) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        with open(home.folder / "daemon.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words, "--ready-fd", str(writer), "--gpus", "0,1"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "STOKER_PART": "daemon"},
                pass_fds=[writer],
                start_new_session=True,
            )
        started.append(process)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert file.read() == b"ready\n", home.log()
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "doubles"), [(TRUE, False), (NAIVE, True)], ids=["true", "naive"]
)
def test_only_a_daemon_that_saves_first_starts_nothing_twice(
    home: Home,
    work: Work,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    doubles: bool,
) -> None:
    jobs = [work.job(0, 0) for _ in range(JOBS)]
    batch = Batch(work.submission(jobs), [Expected(0, 1, 1)] * JOBS)
    answers: list[tuple[Batch, Added]] = []
    for death in range(DEATHS):
        file = tmp_path / f"died-{death}"
        monkeypatch.setenv("STOKER_FAILPOINT", f"after-launch:1:{file}")
        process = start(words)
        if not answers:
            with Client(home.path) as client:
                (added,) = client.add(batch.submission)
            answers.append((batch, added))
        process.wait()
        assert file.exists(), home.log()
        until(lambda seen=death: ended(home) > seen, "what was launched has ended")  # type: ignore[misc]
    monkeypatch.delenv("STOKER_FAILPOINT")
    start(words)
    with Client(home.path) as client:
        [*client.wait()]

    verdict = judge(expectations(answers), home.attempts(), work.events())

    assert bool(verdict.twice) == doubles, verdict
    assert doubles or verdict.is_clean, verdict


def ended(home: Home) -> int:
    """How many attempts have ended, as far as the journal tells."""
    return sum(words[0] == "end" for words in home.journal())
