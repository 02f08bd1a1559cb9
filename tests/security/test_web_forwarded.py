"""The daemon's own socket forwarded to a port, as by `ssh -L 9000:…/stoker.sock`: no browser gets in."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from conftest import Stoker
from page_client import ask
from security.quick_queue import QuickQueue
from stoker.testing.state import FakeGpus
from web.conftest import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]
ADD = b'{"request_id":"x","jobs":[{"command":"true"}],"cwd":"/"}'


@contextlib.contextmanager
def forwarded(path: str) -> Iterator[int]:
    """Forward a unix socket to a port, byte for byte; the port."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = listening.accept()
                far = socket.socket(socket.AF_UNIX)
                opened.extend((near, far))
                far.connect(path)
                for ends in ((near, far), (far, near)):
                    threads.append(threading.Thread(target=copy, args=ends))
                    threads[-1].start()

    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads = [threading.Thread(target=serve)]
        threads[0].start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        threads[0].join()
    for sock in opened:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    for thread in threads[1:]:
        thread.join()
    for sock in opened:
        sock.close()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory, nvml_library: str) -> Iterator[QuickQueue]:
    """Return a queue whose daemon runs; the tests of this file add nothing to it."""
    folder = tmp_path_factory.mktemp("forwarded")
    stoker = Stoker(folder, FakeGpus(folder / "nvml", nvml_library).create(2))
    queue = QuickQueue(stoker)
    queue.start()
    yield queue
    queue.close()
    stoker.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:9000"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9000", "host": "localhost:9000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-origin", "host": "localhost:9000"},
    ],
)
def test_what_a_browser_sends_is_refused(queue: QuickQueue, headers: dict[str, str]) -> None:
    path = f"{queue.home}/stoker.sock"
    json = {"content-type": "application/json"}
    assert ask(0, headers=headers, path=path) == 403
    assert ask(0, "/v1/add", {**json, **headers}, method="POST", body=ADD, path=path) == 403
    assert queue.ls("--all") == {}
    assert ask(0, headers={"host": "localhost"}, path=path) == 200


def test_a_page_of_another_site_gets_nothing(queue: QuickQueue, browser: Browser) -> None:
    with forwarded(f"{queue.home}/stoker.sock") as port:
        assert ask(port) == 200  # a command line on the other computer
        page = browser.new_page()
        answer = page.goto(f"http://127.0.0.1:{port}/v1/status")
        assert answer is not None
        assert answer.status == 403
        page.context.close()


def test_a_header_that_is_there_twice_is_refused(queue: QuickQueue) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{queue.home}/stoker.sock")
        sock.sendall(b"GET /v1/status HTTP/1.1\r\nhost: stoker\r\norigin: a\r\norigin: b\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 400 ")
