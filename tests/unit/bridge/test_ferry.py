"""What passes between a daemon and an agent, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge.ferry import Ferry

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
