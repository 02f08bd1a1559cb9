from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def reserved(queue: Queue) -> list[dict[str, Any]]:
    found = json.loads(queue.ok("reserve", "--json"))
    assert isinstance(found, list)
    return found


def held_by(queue: Queue) -> dict[str, str | None]:
    return {gpu["label"]: gpu["reserved_until"] for gpu in json.loads(queue.ok("gpus", "--json"))}


def test_a_reservation_is_shown_survives_its_daemon_and_is_ended(idle_queue: Queue) -> None:
    queue = idle_queue
    said = queue.ok("reserve", "1", "--for", "2h")
    assert re.fullmatch(r"reservation 1: 1 GPU until (\w+ )?\d\d:\d\d; GPU 0\n", said)
    assert "reserved until" in queue.ok("status")
    assert [label for label, until in held_by(queue).items() if until] == ["0"]
    job = queue.add("echo ran")
    queue.ok("wait", str(job))
    before = reserved(queue)

    queue.kill_daemon()
    assert [label for label, until in held_by(queue).items() if until] == ["0"]
    assert reserved(queue) == before
    assert [each["held"] for each in before] == [["0"]]

    stopped = queue("daemon", "stop")
    assert "stoker: GPU 0 stays reserved, until " in stopped.err
    assert queue("reserve").code == 1
    assert queue.ok("reserve", "--end", "1") == "reservation 1 has ended\n"
    queue.until(lambda: not any(held_by(queue).values()), "nothing is reserved")
    assert reserved(queue) == []


def test_a_later_reservation_holds_nothing_yet_and_can_be_forgotten(queue: Queue) -> None:
    said = queue.ok("reserve", "2", "--for", "1h", "--from", "+2h")
    assert "; begins in 1h 59m" in said
    assert not any(held_by(queue).values())
    listed = queue.ok("reserve").splitlines()
    assert listed[0].split() == ["ID", "GPUS", "FROM", "UNTIL", "HAS"]
    assert len(listed) == 2
    assert queue.ok("complete", "--", "reserve", "--end", "") == "1\tGPUs reserved: 2\n"
    assert queue.ok("reserve", "--end", "1") == "reservation 1 is forgotten; it had not begun\n"

    ended = queue("reserve", "3", "--for", "1h")
    assert ended.code == 1
    assert ended.err == "stoker: cannot reserve 3 GPUs: this queue has 2 GPUs of this machine\n"
