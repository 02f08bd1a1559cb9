"""Chromium that opens the page of a queue."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

from benchmarks.errors import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from benchmarks.queues.stoker import Queue

FLAGS = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)
_LINK = re.compile(r"http://(\S+)/#token=(\S+)")
# Runs before the page's own scripts: notes when something is in the document, by the page's clock, which
# begins with the navigation. What asks from outside is late by what the asking takes.
_AWAITED = """new MutationObserver((_, observer) => {
  if (!document.querySelector(SELECTOR)) return;
  observer.disconnect();
  window.usableAt = performance.now();
}).observe(document, {subtree: true, childList: true});"""
# Opens a page, and returns after how many milliseconds an element is there.
_TIMED = """([hash, selector]) => new Promise((resolve) => {
  const began = performance.now();
  const done = () => document.querySelector(selector) && resolve(performance.now() - began);
  new MutationObserver(done).observe(document.body, {subtree: true, childList: true, attributes: true});
  location.hash = hash;
})"""
# Notes when the state of a job that is shown has become another.
_NOTED = """(job) => new Promise((resolve) => {
  const cell = document.querySelector(`tr[data-job='${job}']`);
  new MutationObserver((_, observer) => {
    observer.disconnect();
    window.seenAt = performance.timeOrigin + performance.now();
  }).observe(cell, {subtree: true, childList: true, characterData: true});
  window.seenAt = 0;
  resolve();
})"""


class Site:
    """The page of a queue, opened."""

    def __init__(self, queue: Queue, browser: Browser) -> None:
        found = _LINK.search(queue.stoker("web"))
        if found is None:
            raise BenchError("stoker web printed no link")
        self.address, self.token = found.groups()
        self._browser = browser

    def load(self, selector: str) -> tuple[Page, float, int]:
        """A fresh browser on the page: milliseconds until something is there, and bytes loaded."""
        page = self._browser.new_context().new_page()
        session = page.context.new_cdp_session(page)
        loaded: list[int] = []
        session.on("Network.loadingFinished", lambda event: loaded.append(_size(event)))
        session.send("Network.enable")
        page.add_init_script(_AWAITED.replace("SELECTOR", json.dumps(selector)))
        page.goto(f"http://{self.address}/#token={self.token}")
        page.wait_for_function("() => window.usableAt")
        spent_ms = page.evaluate("window.usableAt")
        return page, float(spent_ms), sum(loaded)

    @staticmethod
    def time(page: Page, path: str, selector: str) -> float:
        """Milliseconds from the wish to see a page to the moment when something of it is there."""
        return float(page.evaluate(_TIMED, [f"#{path}", selector]))

    @staticmethod
    def note_next_change(page: Page, job: int) -> None:
        """Watch a job that is shown."""
        page.evaluate(_NOTED, job)

    @staticmethod
    def seen_at_s(page: Page) -> float:
        """When the change of that job was in the document."""
        page.wait_for_function("() => window.seenAt")
        return float(page.evaluate("window.seenAt")) / 1e3


def _size(event: Any) -> int:
    return int(event["encodedDataLength"])


@contextlib.contextmanager
def open_site(queue: Queue) -> Iterator[Site]:
    """The page of a queue, in Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BenchError("the case web needs Playwright: make .venv/.web") from None
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise BenchError("the case web needs Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield Site(queue, browser)
        browser.close()
