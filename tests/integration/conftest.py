"""What the integration tests of the queue share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue
from integration.fork_server import ForkServer
from integration.forking import ForkingQueue, ForkingStoker
from stoker.testing.state import FakeGpus

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeMachine, Stoker


@pytest.fixture(scope="session")
def fork_server(
    nvml_library: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForkServer]:
    """Return the process that forks verbs and daemons."""
    box = FakeGpus(tmp_path_factory.mktemp("fork_server"), nvml_library)
    server = ForkServer({"LANG": "C.UTF-8", **box.env()})
    yield server
    server.close()


@pytest.fixture
def stoker(
    tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer
) -> Iterator[ForkingStoker]:
    """Return a Stoker in folders of its own, on a machine with four fake GPUs."""
    stoker = ForkingStoker(tmp_path, fake_gpus(4), fork_server)
    yield stoker
    stoker.close()


@pytest.fixture
def idle_queue(stoker: Stoker) -> Iterator[Queue]:
    """Return a queue whose daemon nobody has started yet."""
    queue = ForkingQueue(stoker) if isinstance(stoker, ForkingStoker) else Queue(stoker)
    yield queue
    queue.close()


@pytest.fixture
def queue(idle_queue: Queue) -> Queue:
    """Return a queue whose daemon runs, on two GPUs."""
    idle_queue.start()
    return idle_queue
