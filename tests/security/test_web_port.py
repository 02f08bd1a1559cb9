"""A second user takes the page's port while the daemon is down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from integration.daemon_fixture import free_port
from page_client import REFUSED, ask_by
from patience import until
from security.imposter import Imposter
from security.quick_queue import QuickQueue
from stoker.errors import StokerError
from stoker.web.check import check_listener
from web.conftest import Site, browser

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from security.second_user import SecondUser

__all__ = ["browser"]


@pytest.fixture
def queue(quick_queue: QuickQueue) -> QuickQueue:
    """Return a queue whose daemon runs."""
    quick_queue.start()
    return quick_queue


def test_an_open_tab_tells_no_secret_to_whoever_has_taken_the_port(
    queue: QuickQueue, browser: Browser, second_user: SecondUser, shared_folder: Path
) -> None:
    site = Site(queue, browser)
    port = int(site.url.rstrip("/").rpartition(":")[2])
    page = site.tab("/jobs")
    queue.ok("daemon", "stop")
    imposter = Imposter(second_user, port, shared_folder)
    until(lambda: "hello" in imposter.heard(), "the tab has found the second user's server")
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    assert site.token not in imposter.heard()
    assert "prove" not in imposter.heard()
    imposter.close()
    # The tab is still the owner's: the next daemon proves itself, and hands it the new token.
    queue.ok("daemon", "start")
    expect(page.locator(".link.open")).to_be_visible()
    assert ask_by(port, site.token) == REFUSED


def test_a_reloaded_tab_loses_only_a_token_that_has_ended(
    queue: QuickQueue, browser: Browser, second_user: SecondUser, shared_folder: Path
) -> None:
    site = Site(queue, browser)
    port = int(site.url.rstrip("/").rpartition(":")[2])
    page = site.tab("/jobs")
    queue.ok("daemon", "stop")
    imposter = Imposter(second_user, port, shared_folder)
    # The page is the second user's now, and can read all that the browser keeps for this address.
    page.goto(site.url)
    stolen = page.evaluate("() => ({...localStorage, ...sessionStorage})")
    assert stolen["stoker.token"] == site.token
    imposter.close()
    queue.ok("daemon", "start")
    assert [name for name, value in stolen.items() if ask_by(port, value) != REFUSED] == []


def test_a_daemon_whose_port_is_taken_says_by_whom_and_opens_the_page_elsewhere(
    queue: QuickQueue, second_user: SecondUser, shared_folder: Path
) -> None:
    port = int(free_port())
    queue.ok("web", "--port", str(port))
    queue.ok("daemon", "stop")
    imposter = Imposter(second_user, port, shared_folder)
    queue.ok("daemon", "start")
    notice = f"the web page is closed: cannot listen at 127.0.0.1:{port}: a process of user"
    assert f"{notice} {second_user.name} listens there" in (queue.home / "daemon.log").read_text()
    assert not (queue.home / "token").exists()
    other = int(queue.ok("web").split(":")[2].partition("/")[0])
    assert other != port
    assert imposter.heard() == ""


def test_no_link_to_another_users_server_is_printed(
    second_user: SecondUser, shared_folder: Path
) -> None:
    port = int(free_port())
    imposter = Imposter(second_user, port, shared_folder)
    with pytest.raises(StokerError, match=f"a process of user {second_user.name}"):
        check_listener("127.0.0.1", port, "t" * 43)
    assert "t" * 43 not in imposter.heard()


def test_a_link_leads_to_no_other_address_that_a_browser_tries_for_localhost(
    queue: QuickQueue, browser: Browser, second_user: SecondUser, shared_folder: Path
) -> None:
    """A browser tries ::1 before 127.0.0.1, and a page can read the token in its own address."""
    port = int(free_port())
    imposter = Imposter(second_user, port, shared_folder, address="::1")
    link = queue.ok("web", "--host", "localhost", "--port", str(port)).split()[0]
    page = browser.new_page()

    page.goto(link)

    expect(page.locator(".link.open")).to_be_visible()
    assert imposter.heard() == ""
    page.context.close()
