"""The WebSocket of a tab on a real port, without a browser, also with misbehaving tabs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from page_client import PageClient
from stoker import __version__
from stoker.client.client import Client
from stoker.service import ls
from stoker.web.page_control import PageControl
from stoker.web.tab_connection import NOT_UNDERSTOOD, WRONG_TOKEN
from stoker.web.token import read_secrets
from stoker.wire import Release
from unit.api.api_server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path


class OpenPage:
    """An API server with its page open."""

    def __init__(self, api_server: ApiServer) -> None:
        self.api_server = api_server
        self.page = PageControl(api_server.context)
        opening = self.page.open("127.0.0.1", None, new_token=False)
        self.port = asyncio.run_coroutine_threadsafe(opening, api_server.loop).result(10).port

    def socket(self) -> PageClient:
        """An unauthenticated connection."""
        return PageClient(self.port)

    @contextlib.contextmanager
    def tab(self) -> Iterator[PageClient]:
        """An authenticated tab."""
        found = read_secrets(self.api_server.home)
        assert found is not None
        with self.socket() as tab:
            assert tab.sign_in(found.token)["version"] == __version__
            yield tab

    def close(self) -> None:
        """Close the page."""
        asyncio.run_coroutine_threadsafe(self.page.close(), self.api_server.loop).result(10)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenPage]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    api_server = ApiServer(home)
    opened = OpenPage(api_server)
    yield opened
    opened.close()
    api_server.close()


@pytest.mark.parametrize(
    "first",
    ['{"type":"hello","token":"old"}', '{"type":"watch","id":1,"path":"/v1/ls"}', "{", "[]"],
)
def test_a_tab_that_does_not_start_the_handshake_is_disconnected(
    opened: OpenPage, first: str
) -> None:
    with opened.socket() as tab:
        tab.socket.send(first)
        with pytest.raises(ConnectionClosed):
            tab.receive()
        assert tab.socket.close_code == WRONG_TOKEN


@pytest.mark.parametrize("wrong", ["{", '{"type":"dance"}', '{"type":"watch","id":-1,"path":"/"}'])
def test_an_invalid_message_closes_the_connection(opened: OpenPage, wrong: str) -> None:
    with opened.tab() as tab:
        assert tab.session is not None
        tab.socket.send(tab.session.sign_message(wrong))
        with pytest.raises(ConnectionClosed):
            tab.receive()
        assert tab.socket.close_code == NOT_UNDERSTOOD


def test_a_tab_without_the_token_is_disconnected(opened: OpenPage) -> None:
    with opened.socket() as tab:
        assert tab.sign_in("x" * 43) is None
        assert not tab.is_proven
        assert tab.socket.close_code == WRONG_TOKEN


def test_an_unsigned_or_repeated_message_closes_the_connection(opened: OpenPage) -> None:
    watch = '{"type":"watch","id":1,"path":"/v1/status"}'
    with opened.tab() as tab:
        tab.socket.send(watch)
        with pytest.raises(ConnectionClosed):
            tab.receive()
        assert tab.socket.close_code == NOT_UNDERSTOOD
    with opened.tab() as tab:
        assert tab.session is not None
        signed = tab.session.sign_message(watch)
        tab.socket.send(signed)
        assert tab.receive()["type"] == "data"
        tab.socket.send(signed)
        with pytest.raises(ConnectionClosed):
            tab.receive_until(lambda _message: False)


def test_a_watched_answer_is_sent_at_once_and_after_every_change(opened: OpenPage) -> None:
    with opened.tab() as tab:
        tab.send_message(type="watch", id=7, path="/v1/ls", query="limit=5")
        assert tab.receive() == {"type": "data", "id": 7, "body": {"jobs": [], "next": None}}
        job = opened.api_server.add("true")
        tab.receive_until(lambda message: [each["id"] for each in message["body"]["jobs"]] == [job])
        opened.api_server.end(job)
        tab.receive_until(lambda message: message["body"]["jobs"][0]["state"] == "done")
        tab.send_message(type="drop", id=7)
        tab.send_message(type="watch", id=8, path="/v1/status")
        assert tab.receive_until(lambda message: message["id"] == 8)["body"]["counts"] == {
            "done": 1
        }


def test_an_error_is_sent_and_the_watch_continues(opened: OpenPage) -> None:
    with opened.tab() as tab:
        tab.send_message(type="watch", id=1, path="/v1/show", query="job=1")
        assert tab.receive()["problem"]["status"] == 404
        opened.api_server.add("true")
        assert tab.receive_until(lambda message: message["type"] == "data")["body"]["id"] == 1


@pytest.mark.parametrize("path", ["/v1/add", "/v1/kill", "/v1/events", "/v1/log", "/", "/token"])
def test_other_paths_cannot_be_watched(opened: OpenPage, path: str) -> None:
    with opened.tab() as tab:
        tab.send_message(type="watch", id=1, path=path)
        assert tab.receive()["problem"]["status"] == 404


def test_a_tab_cannot_watch_more_than_the_limit(opened: OpenPage) -> None:
    with opened.tab() as tab:
        for number in range(70):
            tab.send_message(type="watch", id=number, path="/v1/status")
        message = tab.receive_until(lambda message: message["type"] == "problem")
        assert "at most 64" in message["problem"]["detail"]


def test_an_answer_that_many_tabs_watch_is_computed_once(
    opened: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = ls._in_order

    def counting(*details: Any) -> Any:
        asked.append(details)
        return real(*details)

    monkeypatch.setattr(ls, "_in_order", counting)
    with contextlib.ExitStack() as stack:
        tabs = [stack.enter_context(opened.tab()) for _ in range(10)]
        for tab in tabs:
            tab.send_message(type="watch", id=1, path="/v1/ls")
            tab.receive()
        before = len(asked)
        assert before < len(tabs)
        job = opened.api_server.add("true")
        for tab in tabs:
            tab.receive_until(lambda message: message["body"]["jobs"][0]["state"] == "running")
        assert len(asked) - before < len(tabs)
        opened.api_server.end(job)


def test_a_log_is_sent_byte_for_byte_after_its_number_until_its_end(opened: OpenPage) -> None:
    job = opened.api_server.add("true")
    path = opened.api_server.context.home + f"/logs/0/{job}.1.log"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\xff\x1b[31mred\n" * 3)
    with opened.tab() as tab:
        tab.send_message(type="follow", id=300, query=f"job={job}&tail=2")
        begin = {"type": "begin", "id": 300, "job": job, "attempt": 1, "offset": 10}
        assert tab.receive() == begin
        assert tab.receive() == struct.pack("<I", 300) + b"\xff\x1b[31mred\n" * 2
        with open(path, "ab") as file:
            file.write(b"more")
        assert tab.receive() == struct.pack("<I", 300) + b"more"
        opened.api_server.end(job)
        assert tab.receive() == {"type": "end", "id": 300}
        tab.send_message(type="follow", id=301, query="job=99")
        assert tab.receive()["problem"]["status"] == 404


def test_a_tab_that_reads_nothing_needs_little_memory_and_delays_no_client(
    opened: OpenPage,
) -> None:
    with opened.tab() as deaf, Client(opened.api_server.home) as client:
        for number in range(8):
            deaf.send_message(type="watch", id=number, path="/v1/ls", query=f"limit={900 + number}")
        first = opened.api_server.add(
            *[f"echo {'x' * 900} {number}" for number in range(900)], hold=True
        )
        slowest_s = 0.0
        for job in range(first, first + 40):
            began = time.monotonic()
            client.release(Release(ids=str(job)))
            slowest_s = max(slowest_s, time.monotonic() - began)
        assert slowest_s < 2.0
        listener = opened.page._listener
        assert listener is not None
        (tab,) = listener.tabs
        opened.api_server.until(lambda: len(tab._waiting) <= 8)


def test_gpus_are_not_sampled_after_the_last_tab_has_gone(opened: OpenPage) -> None:
    with opened.tab() as tab:
        tab.send_message(type="watch", id=1, path="/v1/gpus")
        assert len(tab.receive()["body"]) == 2
        assert opened.api_server.call(lambda: opened.api_server.context.viewers) == 1
    opened.api_server.until(lambda: opened.api_server.context.viewers == 0)
