"""For everyone: by keyboard alone, on a phone, in the dark, with a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from web.conftest import Site

PHONE = {"width": 390, "height": 844}
PATHS = ("/gpus", "/jobs", "/jobs/1", "/submit", "/sweeps")


def test_axe_finds_nothing_on_any_page(site: Site) -> None:
    site.queue.add("-N", "one", "echo hello; exit 1")
    site.queue("wait")
    site.queue.add("-N", "two", "sleep", "60")
    page = site.tab()
    for path in PATHS:
        page.evaluate("path => { location.hash = path }", path)
        page.wait_for_function(
            "path => document.title !== 'Stoker' && location.hash === '#' + path", arg=path
        )
        page.wait_for_selector("h1")
        assert find_barriers(page) == [], path
    site.queue.ok("kill", "--all")


@pytest.mark.parametrize("path", PATHS)
def test_every_page_fits_a_phone(site: Site, path: str) -> None:
    site.queue.add("-N", "a-rather-long-name-of-a-job", "echo " + "x" * 500)
    site.queue("wait")
    page = site.tab(path, viewport=PHONE, has_touch=True, is_mobile=True)
    page.wait_for_selector("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for table in page.locator(".tall").all():
        assert table.evaluate("it => it.scrollWidth - it.clientWidth") == 0
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()


def test_the_theme_follows_the_system_until_the_user_chooses(site: Site) -> None:
    page = site.tab(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    assert dark != light
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate(background) == dark
    page.reload()
    page.wait_for_selector(".link.open")
    assert page.evaluate(background) == dark


def test_a_job_is_found_selected_and_killed_by_keyboard(site: Site) -> None:
    job = site.queue.add("sleep", "60")
    page = site.tab()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.locator(f"tr[data-job='{job}'] .state")).to_have_text("running")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.get_by_role("button", name="Kill", exact=True).press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Kill", exact=True).press("Enter")
    expect(page.locator(f"tr[data-job='{job}'] .state")).to_have_text("killed")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Keyboard")).to_be_hidden()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Job {job}")).to_be_visible()
