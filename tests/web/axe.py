"""Looks for what keeps people from using a page: the rules of WCAG and good practice, by axe-core."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def find_barriers(page: Page) -> list[str]:
    """What axe finds wrong by day and in the dark, each with the element it is about."""
    from axe_playwright_python.sync_playwright import Axe

    barriers = []
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        barriers += [
            f"{violation['id']}: {node['html'][:200]} ({node['failureSummary'][:200]}), {colours}"
            for violation in found.response["violations"]
            for node in violation["nodes"]
        ]
    return barriers
