"""Checkpoints travel with their job: to the node before a start, to the head before an end and meanwhile."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge.agent_messages import (
    CacheFailure,
    CollectCheckpoints,
    FetchCheckpoints,
    FindMissing,
)
from unit.bridge.staging_harness import ProxyHarness, run

ENDED = ["ended", "7.1", 0, 1, 2, 3]
LOST = ["lost", "7.1", "its lease", True]


def here(harness: ProxyHarness) -> Path:
    return Path(harness.files.checkpoints) / "0" / "7"


def there(harness: ProxyHarness) -> Path:
    return Path(harness.checkpoints.path(7))


def write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "last").write_text(text)


async def start(harness: ProxyHarness) -> None:
    await harness.order(["start", "7.1", 0, 0, ["true"], None])


async def end(harness: ProxyHarness, line: list[Any]) -> None:
    """Report the end of the attempt, as a node does that has checkpoints of it."""
    harness.report("checkpoints", "7.1", True)
    harness.report(*line)
    await harness.until(lambda: harness.delivered)


@pytest.mark.parametrize("line", [ENDED, LOST])
def test_checkpoints_are_on_the_head_before_the_end_is_reported(
    tmp_path: Path, line: list[Any]
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "epoch 5")
        await end(harness, line)
        assert harness.delivered == [line]
        assert (here(harness) / "last").read_text() == "epoch 5"
        assert not there(harness).exists()

    run(tmp_path, scenario)


def test_checkpoints_are_on_the_node_before_the_start(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        write(here(harness), "epoch 5")
        await harness.order(["checkpoints", "7.1"])
        await start(harness)
        await harness.until(lambda: harness.sent)
        assert harness.sent == [["start", "7.1", 0, 0, ["true"], None, None, None, 0, 0, 0]]
        assert (there(harness) / "last").read_text() == "epoch 5"
        await harness.order(["start", "8.1", 0, 0, ["true"], None])
        assert len(harness.sent) == 2

    run(tmp_path, scenario)


def test_checkpoints_go_along_with_a_tree(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        write(here(harness), "epoch 5")
        await harness.order(["checkpoints", "7.1"])
        await harness.launch("7.1")
        await harness.until(lambda: harness.sent)
        assert [message[0] for message in harness.sent] == ["copy", "start"]
        assert (there(harness) / "last").read_text() == "epoch 5"

    run(tmp_path, scenario)


def test_a_start_is_refused_if_its_checkpoints_find_no_room(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        write(here(harness), "epoch 5")
        full = CacheFailure("no space is left", errno.ENOSPC)
        harness.failures[FindMissing] = full
        await harness.order(["checkpoints", "7.1"])
        await start(harness)
        await harness.until(lambda: harness.delivered)
        assert harness.delivered == [["refused", "7.1", errno.ENOSPC, "no space is left"]]

    run(tmp_path, scenario)


def test_checkpoints_beyond_the_limit_stay_and_the_daemon_is_told(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "x" * 2000)
        await end(harness, ENDED)
        reason = "0 MiB are more than sync.limit"
        assert harness.delivered == [["stayed", "7.1", reason], ENDED]
        assert harness.notices == [f"job 7: its checkpoints stay on its node: {reason}"]
        assert there(harness).exists()

    run(tmp_path, scenario)


def test_a_job_starts_without_checkpoints_that_are_too_large_to_travel(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        write(here(harness), "x" * 2000)
        await harness.order(["checkpoints", "7.1"])
        await start(harness)
        await harness.until(lambda: harness.sent)
        assert not there(harness).exists()
        assert "it starts without its checkpoints" in harness.notices[0]

    run(tmp_path, scenario)


def test_an_end_is_reported_although_its_checkpoints_cannot_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.staging.transfer._PAUSE_S", 0.0)

    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "epoch 5")
        harness.broken = {FetchCheckpoints}
        await end(harness, ENDED)
        assert harness.delivered == [["stayed", "7.1", "gone"], ENDED]
        assert there(harness).exists()

    run(tmp_path, scenario)


def test_checkpoints_of_a_running_attempt_are_brought_and_stay_on_the_node(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "epoch 5")
        harness.report("checkpoints", "7.1", False)
        await harness.until(lambda: (here(harness) / "last").exists())
        assert harness.delivered == []
        assert there(harness).exists()

    run(tmp_path, scenario)


def test_the_end_waits_for_a_transfer_under_way_and_brings_the_last_state(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "epoch 5")
        may_go_on = asyncio.Event()
        serve = harness.serve

        async def wait_and_serve(data: bytes) -> bytes:
            await may_go_on.wait()
            return await serve(data)

        harness.serve = wait_and_serve  # type: ignore[method-assign]
        harness.report("checkpoints", "7.1", False)
        write(there(harness), "epoch 6")
        harness.report("checkpoints", "7.1", True)
        harness.report(*ENDED)
        may_go_on.set()
        await harness.until(lambda: harness.delivered)
        assert (here(harness) / "last").read_text() == "epoch 6"
        assert not there(harness).exists()

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_over", [True, False])
def test_an_attempt_that_the_daemon_does_not_want_replaces_no_checkpoints(
    tmp_path: Path, is_over: bool
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        write(here(harness), "those of the next attempt")
        write(there(harness), "epoch 5")
        await harness.order(["keep", ["8.1"]])
        harness.report("checkpoints", "7.1", is_over)
        harness.report(*ENDED)
        assert harness.delivered == [ENDED]
        assert CollectCheckpoints not in harness.asked
        assert (here(harness) / "last").read_text() == "those of the next attempt"

    run(tmp_path, scenario)


def test_a_new_stream_brings_what_the_last_one_did_not(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        write(there(harness), "epoch 5")
        harness.staging_proxy.close()
        harness.staging_proxy = harness.make_staging_proxy()
        await harness.order(["keep", ["7.1"]])
        await end(harness, ENDED)
        assert (here(harness) / "last").read_text() == "epoch 5"

    run(tmp_path, scenario)
