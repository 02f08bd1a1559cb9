"""Fixtures of the attack tests: a second unix user, and a folder that both users can write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.table import PROPERTY, Entry
from integration.conftest import idle_queue, queue
from security.quick_queue import QuickQueue
from security.second_user import SecondUser, make_second_user, remove_second_user, why_not

if TYPE_CHECKING:
    from conftest import Stoker

__all__ = ["idle_queue", "queue"]  # the fixtures of a daemon are the integration tests' own


@pytest.fixture(scope="session")
def account() -> Iterator[SecondUser]:
    """Return a new account, removed at the end; without root skip, but fail where all must be tested."""
    reason = why_not()
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    user = make_second_user(f"stokertest{os.getpid()}")
    yield user
    remove_second_user(user)


@pytest.fixture
def second_user(
    account: SecondUser, record_property: Callable[[str, object], None]
) -> Iterator[SecondUser]:
    """Return the second user; its processes end with the test, which is an attack in the table of faults."""
    record_property(PROPERTY, [*Entry("hostile second user", 1, 0, 0, 0, 0, 0), {}])
    yield account
    account.close()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Return a new folder like /tmp: every user can write in it, and it is sticky."""
    folder = tempfile.mkdtemp(prefix="stoker-shared-")
    os.chmod(folder, 0o1777)
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def leases(shared_folder: Path) -> Path:
    """Return a folder of leases that all users share."""
    folder = shared_folder / "leases"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def quick_queue(stoker: Stoker) -> Iterator[QuickQueue]:
    """Return a queue whose verbs run in this process; nobody has started its daemon yet."""
    queue = QuickQueue(stoker)
    yield queue
    queue.close()
