"""What passes between a daemon and an agent, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge.ferry import Ferry
from stoker.shipping.depot import Depot

VOYAGE = ["voyage", "1.1", {"argv": ["true"], "snapshot": "/nowhere"}]
SAID = [[["hold", 0]], [VOYAGE], [["release", 0, []]]]
STREAM = b"".join(f"{json.dumps(line)}\n".encode() for line in SAID)


@pytest.mark.parametrize("cut", range(0, len(STREAM), 3))
def test_a_voyage_is_never_told_to_the_node_wherever_a_stream_is_cut(
    tmp_path: Path, cut: int
) -> None:
    sent: list[list[Any]] = []

    async def send(data: bytes) -> None:
        for line in data.splitlines():
            sent.extend(json.loads(line))

    async def pass_all() -> None:
        ferry = Ferry(None, send, lambda _data: None, print, str(tmp_path))  # type: ignore[arg-type]
        await ferry.pass_on(STREAM[:cut])
        await ferry.pass_on(STREAM[cut:])

    asyncio.run(pass_all())
    assert sent == [["hold", 0], ["release", 0, []]]


def test_reports_that_are_of_no_attempt_pass_with_those_that_are(tmp_path: Path) -> None:
    passed: list[bytes] = []
    reports = b'["ended", "1.1", 0]\n["finished"]\n["busy"]\n'

    async def bring() -> None:
        ferry = Ferry(None, None, passed.append, print, str(tmp_path))  # type: ignore[arg-type]
        ferry.bring(reports)

    asyncio.run(bring())
    assert passed == [reports]


class Quay:
    """A ferry between a test, in the place of the daemon, and the depot of a node that is here."""

    def __init__(self, folder: Path) -> None:
        self.snapshot, self.target = folder / "code", folder / "results"
        self.notes = folder / "notes"
        self.snapshot.mkdir()
        (self.snapshot / "train.py").write_text("print()")
        self.node = Depot(str(folder / "depot"))
        self.copies = folder / "depot" / "copies"
        self.sent: list[list[Any]] = []
        self.heard: list[list[Any]] = []
        self.told: list[str] = []
        self.is_slow = False
        self.moved = asyncio.Event()
        self.ferry = self.make_ferry()

    def make_ferry(self) -> Ferry:
        """One more conversation."""
        return Ferry(self, self.send, self.deliver, self.told.append, str(self.notes))  # type: ignore[arg-type]

    async def depot(self, verb: str, *words: Any) -> tuple[bool, Any]:
        return True, await asyncio.to_thread(getattr(self.node, verb), *words)

    async def send(self, data: bytes) -> None:
        for line in data.splitlines():
            self.sent.extend(json.loads(line))
        self.moved.set()
        if self.is_slow:
            await asyncio.get_running_loop().create_future()

    def deliver(self, data: bytes) -> None:
        self.heard.extend(json.loads(line) for line in data.splitlines())
        self.moved.set()

    async def say(self, *messages: list[Any]) -> None:
        await self.ferry.pass_on(f"{json.dumps(messages)}\n".encode())

    def tell(self, *words: Any) -> None:
        """What the node tells."""
        self.ferry.bring(f"{json.dumps(words)}\n".encode())

    async def launch(self, key: str = "1.1", **facts: Any) -> None:
        voyage = {"argv": ["true"], "snapshot": str(self.snapshot), **facts}
        await self.say(["voyage", key, voyage], ["start", key, 0, 0, ["true"], None])

    async def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            self.moved.clear()
            await asyncio.wait_for(self.moved.wait(), 20)


def play(folder: Path, story: Callable[[Quay], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await story(Quay(folder))

    asyncio.run(begin())


def verbs(messages: list[list[Any]]) -> list[str]:
    return [str(message[0]) for message in messages]


def test_a_start_that_is_on_its_way_is_taken_back_by_the_node_alone(tmp_path: Path) -> None:
    async def story(quay: Quay) -> None:
        quay.is_slow = True
        await quay.launch()
        await quay.until(lambda: quay.sent)
        order = asyncio.ensure_future(quay.say(["revoke", "1.1"]))
        await quay.until(lambda: quay.heard or "revoke" in verbs(quay.sent))
        order.cancel()

        assert verbs(quay.sent) == ["berth", "start", "revoke"]
        assert quay.heard == []

    play(tmp_path, story)


def test_an_attempt_whose_tree_is_on_its_way_is_taken_back_here(tmp_path: Path) -> None:
    async def story(quay: Quay) -> None:
        await quay.launch()
        await quay.say(["revoke", "1.1"])

        assert quay.heard == [["revoked", "1.1"]]
        assert quay.sent == []

    play(tmp_path, story)
