"""What an agent does beside what it is asked for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from stoker.bridge import agent as module
from stoker.bridge.agent import Agent


def test_what_was_shipped_is_pruned_while_the_agent_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_KEEP_BYTES", 0)
    monkeypatch.setattr(module, "_PRUNE_PERIOD_S", 0.0)

    async def story() -> None:
        agent = Agent("q")
        for name in ("one", "two"):
            blob = tmp_path / "cluster" / "queues" / "q" / "depot" / "blobs" / name
            blob.write_text(name)
            os.utime(blob, (1, 1))
            assert await agent.depot("missing", b"") == (True, [])
            assert agent._pruning is not None
            await agent._pruning
            assert not blob.exists()

    asyncio.run(story())
