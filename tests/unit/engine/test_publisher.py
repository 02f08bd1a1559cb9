from __future__ import annotations

import errno
import io
import os

import pytest

from stoker.core.lifecycle import State
from stoker.engine.publisher import log
from stoker.wire import JobEvent, NoticeEvent, StreamEvent
from unit.engine.world import FAILED, World


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def told(world: World) -> list[tuple[int, State, int, str | None, str | None]]:
    """What listeners hear while a job fails once and then succeeds."""
    listener = world.hub.events.listen()
    world.add("a", retries=1)
    world.end("1.1", FAILED)
    world.end("1.2")
    events: list[StreamEvent] = world.run(listener.__anext__())
    listener.close()
    return [
        (event.id, event.state, event.attempt, event.slots, event.reason)
        for event in events
        if isinstance(event, JobEvent)
    ]


def test_every_step_of_a_job_is_told_to_those_who_listen(world: World) -> None:
    assert told(world) == [
        (1, State.STARTING, 1, "0", None),
        (1, State.RUNNING, 1, "0", None),
        (1, State.FAILED, 1, "0", "exit 1"),
        (1, State.WAITING, 1, "0", None),
        (1, State.STARTING, 2, "0", None),
        (1, State.RUNNING, 2, "0", None),
        (1, State.DONE, 2, "0", None),
    ]


def test_without_listeners_whoever_waits_for_a_change_hears_of_one(world: World) -> None:
    version = world.hub.events.version
    world.add("a")

    assert world.hub.events.version != version


def test_notices_are_kept_for_status_written_to_the_log_and_told(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = world.hub.events.listen()
    for number in range(25):
        world.hub.publisher.on_notice(f"notice {number}")
    events = world.run(listener.__anext__())
    listener.close()

    assert len(world.hub.publisher.notices) == 20
    assert world.hub.publisher.notices[-1].endswith(" notice 24")
    assert capsys.readouterr().err.count("notice") == 25
    assert [event.text for event in events if isinstance(event, NoticeEvent)][:2] == [
        "notice 0",
        "notice 1",
    ]


def test_a_log_on_a_full_disk_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", FullDisk())
    log("nobody reads this")
