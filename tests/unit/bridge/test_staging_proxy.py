"""What passes between a daemon and an agent, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge import remote_node_cache
from stoker.bridge.agent_calls import AgentLostError
from stoker.bridge.remote_node_cache import RemoteNodeCache
from stoker.bridge.staging_proxy import StagingProxy
from stoker.staging.node_cache import NodeCache

TREE = ["tree", "1.1", {"argv": ["true"], "snapshot": "/nowhere"}]
SAID = [[["hold", 0]], [TREE], [["release", 0, []]]]
ENDED = ["ended", "1.1", 0, 1, 2, 3]
STREAM = b"".join(f"{json.dumps(line)}\n".encode() for line in SAID)


@pytest.mark.parametrize("cut", range(0, len(STREAM), 3))
def test_a_transfer_is_never_told_to_the_node_wherever_a_stream_is_cut(
    tmp_path: Path, cut: int
) -> None:
    sent: list[list[Any]] = []

    async def send(data: bytes) -> None:
        for line in data.splitlines():
            sent.extend(json.loads(line))

    async def pass_all() -> None:
        staging_proxy = StagingProxy(None, send, lambda _data: None, print, str(tmp_path))  # type: ignore[arg-type]
        await staging_proxy.pass_on(STREAM[:cut])
        await staging_proxy.pass_on(STREAM[cut:])

    asyncio.run(pass_all())
    assert sent == [["hold", 0], ["release", 0, []]]


def test_reports_that_are_of_no_attempt_pass_with_those_that_are(tmp_path: Path) -> None:
    passed: list[bytes] = []
    reports = b'["ended", "1.1", 0, 1, 2, 3]\n["finished"]\n["busy"]\n'

    async def bring() -> None:
        staging_proxy = StagingProxy(None, None, passed.append, print, str(tmp_path))  # type: ignore[arg-type]
        staging_proxy.bring(reports)

    asyncio.run(bring())
    assert passed == [reports]


class ProxyHarness:
    """A staging proxy between a test, in the daemon's place, and the cache of a node on this machine."""

    def __init__(self, folder: Path) -> None:
        self.snapshot, self.target = folder / "code", folder / "results"
        self.notes = folder / "notes"
        self.snapshot.mkdir()
        (self.snapshot / "train.py").write_text("print()")
        self.node = NodeCache(str(folder / "node_cache"))
        self.copies = folder / "node_cache" / "copies"
        self.sent: list[list[Any]] = []
        self.heard: list[list[Any]] = []
        self.told: list[str] = []
        self.is_slow = False
        self.broken: set[str] = set()
        self.moved = asyncio.Event()
        self.staging_proxy = self.make_staging_proxy()

    def make_staging_proxy(self) -> StagingProxy:
        """One more conversation."""
        return StagingProxy(self, self.send, self.deliver, self.told.append, str(self.notes))  # type: ignore[arg-type]

    async def node_cache(self, verb: str, *words: Any) -> tuple[bool, Any]:
        if verb in self.broken:
            raise ConnectionError("gone")
        answer = await asyncio.to_thread(getattr(self.node, verb), *words)
        self.moved.set()
        return True, answer

    def left(self) -> list[str]:
        """Copies on the node, and notes of them here."""
        return sorted([*os.listdir(self.copies), *os.listdir(self.notes)])

    async def send(self, data: bytes) -> None:
        for line in data.splitlines():
            self.sent.extend(json.loads(line))
        self.moved.set()
        if "send" in self.broken:
            raise AgentLostError("no answer")
        if self.is_slow:
            await asyncio.get_running_loop().create_future()

    def deliver(self, data: bytes) -> None:
        self.heard.extend(json.loads(line) for line in data.splitlines())
        self.moved.set()

    async def say(self, *messages: list[Any]) -> None:
        await self.staging_proxy.pass_on(f"{json.dumps(messages)}\n".encode())

    def tell(self, *words: Any) -> None:
        """What the node tells."""
        self.staging_proxy.bring(f"{json.dumps(words)}\n".encode())

    async def launch(self, key: str = "1.1", **facts: Any) -> None:
        transfer = {"argv": ["true"], "snapshot": str(self.snapshot), **facts}
        await self.say(["tree", key, transfer], ["start", key, 0, 0, ["true"], None])

    async def until(self, is_so: Callable[[], object]) -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while not is_so():
            self.moved.clear()
            with contextlib.suppress(asyncio.TimeoutError):  # files move without a word
                await asyncio.wait_for(self.moved.wait(), 0.05)
            assert asyncio.get_running_loop().time() < deadline


def play(folder: Path, story: Callable[[ProxyHarness], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await story(ProxyHarness(folder))

    asyncio.run(begin())


def verbs(messages: list[list[Any]]) -> list[str]:
    return [str(message[0]) for message in messages]


def test_a_start_that_is_on_its_way_is_taken_back_by_the_node_alone(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        harness.is_slow = True
        await harness.launch()
        await harness.until(lambda: harness.sent)
        order = asyncio.ensure_future(harness.say(["revoke", "1.1"]))
        await harness.until(lambda: harness.heard or "revoke" in verbs(harness.sent))
        order.cancel()

        assert verbs(harness.sent) == ["copy", "start", "revoke"]
        assert harness.heard == []

    play(tmp_path, story)


def test_an_attempt_whose_tree_is_on_its_way_is_taken_back_here(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        await harness.launch()
        await harness.say(["revoke", "1.1"])

        assert harness.heard == [["revoked", "1.1"]]
        assert harness.sent == []

    play(tmp_path, story)


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.staging.transfer._PAUSE_S", 0.0)


async def start(harness: ProxyHarness, **facts: Any) -> Path:
    """Have an attempt that runs on the node; its copy there."""
    await harness.launch(**facts)
    await harness.until(lambda: harness.sent)
    (copy,) = harness.copies.iterdir()
    return copy / "tree"


def test_an_end_is_told_also_where_its_results_cannot_be_written(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1000)
        (tree / "results").mkdir()
        (tree / "results" / "x").write_text("x")
        harness.target.write_text("no folder")
        harness.tell(*ENDED)
        await harness.until(lambda: harness.heard)

        assert harness.heard == [ENDED]
        (told,) = harness.told
        assert told.startswith("job 1: its results could not be brought: cannot write in")
        assert f"left in {tree}/results" in told

    play(tmp_path, story)


@pytest.mark.usefixtures("_no_pause")
def test_an_end_is_told_also_where_the_node_cache_does_not_answer(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        await start(harness, results="results", target=str(harness.target))
        harness.broken = {"collect"}
        harness.tell(*ENDED)
        await harness.until(lambda: harness.heard)

        assert harness.heard == [ENDED]
        assert harness.told == ["job 1: its results could not be brought: gone"]

    play(tmp_path, story)


def test_an_attempt_that_no_note_can_be_kept_of_is_refused(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        harness.notes.write_text("no folder")
        await harness.launch()
        await harness.until(lambda: harness.heard)

        ((word, key, _errno, reason),) = harness.heard
        assert (word, key) == ("refused", "1.1")
        assert str(harness.notes) in reason
        assert harness.sent == []

    play(tmp_path, story)


@pytest.mark.usefixtures("_no_pause")
def test_an_attempt_whose_tree_cannot_be_laid_out_is_refused(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        harness.broken = {"missing"}
        await harness.launch()
        await harness.until(lambda: harness.heard)

        assert harness.heard == [["refused", "1.1", 0, "gone"]]

    play(tmp_path, story)


def test_a_conversation_in_which_a_start_was_lost_cannot_go_on(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        harness.broken = {"send"}
        await harness.launch()
        await asyncio.wait_for(harness.staging_proxy.broken, 20)

        assert harness.heard == []

    play(tmp_path, story)


def test_a_note_that_a_power_cut_has_emptied_holds_up_no_end(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        await start(harness, results="results", target=str(harness.target))
        (note,) = harness.notes.iterdir()
        note.write_bytes(b"")
        harness.tell(*ENDED)

        assert harness.heard == [ENDED]

    play(tmp_path, story)


def test_only_work_that_grows_with_a_tree_may_take_as_long_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_node_cache, "_CALL_S", 0.0)

    async def story(harness: ProxyHarness) -> None:
        node_cache = RemoteNodeCache(harness)  # type: ignore[arg-type]
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(node_cache.missing, b"")
        laid = await asyncio.to_thread(node_cache.lay_out, b"", "1.1")
        assert laid["missing"] == []
        assert (await asyncio.to_thread(node_cache.collect, "1.1", b"results", 1))["left"] == []
        await asyncio.to_thread(node_cache.done, "1.1")

    play(tmp_path, story)


def test_whoever_waits_for_a_node_cache_is_told_that_the_conversation_is_over(
    tmp_path: Path,
) -> None:
    async def story(harness: ProxyHarness) -> None:
        asked, never = asyncio.Event(), asyncio.get_running_loop().create_future()

        class Silent:
            async def node_cache(self, *_words: Any) -> Any:
                asked.set()
                return await never

        node_cache = RemoteNodeCache(Silent())  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(asyncio.to_thread(node_cache.done, "1.1"))
        await asyncio.wait_for(asked.wait(), 20)
        node_cache.close()
        for asking in (waiting, asyncio.to_thread(node_cache.done, "1.2")):
            with pytest.raises(AgentLostError, match="over"):
                await asking

    play(tmp_path, story)


def test_nothing_comes_back_of_an_attempt_that_was_given_up_and_its_copy_goes(
    tmp_path: Path,
) -> None:
    async def story(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1000)
        (tree / "results").mkdir()
        (tree / "results" / "model").write_text("half of it")
        harness.target.mkdir()
        (harness.target / "model").write_text("that of the next attempt")
        harness.staging_proxy.close()
        harness.staging_proxy, harness.sent = harness.make_staging_proxy(), []
        await harness.staging_proxy.give_up()
        harness.tell("lost", "1.1", "its lease", True)
        await harness.until(lambda: harness.heard)

        assert harness.sent == [["logs"]]
        assert verbs(harness.heard) == ["lost"]
        assert (harness.target / "model").read_text() == "that of the next attempt"
        assert not tree.exists()

    play(tmp_path, story)


def test_a_note_is_kept_until_the_end_is_on_record_and_no_longer(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        await start(harness)
        assert [note.name for note in harness.notes.iterdir()] == ["1.1.json"]
        harness.staging_proxy = harness.make_staging_proxy()
        await harness.say(["ack", ["1.1"]])

        assert list(harness.notes.iterdir()) == []
        assert harness.sent[-1] == ["ack", ["1.1"]]

    play(tmp_path, story)


@pytest.mark.parametrize("report", [["refused", "1.1", 2, "no such thing"], ["revoked", "1.1"]])
def test_no_copy_stays_of_an_attempt_that_the_node_has_not_run(
    tmp_path: Path, report: list[Any]
) -> None:
    async def story(harness: ProxyHarness) -> None:
        await start(harness)
        harness.tell(*report)
        assert harness.heard == [report]
        await harness.until(lambda: not harness.left())

    play(tmp_path, story)


def test_no_copy_stays_of_a_tree_that_was_called_back_on_its_way(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        laying_out, may_go_on = asyncio.Event(), asyncio.Event()
        ask = harness.node_cache

        async def node_cache(verb: str, *words: Any) -> tuple[bool, Any]:
            if verb == "lay_out":
                laying_out.set()
                await may_go_on.wait()
            return await ask(verb, *words)

        harness.node_cache = node_cache  # type: ignore[method-assign]
        await harness.launch()
        await laying_out.wait()
        await harness.say(["kill", "1.1"])
        assert harness.heard == [["revoked", "1.1"]]
        await harness.until(lambda: not os.listdir(harness.notes))
        may_go_on.set()
        assert harness.left() == []

    play(tmp_path, story)


def test_copies_that_nobody_came_to_delete_go_when_the_node_says_what_it_knows(
    tmp_path: Path,
) -> None:
    async def story(harness: ProxyHarness) -> None:
        await harness.launch("1.1")
        await harness.launch("2.1")
        await harness.until(lambda: len(harness.sent) == 4)
        harness.staging_proxy.close()
        harness.staging_proxy = harness.make_staging_proxy()
        harness.tell("synced", ["2.1"], False)
        await harness.until(lambda: len(harness.left()) == 2)

        assert [name.partition("-")[0] for name in harness.left()] == ["2.1", "2.1.json"]
        assert verbs(harness.heard) == ["synced"]

    play(tmp_path, story)


def test_results_that_were_left_stay_when_the_node_says_what_it_knows(tmp_path: Path) -> None:
    async def story(harness: ProxyHarness) -> None:
        tree = await start(harness, results="results", target=str(harness.target), limit_bytes=1)
        (tree / "results").mkdir()
        (tree / "results" / "model").write_text("large")
        harness.tell(*ENDED)
        await harness.until(lambda: harness.heard)
        harness.tell("synced", [], False)

        assert (tree / "results" / "model").exists()

    play(tmp_path, story)
