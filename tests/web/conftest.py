"""A real browser on the real page of a real daemon."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from conftest import Ended, Stoker
from integration.daemon_fixture import Queue, free_port
from stoker.cli.main import main
from stoker.testing.state import GIB, FakeGpus
from web.modules import Modules

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

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


class PageQueue(Queue):
    """A queue whose verbs run in the test's own process: the page is tested, not the command line."""

    def __call__(
        self,
        *words: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run `stoker WORDS` to its end; they have no standard input here."""
        assert not stdin
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, {**self.env, **(env or {})}, clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            _working_in(self.work),
        ):
            code = main([os.fsdecode(word) for word in words])
        return Ended(code, out.getvalue().encode(), err.getvalue().encode())


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


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

    def work_in(self, folder: Path) -> None:
        """Let the verbs, and the jobs they add, have another working folder."""
        self.queue.work = self.queue.stoker.work = folder

    def clear(self) -> None:
        """End and remove all jobs, and let the queue go on if it is paused."""
        self.queue.ok("rm", "--all", "--kill")
        assert self.queue("resume", "--queue").code in (0, 1)  # 1: it is not paused

    def close_tabs(self) -> None:
        """Close all tabs, and see that they did not complain, nor ask anything elsewhere."""
        for context in self._browser.contexts:
            context.close()
        complaints, self.complaints = self.complaints, []
        requests, self.requests = self.requests, []
        assert complaints == []
        assert [url for url in requests if not url.startswith(self.url)] == []

    def _hear(self, message: Any) -> None:
        # A daemon that was stopped is met with failed connections, and mistakes are refused: the
        # browser notes both, and the page shows them.
        if message.type == "error" and not _EXPECTED.search(message.text):
            self.complaints.append(message.text)


@contextlib.contextmanager
def _open_site(folder: Path, nvml_library: str, browser: Browser) -> Iterator[Site]:
    """The page of a queue whose daemon runs, on two GPUs."""
    stoker = Stoker(folder, FakeGpus(folder / "nvml", nvml_library).create(4, 8 * GIB))
    queue = PageQueue(stoker)
    try:
        queue.start()
        try:
            yield Site(queue, browser)
        finally:
            queue.close()
    finally:
        stoker.close()


@pytest.fixture(scope="module")
def shared_site(
    tmp_path_factory: pytest.TempPathFactory, nvml_library: str, browser: Browser
) -> Iterator[Site]:
    """Return the page of the queue that the tests of a file share."""
    with _open_site(tmp_path_factory.mktemp("site"), nvml_library, browser) as site:
        yield site


@pytest.fixture
def site(shared_site: Site, tmp_path: Path) -> Iterator[Site]:
    """Return the page of a queue without jobs, in a working folder of the test's own.

    Ids go on from test to test. A test that stops the daemon or changes its token wants `own_site`.
    """
    shared_site.work_in(tmp_path)
    yield shared_site
    try:
        shared_site.close_tabs()
    finally:
        shared_site.clear()


@pytest.fixture
def own_site(tmp_path: Path, nvml_library: str, browser: Browser) -> Iterator[Site]:
    """Return the page of a queue of the test's own."""
    with _open_site(tmp_path, nvml_library, browser) as site:
        yield site
        site.close_tabs()


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Modules]:
    """Return the page's modules, without a daemon."""
    modules = Modules(browser)
    yield modules
    modules.close()
