from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_wait_for_gpus_is_explained_slot_by_slot(queue: Queue) -> None:
    queue.add("-N", "train", "-t", "1h", "sleep 60")
    queue.until_running(1)
    queue.ok("gpus", "drain", "1")
    queue.add("-g", "2", "true")

    text = queue.ok("why", "2")

    assert re.fullmatch(
        r"job 2 waits for 2 GPUs: GPU 0 held by job 1 \(train, [\d.]+s, time limit in 59m \d\ds\),"
        r" GPU 1 drained\n",
        text,
    )


def test_a_failed_need_is_explained_and_its_retry_revives_the_job(queue: Queue) -> None:
    queue.ok("add", "-N", "a", "test -e mended")
    queue.ok("add", "-N", "b", "--after", "a", "echo b")
    assert queue("wait", "--all").code == 1

    assert queue.ok("why", "b") == (
        "job 2 was skipped: it needs what did not succeed: job 1 is failed;"
        " stoker retry of what did not succeed revives it\n"
    )
    (queue.work / "mended").touch()
    queue.ok("retry", "a")
    assert queue("wait").code == 0
    assert queue.ok("log", "b") == "b\n"


def test_json_has_the_state_too(queue: Queue) -> None:
    queue.add("--hold", "true")

    assert json.loads(queue.ok("why", "@", "--json")) == {
        "id": 1,
        "state": "held",
        "text": "job 1 is held: stoker release 1 lets it go on",
        "ahead": None,
        "gpus": [],
    }


def test_an_unknown_job_is_one_clear_line(queue: Queue) -> None:
    ended = queue("why", "7")

    assert (ended.code, ended.err) == (1, "stoker: there is no job 7: stoker ls -a shows all\n")
