"""Staging proxy: trees go to the node before attempts, results come back before their ends."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge import remote_node_cache
from stoker.bridge import staging_proxy as module
from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.agent_messages import (
    CacheFailure,
    Collect,
    FindMissing,
    LayOut,
    decode_request,
)
from stoker.bridge.file_writers import FileWriters
from stoker.bridge.remote_node_cache import RemoteNodeCache
from stoker.bridge.staging_proxy import StagingProxy
from unit.bridge.staging_harness import ProxyHarness, head_files, run

TREE = ["tree", "1.1", {"argv": ["true"], "snapshot": "/nowhere"}]
ORDERS = [[["hold", 0]], [TREE], [["release", 0, []]]]
ENDED = ["ended", "1.1", 0, 1, 2, 3]
STREAM = b"".join(f"{json.dumps(line)}\n".encode() for line in ORDERS)


@pytest.mark.parametrize("cut", range(0, len(STREAM), 3))
def test_a_transfer_is_not_passed_on_wherever_the_stream_is_cut(tmp_path: Path, cut: int) -> None:
    sent: list[list[Any]] = []

    async def send(lines: list[bytes]) -> None:
        for line in lines:
            sent.extend(json.loads(line))

    async def pass_all() -> None:
        staging_proxy = StagingProxy(
            None,  # type: ignore[arg-type]
            send,
            lambda _data: None,
            print,
            head_files(tmp_path),
            FileWriters(),
        )
        await staging_proxy.pass_on(STREAM[:cut])
        await staging_proxy.pass_on(STREAM[cut:])

    asyncio.run(pass_all())
    assert sent == [["hold", 0], ["release", 0, []]]


def test_reports_without_a_transfer_pass_unchanged(tmp_path: Path) -> None:
    passed: list[bytes] = []
    reports = [b'["ended", "1.1", 0, 1, 2, 3]', b'["finished"]', b'["busy"]']

    async def bring() -> None:
        staging_proxy = StagingProxy(
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            passed.append,
            print,
            head_files(tmp_path),
            FileWriters(),
        )
        staging_proxy.bring(reports)

    asyncio.run(bring())
    assert b"".join(passed).splitlines() == reports


def verbs(messages: list[list[Any]]) -> list[str]:
    return [str(message[0]) for message in messages]


def test_a_start_that_was_sent_is_revoked_by_the_node(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.is_slow = True
        await harness.launch()
        await harness.until(lambda: harness.sent)
        order = asyncio.ensure_future(harness.order(["revoke", "1.1"]))
        await harness.until(lambda: harness.delivered or "revoke" in verbs(harness.sent))
        order.cancel()

        assert verbs(harness.sent) == ["copy", "start", "revoke"]
        assert harness.delivered == []

    run(tmp_path, scenario)


def test_an_attempt_is_revoked_here_while_its_tree_is_uploaded(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await harness.launch()
        await harness.order(["revoke", "1.1"])

        assert harness.delivered == [["revoked", "1.1"]]
        assert harness.sent == []

    run(tmp_path, scenario)


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.staging.transfer._PAUSE_S", 0.0)


async def start(harness: ProxyHarness, **facts: Any) -> Path:
    """Start an attempt on the node; return its copy there."""
    await harness.launch(**facts)
    await harness.until(lambda: harness.sent)
    (copy,) = harness.copies.iterdir()
    return copy / "tree"


def test_an_end_is_reported_although_its_results_cannot_be_written(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1000)
        (tree / "results").mkdir()
        (tree / "results" / "x").write_text("x")
        harness.target.write_text("no folder")
        harness.report(*ENDED)
        await harness.until(lambda: harness.delivered)

        assert harness.delivered == [ENDED]
        (told,) = harness.notices
        assert told.startswith("job 1: its results could not be brought: cannot write in")
        assert f"left in {tree}/results" in told

    run(tmp_path, scenario)


@pytest.mark.usefixtures("_no_pause")
def test_an_end_is_reported_although_the_node_cache_does_not_answer(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness, results="results", target=str(harness.target))
        harness.broken = {Collect}
        harness.report(*ENDED)
        await harness.until(lambda: harness.delivered)

        assert harness.delivered == [ENDED]
        assert harness.notices == ["job 1: its results could not be brought: gone"]

    run(tmp_path, scenario)


def test_an_attempt_is_refused_if_its_transfer_cannot_be_recorded(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.notes.write_text("no folder")
        await harness.launch()
        await harness.until(lambda: harness.delivered)

        ((word, key, _errno, reason),) = harness.delivered
        assert (word, key) == ("refused", "1.1")
        assert str(harness.notes) in reason
        assert harness.sent == []

    run(tmp_path, scenario)


@pytest.mark.usefixtures("_no_pause")
def test_a_refusal_of_a_full_node_names_the_error_so_that_the_job_runs_elsewhere(
    tmp_path: Path,
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.failures[FindMissing] = CacheFailure("no space is left", errno.ENOSPC)
        await harness.launch()
        await harness.until(lambda: harness.delivered)
        assert harness.delivered == [["refused", "1.1", errno.ENOSPC, "no space is left"]]

    run(tmp_path, scenario)


def test_an_attempt_is_refused_if_its_tree_cannot_be_sent(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.broken = {FindMissing}
        await harness.launch()
        await harness.until(lambda: harness.delivered)

        assert harness.delivered == [["refused", "1.1", errno.EAGAIN, "gone"]]

    run(tmp_path, scenario)


def test_a_stream_that_loses_a_start_is_broken(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.broken = {"send"}
        await harness.launch()
        await asyncio.wait_for(harness.staging_proxy.broken, 20)

        assert harness.delivered == []

    run(tmp_path, scenario)


def test_an_empty_transfer_record_does_not_delay_the_end(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness, results="results", target=str(harness.target))
        (note,) = harness.notes.iterdir()
        note.write_bytes(b"")
        harness.report(*ENDED)

        assert harness.delivered == [ENDED]

    run(tmp_path, scenario)


def test_only_calls_that_grow_with_the_tree_have_no_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_node_cache, "_TIMEOUT_S", 0.0)

    async def scenario(harness: ProxyHarness) -> None:
        node_cache = RemoteNodeCache(AgentClient(harness.serve))
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(node_cache.missing, b"")
        copy = await asyncio.to_thread(node_cache.lay_out, b"", "1.1")
        assert copy.missing == []
        assert (await asyncio.to_thread(node_cache.collect, "1.1", b"results", 1)).left == []
        await asyncio.to_thread(node_cache.done, "1.1")

    run(tmp_path, scenario)


def test_waiting_and_later_calls_fail_once_the_remote_cache_is_closed(
    tmp_path: Path,
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        asked, never = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def hang(_request: bytes) -> bytes:
            asked.set()
            return bytes(await never)

        node_cache = RemoteNodeCache(AgentClient(hang))
        waiting = asyncio.ensure_future(asyncio.to_thread(node_cache.done, "1.1"))
        await asyncio.wait_for(asked.wait(), 20)
        node_cache.close()
        for asking in (waiting, asyncio.to_thread(node_cache.done, "1.2")):
            with pytest.raises(AgentLostError, match="ended"):
                await asking

    run(tmp_path, scenario)


def test_results_of_a_given_up_attempt_are_discarded_and_its_copy_is_deleted(
    tmp_path: Path,
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1000)
        (tree / "results").mkdir()
        (tree / "results" / "model").write_text("half of it")
        harness.target.mkdir()
        (harness.target / "model").write_text("that of the next attempt")
        harness.staging_proxy.close()
        harness.staging_proxy, harness.sent = harness.make_staging_proxy(), []
        await harness.order(["keep", ["2.1"]])
        harness.report("lost", "1.1", "its lease", True)
        await harness.until(lambda: harness.delivered)

        assert harness.sent == [["keep", ["2.1"]]]
        assert verbs(harness.delivered) == ["lost"]
        assert (harness.target / "model").read_text() == "that of the next attempt"
        assert not tree.exists()

    run(tmp_path, scenario)


@pytest.mark.parametrize("can_write", [True, False])
def test_results_of_a_wanted_attempt_come_back_after_a_new_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_write: bool
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        for key in ("1.1", "2.1"):
            target = str(harness.target / key)
            await harness.launch(key, results="results", target=target, limit_bytes=1000)
        await harness.until(lambda: len(harness.sent) == 4)
        for copy in harness.copies.iterdir():
            (copy / "tree" / "results").mkdir()
            (copy / "tree" / "results" / "model").write_text("a model")
        harness.staging_proxy.close()
        harness.staging_proxy = harness.make_staging_proxy()
        if not can_write:
            monkeypatch.setattr("stoker.bridge.transfer_log.write_whole", _fail)
        await harness.order(["keep", ["1.1"]])
        harness.report("ended", "1.1", 0, 1, 2, 3)
        harness.report("ended", "2.1", 0, 1, 2, 3)
        await harness.until(lambda: len(harness.delivered) == 2)
        assert [path.name for path in harness.target.iterdir()] == ["1.1"]

    run(tmp_path, scenario)


def _fail(*_arguments: object, **_more: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_thread_that_writes_counts_until_its_end_although_its_stream_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_go_on = threading.Event(), threading.Event()

    def hang(*_arguments: object) -> None:
        began.set()
        may_go_on.wait(20)

    monkeypatch.setattr(module, "bring_back", hang)

    async def scenario(harness: ProxyHarness) -> None:
        await start(harness, results="results", target=str(harness.target), limit_bytes=1000)
        harness.report(*ENDED)
        await harness.until(began.is_set)
        harness.staging_proxy.close()
        await asyncio.sleep(0)
        assert not harness.writers.are_idle
        may_go_on.set()
        await harness.until(lambda: harness.writers.are_idle)
        assert harness.delivered == []

    run(tmp_path, scenario)


def test_a_transfer_record_is_kept_until_the_end_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        assert [note.name for note in harness.notes.iterdir()] == ["1.1.json"]
        harness.staging_proxy = harness.make_staging_proxy()
        await harness.order(["ack", ["1.1"]])

        assert list(harness.notes.iterdir()) == []
        assert harness.sent[-1] == ["ack", ["1.1"]]

    run(tmp_path, scenario)


@pytest.mark.parametrize("report", [["refused", "1.1", 2, "no such thing"], ["revoked", "1.1"]])
def test_the_copy_of_a_refused_or_revoked_attempt_is_deleted(
    tmp_path: Path, report: list[Any]
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await start(harness)
        harness.report(*report)
        assert harness.delivered == [report]
        await harness.until(lambda: not harness.left())

    run(tmp_path, scenario)


def test_the_copy_of_an_attempt_killed_during_its_upload_is_deleted(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        laying_out, may_go_on = asyncio.Event(), asyncio.Event()
        serve = harness.serve

        async def wait_and_serve(data: bytes) -> bytes:
            if isinstance(decode_request(data), LayOut):
                laying_out.set()
                await may_go_on.wait()
            return await serve(data)

        harness.serve = wait_and_serve  # type: ignore[method-assign]
        await harness.launch()
        await laying_out.wait()
        await harness.order(["kill", "1.1"])
        assert harness.delivered == [["revoked", "1.1"]]
        await harness.until(lambda: not os.listdir(harness.notes))
        may_go_on.set()
        assert harness.left() == []

    run(tmp_path, scenario)


def test_copies_of_attempts_that_the_node_does_not_know_are_deleted_after_a_sync(
    tmp_path: Path,
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await harness.launch("1.1")
        await harness.launch("2.1")
        await harness.until(lambda: len(harness.sent) == 4)
        harness.staging_proxy.close()
        harness.staging_proxy = harness.make_staging_proxy()
        harness.report("synced", ["2.1"], False)
        await harness.until(lambda: len(harness.left()) == 2)

        assert [name.partition("-")[0] for name in harness.left()] == ["2.1", "2.1.json"]
        assert verbs(harness.delivered) == ["synced"]

    run(tmp_path, scenario)


def test_results_that_were_left_behind_survive_a_sync(tmp_path: Path) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1)
        (tree / "results").mkdir()
        (tree / "results" / "model").write_text("large")
        harness.report(*ENDED)
        await harness.until(lambda: harness.delivered)
        harness.report("synced", [], False)

        assert (tree / "results" / "model").exists()

    run(tmp_path, scenario)
