"""The page's modules without a daemon: files of the static folder, in a real browser."""

from __future__ import annotations

import os
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

_SITE = "http://stoker.test"
_MEDIA = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


class Modules:
    """Runs functions of JavaScript that import what they test."""

    def __init__(self, browser: Browser) -> None:
        self._folder = str(resources.files("stoker.web") / "static")
        self.page: Page = browser.new_page()
        self.page.route("**/*", self._serve)
        self.page.goto(f"{_SITE}/blank.html")

    def run(self, function: str, *details: Any) -> Any:
        """What an async function returns, called with these arguments."""
        return self.page.evaluate(f"(details) => ({function})(...details)", list(details))

    def close(self) -> None:
        """Close the tab."""
        self.page.context.close()

    def _serve(self, route: Route) -> None:
        path = route.request.url.removeprefix(_SITE).partition("?")[0]
        if path == "/blank.html":
            styles = (
                '<link rel="stylesheet" href="/app.css"><link rel="stylesheet" href="/parts.css">'
            )
            route.fulfill(body=f"<!doctype html>{styles}", content_type="text/html")
            return
        with open(f"{self._folder}{path}", "rb") as file:
            kind = _MEDIA[os.path.splitext(path)[1]]
            route.fulfill(body=file.read(), content_type=kind)
