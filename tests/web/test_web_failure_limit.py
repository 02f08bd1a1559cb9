"""The page tells that jobs without a project are paused, and lets them go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from web.conftest import Site


def test_similar_failures_without_a_project_are_shown_and_resumed(site: Site) -> None:
    page = site.tab("/jobs")
    site.queue.ok("pause", "--queue")
    for _ in range(4):
        site.queue.add("-g", "2", "sleep 0.1; exit 3")
    site.queue.ok("resume", "--queue")
    notice = page.get_by_text("Jobs without a project are paused: 3 jobs in a row failed: exit 3.")
    expect(notice).to_be_visible()
    assert site.queue.states()[4] == "waiting"

    page.get_by_role("button", name="Resume queue").click()

    expect(notice).to_be_hidden()
    expect(page.get_by_role("button", name="Pause queue")).to_be_visible()
    site.queue.until(lambda: site.queue.states()[4] == "failed", "the last one has run")
