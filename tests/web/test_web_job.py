"""The page of one job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from web.conftest import Site


def test_the_page_shows_details_and_history_of_a_job(site: Site) -> None:
    site.queue.stoker.env["MY_TOKEN"] = "hush"
    job = site.queue.add("-N", "fit", "--retries", "1", "echo hello; exit 3")
    site.queue("wait")
    page = site.tab(f"/jobs/{job}")
    expect(page.get_by_role("heading", name=f"Job {job} fit")).to_be_visible()
    expect(page.locator("h1 .state")).to_have_text("failed")
    expect(page.locator(".why")).to_contain_text("exit 3")
    expect(page.locator(".timeline li")).to_have_count(5)
    expect(page.locator(".timeline li").last).to_contain_text(
        re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(.+\)")
    )
    expect(page.get_by_role("table", name="Attempts").locator("tbody tr")).to_have_count(2)
    expect(page.locator(".command")).to_have_text("echo hello; exit 3")
    page.get_by_text("Environment").click()
    expect(page.get_by_label("Environment")).to_contain_text("MY_TOKEN=***")
    expect(page.get_by_text("hush")).to_have_count(0)
    expect(page.get_by_role("region", name="Log")).to_contain_text("hello")


def test_the_log_file_of_a_job_is_shown_before_and_after_its_start(site: Site) -> None:
    named = site.queue.add("--hold", "-o", "out-{id}.txt", "true")
    usual = site.queue.add("-g", "0", "true")
    site.queue.ok("wait", str(usual))
    page = site.tab(f"/jobs/{named}")
    facts = page.locator(".facts")
    expect(facts).to_contain_text(f"{site.queue.work}/out-{{id}}.txt")
    page.goto(f"{site.url}#/jobs/{usual}")
    expect(facts).to_contain_text(f"{site.queue.home}/logs/0/{usual}.1.log")


def test_actions_on_a_job_change_its_state_on_the_page(site: Site) -> None:
    job = site.queue.add("echo begun; sleep 60")
    page = site.tab(f"/jobs/{job}")
    expect(page.locator("h1 .state")).to_have_text("running")
    expect(page.get_by_role("region", name="Log")).to_contain_text("begun")
    pid = site.queue.show(job)["attempts"][0]["pid"]
    expect(page.locator(".facts")).to_contain_text(str(pid))
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("h1 .state")).to_have_text("paused")
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("h1 .state")).to_have_text("running")
    page.get_by_role("button", name="Kill", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Kill", exact=True).click()
    expect(page.locator("h1 .state")).to_have_text("killed")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("h1 .state")).to_have_text("running")
    site.queue.ok("kill", str(job))
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There are no jobs yet")).to_be_visible()


def test_the_charts_of_a_job_remain_after_its_end(site: Site) -> None:
    admission = site.queue.work / "gate"
    job = site.queue.add(f"while ! test -e {admission}; do sleep 0.05; done")
    page = site.tab(f"/jobs/{job}")
    memory = f"Memory of the GPU that job {job} holds"
    expect(page.get_by_label(memory)).to_be_visible()
    admission.touch()
    expect(page.locator("h1 .state")).to_have_text("done")
    expect(page.get_by_label(memory)).to_be_visible()
    expect(site.tab(f"/jobs/{job}").get_by_label(memory)).to_be_visible()


def test_the_page_of_a_waiting_job_says_why_it_waits(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    job = site.queue.add("true")
    page = site.tab(f"/jobs/{job}")
    expect(page.locator(".why")).to_contain_text("paused")
    site.queue.ok("resume", "--queue")
    expect(page.locator("h1 .state")).to_have_text("done")


def test_an_unknown_job_is_named(site: Site) -> None:
    page = site.tab("/jobs/77")
    expect(page.get_by_text("there is no job 77")).to_be_visible()


def test_a_waiting_job_shows_what_keeps_it_off_each_gpu(own_site: Site) -> None:
    site = own_site  # on a GPU where jobs were short, the next one is claimed in advance
    first = site.queue.add("sleep", "600")
    large = site.queue.add("--gpus", "2", "sleep", "600")
    small = site.queue.add("sleep", "600")
    page = site.tab(f"/jobs/{small}")
    cells = page.get_by_role("list", name="GPUs that it waits for").get_by_role("listitem")
    expect(cells).to_have_count(2)
    expect(cells.nth(0)).to_have_class("cell held")
    expect(cells.nth(1)).to_have_class("cell kept")
    expect(cells.nth(1)).to_contain_text(f"kept for job {large}, which needs 2 GPUs and is ahead")
    expect(page.get_by_role("link", name="1 ahead of it")).to_be_visible()
    assert find_barriers(page) == []
    site.queue.ok("gpus", "drain", "1")
    expect(cells.nth(1)).to_have_class("cell drained")
    cells.nth(0).get_by_role("link", name=f"job {first}").click()
    expect(page.get_by_role("heading", name=f"Job {first}")).to_be_visible()
