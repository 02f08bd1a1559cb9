"""How the page is opened again when something is in its way."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.door import free_port
from stoker.errors import StokerError
from stoker.web import page as module
from stoker.web.page import Page
from unit.api.desk import Desk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    desk = Desk(home)
    yield desk
    desk.close()


def test_a_full_disk_keeps_the_page_closed_and_not_the_daemon(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_home: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "renew_secrets", fail)
    told: list[str] = []
    monkeypatch.setattr(desk.hub.publisher, "on_notice", told.append)
    page, port = Page(desk.hub), int(free_port())
    monkeypatch.setattr(desk.hub.config, "text", lambda _name: f"127.0.0.1:{port}")
    reason = f"cannot write {desk.home}/token: No space left on device"
    for _ in range(2):  # it holds no socket afterwards
        asyncio.run_coroutine_threadsafe(page.reopen(), desk.loop).result(10)
    again = "stoker web opens it again, or elsewhere"
    assert told == [f"the web page is closed: {reason}; {again}"] * 2
    opening = page.open("127.0.0.1", port, new_token=False)
    with pytest.raises(StokerError, match="No space left on device"):
        asyncio.run_coroutine_threadsafe(opening, desk.loop).result(10)
