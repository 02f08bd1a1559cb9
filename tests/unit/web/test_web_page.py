"""How the page is opened again when something is in its way."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import free_port
from stoker.errors import StokerError
from stoker.web import page_control as module
from stoker.web.page_control import PageControl
from unit.api.api_server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    api_server = ApiServer(home)
    yield api_server
    api_server.close()


def test_a_full_disk_closes_the_page_but_not_the_daemon(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_home: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "renew_secrets", fail)
    told: list[str] = []
    monkeypatch.setattr(api_server.context.publisher, "on_notice", told.append)
    page, port = PageControl(api_server.context), int(free_port())
    monkeypatch.setattr(api_server.context.config, "text", lambda _name: f"127.0.0.1:{port}")
    reason = f"cannot write {api_server.home}/token: No space left on device"
    for _ in range(2):  # it holds no socket afterwards
        asyncio.run_coroutine_threadsafe(page.reopen(), api_server.loop).result(10)
    again = "stoker web opens it again, --port N at another port"
    assert told == [f"the web page is closed: {reason}; {again}"] * 2
    opening = page.open("127.0.0.1", port, new_token=False)
    with pytest.raises(StokerError, match="No space left on device"):
        asyncio.run_coroutine_threadsafe(opening, api_server.loop).result(10)
