from __future__ import annotations

import errno
import io
import os

import pytest

from stoker.core.lifecycle import State
from stoker.engine.event_publisher import log
from stoker.wire import JobEvent, NoticeEvent, StreamEvent
from unit.engine.engine_harness import FAILED, Harness


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def told(harness: Harness) -> list[tuple[int, State, int, str | None, str | None]]:
    """What listeners hear while a job fails once and then succeeds."""
    listener = harness.context.events.listen()
    harness.add("a", retries=1)
    harness.end("1.1", FAILED)
    harness.end("1.2")
    events: list[StreamEvent] = harness.run(listener.__anext__())
    listener.close()
    return [
        (event.id, event.state, event.attempt, event.slots, event.reason)
        for event in events
        if isinstance(event, JobEvent)
    ]


def test_every_step_of_a_job_is_told_to_those_who_listen(harness: Harness) -> None:
    assert told(harness) == [
        (1, State.STARTING, 1, "0", None),
        (1, State.RUNNING, 1, "0", None),
        (1, State.FAILED, 1, "0", "exit 1"),
        (1, State.WAITING, 1, "0", None),
        (1, State.STARTING, 2, "0", None),
        (1, State.RUNNING, 2, "0", None),
        (1, State.DONE, 2, "0", None),
    ]


def test_without_listeners_whoever_waits_for_a_change_hears_of_one(harness: Harness) -> None:
    version = harness.context.events.version
    harness.add("a")

    assert harness.context.events.version != version


def test_notices_are_kept_for_status_written_to_the_log_and_told(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = harness.context.events.listen()
    for number in range(25):
        harness.context.publisher.on_notice(f"notice {number}")
    events = harness.run(listener.__anext__())
    listener.close()

    assert len(harness.context.publisher.notices) == 20
    assert harness.context.publisher.notices[-1].endswith(" notice 24")
    assert capsys.readouterr().err.count("notice") == 25
    assert [event.text for event in events if isinstance(event, NoticeEvent)][:2] == [
        "notice 0",
        "notice 1",
    ]


def test_a_log_on_a_full_disk_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", FullDisk())
    log("nobody reads this")


def test_a_sweep_that_is_ordered_anew_loses_its_notices(harness: Harness) -> None:
    publisher = harness.context.publisher
    for text in ("sweep a: no run has reported loss", "sweep a begins no more runs", "sweep ab: b"):
        publisher.on_notice(text)

    publisher.forget_sweep("a")

    [left] = publisher.notices
    assert left.endswith(" sweep ab: b")
