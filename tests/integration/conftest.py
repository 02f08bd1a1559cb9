"""What the integration tests of the queue share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue

if TYPE_CHECKING:
    from conftest import Stoker


@pytest.fixture
def idle_queue(stoker: Stoker) -> Iterator[Queue]:
    """Return a queue whose daemon nobody has started yet."""
    queue = Queue(stoker)
    yield queue
    queue.close()


@pytest.fixture
def queue(idle_queue: Queue) -> Queue:
    """Return a queue whose daemon runs, on two GPUs."""
    idle_queue.start()
    return idle_queue
