"""What a tab hears over its WebSocket, on a real port; no browser, and tabs that misbehave."""

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


class Place:
    """A API server with its page open."""

    def __init__(self, api_server: ApiServer) -> None:
        self.api_server = api_server
        self.page = PageControl(api_server.context)
        opening = self.page.open("127.0.0.1", None, new_token=False)
        self.port = asyncio.run_coroutine_threadsafe(opening, api_server.loop).result(10).port

    def socket(self) -> PageClient:
        """A connection that nobody has let in yet."""
        return PageClient(self.port)

    @contextlib.contextmanager
    def tab(self) -> Iterator[PageClient]:
        """A tab that was let in."""
        found = read_secrets(self.api_server.home)
        assert found is not None
        with self.socket() as tab:
            assert tab.let_in(found.token)["version"] == __version__
            yield tab

    def close(self) -> None:
        """Close the page."""
        asyncio.run_coroutine_threadsafe(self.page.close(), self.api_server.loop).result(10)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    api_server = ApiServer(home)
    place = Place(api_server)
    yield place
    place.close()
    api_server.close()


@pytest.mark.parametrize(
    "first",
    ['{"type":"hello","token":"old"}', '{"type":"watch","id":1,"path":"/v1/ls"}', "{", "[]"],
)
def test_whoever_does_not_begin_with_the_token_is_shown_out(place: Place, first: str) -> None:
    with place.socket() as tab:
        tab.socket.send(first)
        with pytest.raises(ConnectionClosed):
            tab.hear()
        assert tab.socket.close_code == WRONG_TOKEN


@pytest.mark.parametrize("wrong", ["{", '{"type":"dance"}', '{"type":"watch","id":-1,"path":"/"}'])
def test_what_nobody_understands_ends_the_connection(place: Place, wrong: str) -> None:
    with place.tab() as tab:
        assert tab.session is not None
        tab.socket.send(tab.session.sign_message(wrong))
        with pytest.raises(ConnectionClosed):
            tab.hear()
        assert tab.socket.close_code == NOT_UNDERSTOOD


def test_a_tab_that_does_not_know_the_token_is_shown_out(place: Place) -> None:
    with place.socket() as tab:
        assert tab.let_in("x" * 43) is None
        assert not tab.is_proven
        assert tab.socket.close_code == WRONG_TOKEN


def test_a_message_without_its_signature_or_said_twice_ends_the_connection(place: Place) -> None:
    watch = '{"type":"watch","id":1,"path":"/v1/status"}'
    with place.tab() as tab:
        tab.socket.send(watch)
        with pytest.raises(ConnectionClosed):
            tab.hear()
        assert tab.socket.close_code == NOT_UNDERSTOOD
    with place.tab() as tab:
        assert tab.session is not None
        signed = tab.session.sign_message(watch)
        tab.socket.send(signed)
        assert tab.hear()["type"] == "data"
        tab.socket.send(signed)
        with pytest.raises(ConnectionClosed):
            tab.hear_until(lambda _heard: False)


def test_what_is_watched_is_told_at_once_and_after_every_change(place: Place) -> None:
    with place.tab() as tab:
        tab.say(type="watch", id=7, path="/v1/ls", query="limit=5")
        assert tab.hear() == {"type": "data", "id": 7, "body": {"jobs": [], "next": None}}
        job = place.api_server.add("true")
        tab.hear_until(lambda heard: [each["id"] for each in heard["body"]["jobs"]] == [job])
        place.api_server.end(job)
        tab.hear_until(lambda heard: heard["body"]["jobs"][0]["state"] == "done")
        tab.say(type="drop", id=7)
        tab.say(type="watch", id=8, path="/v1/status")
        assert tab.hear_until(lambda heard: heard["id"] == 8)["body"]["counts"] == {"done": 1}


def test_a_refusal_is_told_and_the_watch_goes_on(place: Place) -> None:
    with place.tab() as tab:
        tab.say(type="watch", id=1, path="/v1/show", query="job=1")
        assert tab.hear()["problem"]["status"] == 404
        place.api_server.add("true")
        assert tab.hear_until(lambda heard: heard["type"] == "data")["body"]["id"] == 1


@pytest.mark.parametrize("path", ["/v1/add", "/v1/kill", "/v1/events", "/v1/log", "/", "/token"])
def test_only_questions_with_an_answer_can_be_watched(place: Place, path: str) -> None:
    with place.tab() as tab:
        tab.say(type="watch", id=1, path=path)
        assert tab.hear()["problem"]["status"] == 404


def test_a_tab_cannot_watch_without_end(place: Place) -> None:
    with place.tab() as tab:
        for number in range(70):
            tab.say(type="watch", id=number, path="/v1/status")
        heard = tab.hear_until(lambda heard: heard["type"] == "problem")
        assert "at most 64" in heard["problem"]["detail"]


def test_what_many_watch_is_worked_out_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    real = ls._in_order

    def counting(*details: Any) -> Any:
        asked.append(details)
        return real(*details)

    monkeypatch.setattr(ls, "_in_order", counting)
    with contextlib.ExitStack() as stack:
        tabs = [stack.enter_context(place.tab()) for _ in range(10)]
        for tab in tabs:
            tab.say(type="watch", id=1, path="/v1/ls")
            tab.hear()
        before = len(asked)
        assert before < len(tabs)
        job = place.api_server.add("true")
        for tab in tabs:
            tab.hear_until(lambda heard: heard["body"]["jobs"][0]["state"] == "running")
        assert len(asked) - before < len(tabs)
        place.api_server.end(job)


def test_a_log_comes_byte_for_byte_behind_its_number_until_its_end(place: Place) -> None:
    job = place.api_server.add("true")
    path = place.api_server.context.home + f"/logs/0/{job}.1.log"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\xff\x1b[31mred\n" * 3)
    with place.tab() as tab:
        tab.say(type="follow", id=300, query=f"job={job}&tail=2")
        begin = {"type": "begin", "id": 300, "job": job, "attempt": 1, "offset": 10}
        assert tab.hear() == begin
        assert tab.hear() == struct.pack("<I", 300) + b"\xff\x1b[31mred\n" * 2
        with open(path, "ab") as file:
            file.write(b"more")
        assert tab.hear() == struct.pack("<I", 300) + b"more"
        place.api_server.end(job)
        assert tab.hear() == {"type": "end", "id": 300}
        tab.say(type="follow", id=301, query="job=99")
        assert tab.hear()["problem"]["status"] == 404


def test_a_tab_that_reads_nothing_costs_little_and_holds_up_nobody(place: Place) -> None:
    with place.tab() as deaf, Client(place.api_server.home) as client:
        for number in range(8):
            deaf.say(type="watch", id=number, path="/v1/ls", query=f"limit={900 + number}")
        first = place.api_server.add(
            *[f"echo {'x' * 900} {number}" for number in range(900)], hold=True
        )
        slowest_s = 0.0
        for job in range(first, first + 40):
            began = time.monotonic()
            client.release(Release(ids=str(job)))
            slowest_s = max(slowest_s, time.monotonic() - began)
        assert slowest_s < 2.0
        listener = place.page._listener
        assert listener is not None
        (tab,) = listener.tabs
        place.api_server.until(lambda: len(tab._waiting) <= 8)


def test_nobody_looks_at_gpus_when_the_last_tab_has_gone(place: Place) -> None:
    with place.tab() as tab:
        tab.say(type="watch", id=1, path="/v1/gpus")
        assert len(tab.hear()["body"]) == 2
        assert place.api_server.call(lambda: place.api_server.context.viewers) == 1
    place.api_server.until(lambda: place.api_server.context.viewers == 0)
