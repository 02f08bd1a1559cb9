from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_what_was_learned_of_a_kind_foretells_the_next(queue: Queue) -> None:
    queue.add("-g", "2", "sleep 2")
    queue.ok("wait")
    queue.ok("pause", "--queue")
    # Of the same kind by their first words, but these are still there when they are looked at.
    queue.ok("add", "-g", "2", "--batch", "-", stdin="sleep 2 && sleep 600\n" * 60)

    queue.until(lambda: 100 < (json.loads(queue.ok("status", "--json"))["eta_s"] or 0) < 200)
    assert re.search(r"60 waiting +~[23]m left", queue.ok("status"))
    assert re.search(r"the whole queue: ~[23]m left", queue.shown("ls"))
    learned = queue.ok("add", "--dry-run", "-g", "2", "sleep 2")
    assert re.fullmatch(
        r"the queue is paused \(.+\); once it is resumed, starts in ~[23]m, done ~\d\d:\d\d, 2\.\ds each\n",
        learned,
    )
    planned = json.loads(queue.ok("add", "--dry-run", "-g", "2", "-p", "1", "--json", "sleep 2"))
    assert planned["like"] == "kind"
    assert [each["project"] for each in planned["delays"]] == [None]
    assert "as runs of this program took" in queue.ok("add", "--dry-run", "-P", "new", "sleep 2")
    sweep = queue.ok("sweep", "--dry-run", "sleep {s}", "s=2,3")
    assert re.search(r"(?m)^plan: the queue is paused.* starts in ~[23]m, done ", sweep)
    assert len(queue.ls()) == 61
    queue.ok("start", "2")
    queue.until_running(2)
    assert re.search(r"(?m)^2 +running .*(~\ds left|any moment)", queue.ok("ls"))
    assert "as others of its kind" in queue.ok("show", "2")
