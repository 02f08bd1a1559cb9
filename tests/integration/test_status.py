from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_daemon_counts_and_gpus_are_shown(queue: Queue) -> None:
    queue.add("false")
    queue("wait")
    job = queue.add("sleep 60")
    queue.until_running(job)

    text = queue.ok("status")

    assert re.search(r"(?m)^daemon +stoker \S+, pid \d+, up ", text)
    assert re.search(rf"(?m)^home +{queue.home}$", text)
    assert re.search(r"(?m)^1 failed +1 running$", text)
    assert re.search(r"(?m)^[01] +2 +running$", text)
    assert re.search(r"(?m)^[01] +– +free$", text)


def test_json_has_the_same_facts(queue: Queue) -> None:
    status = json.loads(queue.ok("status", "--json"))

    assert status["home"] == str(queue.home)
    assert [slot["label"] for slot in status["slots"]] == ["0", "1"]
    assert queue.stoker.is_alive(status["pid"])


def test_without_a_daemon_there_is_one_line_that_says_how_to_start_it(idle_queue: Queue) -> None:
    ended = idle_queue("status")

    assert (ended.code, ended.out) == (1, "")
    assert "stoker daemon start" in ended.err
    assert ended.err.count("\n") == 1
