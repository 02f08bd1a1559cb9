"""A real browser on the real page of a real daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from integration.daemon_fixture import Queue, free_port
from web.modules import Modules

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Stoker

# The headless shell is the same engine without a desktop's parts: it uses a third less processor time.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
_FLAGS = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)
_EXPECTED = re.compile(r"ERR_CONNECTION|status of (400|404|409)")
_PATIENCE_MS = 45_000
_LINK = re.compile(r"http://\S+#token=\S+")


# Not for longer: its event loop runs in this thread, where tests of other files want their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return Chromium; where there is none, skip, but fail where all must be tested."""
    if CHROMIUM is None:
        missing = "there is no Chromium: apt-get install chromium-headless-shell"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=_PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


class Site:
    """The page of a queue, with as many tabs as a test wants; what they complain of fails it."""

    def __init__(self, queue: Queue, browser: Browser) -> None:
        self.queue = queue
        self._browser = browser
        self.link = self.open("--port", free_port())
        self.url = self.link.partition("#")[0]
        self.token = self.link.partition("#token=")[2]
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, *words: str) -> str:
        """The link that `stoker web` prints."""
        found = _LINK.search(self.queue.ok("web", *words))
        assert found is not None
        return found[0]

    def slots(self) -> list[dict[str, Any]]:
        """What the queue says of its slots."""
        found = json.loads(self.queue.ok("status", "--json"))["slots"]
        assert isinstance(found, list)
        return found

    def tab(self, path: str = "/", **options: Any) -> Page:
        """A tab in a browser of its own, let in and at a page."""
        page = self.blank_tab(**options)
        page.goto(self.link)
        page.wait_for_selector(".link.open")
        if path != "/":
            page.goto(f"{self.url}#{path}")
        return page

    def blank_tab(self, **options: Any) -> Page:
        """A tab in a browser of its own, which nobody has let in."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _hear(self, message: Any) -> None:
        # A daemon that was stopped is met with failed connections, and mistakes are refused: the
        # browser notes both, and the page shows them.
        if message.type == "error" and not _EXPECTED.search(message.text):
            self.complaints.append(message.text)


@pytest.fixture
def queue(stoker: Stoker) -> Iterator[Queue]:
    """Return a queue whose daemon runs, on two GPUs."""
    queue = Queue(stoker)
    queue.start()
    yield queue
    queue.close()


@pytest.fixture
def site(queue: Queue, browser: Browser) -> Iterator[Site]:
    """Return the page of that queue."""
    site = Site(queue, browser)
    yield site
    for context in browser.contexts:
        context.close()
    assert site.complaints == []
    assert [url for url in site.requests if not url.startswith(site.url)] == []


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Modules]:
    """Return the page's modules, without a daemon."""
    modules = Modules(browser)
    yield modules
    modules.close()
