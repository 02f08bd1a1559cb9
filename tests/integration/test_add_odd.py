"""Logs and slots that are not what they were."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_log_that_is_a_pipe_without_a_reader_fails_its_job_and_holds_up_no_other(
    queue: Queue,
) -> None:
    os.mkfifo(queue.work / "pipe")

    piped = queue.add("-o", "pipe", "true")
    queue.add("true")
    queue("wait")

    assert queue.show(piped)["reason"] == (
        f"could not start: No such device or address: {queue.work / 'pipe'}"
    )
    assert queue.states() == {1: "failed", 2: "done"}


def test_a_daemon_whose_gpus_are_gone_starts_and_says_so(queue: Queue) -> None:
    queue.ok("daemon", "stop")
    queue.stoker.box.create(1)  # there were four

    refused = queue("add", "true")

    assert refused.code == 1
    assert "GPU 1 does not exist" in refused.err
    assert queue.ok("add", "-q", "-g", "0", "true")
