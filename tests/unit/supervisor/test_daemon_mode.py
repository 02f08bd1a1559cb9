from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.supervisor import process_tree
from stoker.supervisor.daemon_mode import ClientState, DaemonSupervisor
from stoker.supervisor.journal import Ending, Loss, Record, Refusal, read_journal
from stoker.supervisor.messages import ORDERS, Acknowledge, OpenJournal, Sync

ENDING = Ending(256, 1700000000250000, 750000, 2048)


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonSupervisor]:
    """A supervisor in this process, which gets its own signals back afterwards."""
    # Other tests may have left children of this process, like a server that forks verbs: they are no jobs.
    monkeypatch.setattr(process_tree, "living_children", set)
    handler = signal.getsignal(signal.SIGCHLD)
    supervisor = DaemonSupervisor("test", "boot")
    supervisor.journal.claim(str(tmp_path / "journal"))
    yield supervisor
    os.close(signal.set_wakeup_fd(-1))
    os.close(supervisor.wake)
    os.close(supervisor.journal._fd)
    signal.signal(signal.SIGCHLD, handler)
    supervisor.poll.close()


def test_a_supervisor_without_a_first_client_ends_after_a_while(
    supervisor: DaemonSupervisor,
) -> None:
    assert not supervisor.is_unneeded()
    assert 0 < supervisor.poll_timeout_s() <= 30

    supervisor.expect_until = time.monotonic() - 1
    assert supervisor.is_unneeded()


def test_an_idle_supervisor_waits_for_an_hour(supervisor: DaemonSupervisor) -> None:
    supervisor.client = ClientState.CONNECTED

    assert supervisor.poll_timeout_s() > 3000


def test_a_supervisor_with_an_unwritten_journal_stays(supervisor: DaemonSupervisor) -> None:
    supervisor.expect_until = 0.0
    supervisor.journal.note("end 1.1 0 1 2 3 .\n")
    assert not supervisor.is_unneeded()

    supervisor.journal.flush()
    assert supervisor.is_unneeded()


def test_a_compacted_journal_keeps_running_and_unacknowledged_attempts(
    supervisor: DaemonSupervisor, tmp_path: Path
) -> None:
    path = str(tmp_path / "journal")
    supervisor.names.add("earlier")
    supervisor.records = {
        "1.1": Record(7, 8, None, 9, 10, boot="boot"),
        "2.1": Record(7, 8, ENDING, 9, 10, boot="boot"),
        "3.1": Record(outcome=Refusal(2, "no such thing"), boot="boot"),
        "4.1": Record(7, 8, ENDING, 9, 10, boot="boot"),
    }
    supervisor.on_acknowledge(Acknowledge(["4.1", "1.1"]))
    for number in range(10, 1000):
        supervisor.journal.intend(f"spawn {number}.1 .\nack {number}.1 .\n")
    assert supervisor.compact()

    assert Path(path).read_text().startswith("boot boot earlier .\nboot boot test .\n")
    assert os.path.getsize(path) < 1000
    os.close(supervisor.journal._fd)
    try:
        assert read_journal(path) == {
            key: record for key, record in supervisor.records.items() if key != "4.1"
        }
    finally:
        supervisor.journal.open(path)


def test_every_order_has_a_handler(supervisor: DaemonSupervisor) -> None:
    assert supervisor.handlers.keys() == {*ORDERS.values()} - {OpenJournal}


def test_a_lost_attempt_is_reported_with_the_slot_that_took_it(
    supervisor: DaemonSupervisor,
) -> None:
    supervisor.records = {"1.1": Record(outcome=Loss("killed"), boot="boot", slot="3")}

    supervisor.on_sync(Sync())

    assert supervisor.reports[:2] == ['["placed", "1.1", "3"]', '["lost", "1.1", "killed", false]']


def test_a_journal_that_cannot_be_compacted_is_not_tried_again_at_once(
    supervisor: DaemonSupervisor, tmp_path: Path
) -> None:
    supervisor.journal.size = 5 << 20
    os.mkdir(tmp_path / "journal.new")  # in the way

    assert not supervisor.compact()
    assert supervisor.compact_bytes == 10 << 20
