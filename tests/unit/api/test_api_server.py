from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from typing import TYPE_CHECKING

import pytest

from stoker.api.server import bind
from stoker.client.client import Client
from stoker.client.transport import BrokenError, NoDaemonError
from stoker.errors import StokerError

if TYPE_CHECKING:
    from pathlib import Path

    from unit.api.api_server import ApiServer


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_socket_and_folder_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    old = os.umask(0)
    try:
        with bind(str(tmp_path / "stoker.sock")):
            assert mode(tmp_path / "stoker.sock") == 0o600
            assert mode(tmp_path) == 0o700
    finally:
        os.umask(old)


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "stoker.sock")
    bind(path).close()
    with bind(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert client.getpeername() == path


def test_a_very_long_path_is_bound(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 150)
    home.mkdir()
    with bind(str(home / "stoker.sock")):
        assert mode(home / "stoker.sock") == 0o600


def test_a_place_where_nothing_can_be_bound_is_named(tmp_path: Path) -> None:
    (tmp_path / "stoker.sock").mkdir()
    with pytest.raises(StokerError, match=r"cannot listen at .*stoker\.sock"):
        bind(str(tmp_path / "stoker.sock"))


def test_an_orderly_end_takes_the_socket_away_cuts_streams_and_is_quick(
    api_server: ApiServer,
) -> None:
    with Client(api_server.home) as client, Client(api_server.home) as idle:
        idle.status()
        events = client.events()
        begun = time.monotonic()
        api_server.call(api_server.server.cancel)
        with pytest.raises(BrokenError):
            next(events)
        assert time.monotonic() - begun < 1
        assert not os.path.lexists(f"{api_server.home}/stoker.sock")
        with pytest.raises(NoDaemonError) as caught:
            client.status()
        assert not caught.value.died


def test_a_request_that_is_being_worked_on_is_answered_before_the_end(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.service import add
    from stoker.wire import Submission

    real = add._rows

    async def slow(submission: Submission) -> object:
        api_server.server.cancel()
        await asyncio.sleep(0.1)
        return await real(submission)

    monkeypatch.setattr(add, "_rows", slow)
    assert api_server.add("true") == 1
