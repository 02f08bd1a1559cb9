"""The table of jobs: live, filtered, and every action seen to take effect in the queue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from web.conftest import Site


def row(page: Page, job: int) -> Locator:
    return page.locator(f"tr[data-job='{job}']")


def choose(page: Page, *jobs: int) -> None:
    for job in jobs:
        page.get_by_label(f"Select job {job}", exact=True).check()


def order(page: Page) -> list[int]:
    found = page.locator("tr[data-job]").evaluate_all("rows => rows.map(row => row.dataset.job)")
    return [int(each) for each in found]


def test_changes_of_the_queue_are_shown_at_once(site: Site) -> None:
    page = site.tab("/jobs")
    expect(page.get_by_text("There are no jobs yet")).to_be_visible()
    job = site.queue.add("-N", "mnist", "sleep", "60")
    expect(row(page, job).locator(".state")).to_have_text("running")
    expect(page.get_by_role("button", name="running 1")).to_be_visible()
    site.queue.ok("kill", str(job))
    expect(row(page, job).locator(".state")).to_have_text("killed")
    expect(page.get_by_role("button", name="killed 1")).to_be_visible()


def test_a_running_job_that_wastes_its_gpu_is_marked(site: Site) -> None:
    words = ("--mem", "1G", "--sm", "0", "--seconds", "600", "--steps", "1200")
    job = site.queue.add(sys.executable, "-m", "stoker.testing.train", *words)
    site.queue.until(lambda: site.queue.ls()[job]["gpu_bytes"], "the memory of the job is seen")
    site.queue.ok("config", "mark.idle", "1s")
    page = site.tab("/jobs")
    expect(row(page, job).locator(".mark")).to_have_text("idle")
    expect(row(page, job).locator(".state")).to_have_text("running")
    expect(row(page, job)).to_contain_text("without computing, holds 1.0 GiB")
    page = site.tab(f"/jobs/{job}")
    expect(page.locator("h1 .mark")).to_have_text("idle")
    expect(page.get_by_role("status").filter(has_text="without computing")).to_be_visible()


def test_selected_jobs_are_killed_retried_and_removed(site: Site) -> None:
    page = site.tab("/jobs")
    jobs = [site.queue.add("-g", "0", "sleep", "60") for _ in range(2)]
    for job in jobs:
        expect(row(page, job).locator(".state")).to_have_text("running")
    choose(page, *jobs)
    page.get_by_role("button", name="Kill", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.get_by_role("dialog").get_by_role("button", name="Kill", exact=True).click()
    for job in jobs:
        expect(row(page, job).locator(".state")).to_have_text("killed")
    assert set(site.queue.states().values()) == {"killed"}
    choose(page, jobs[0])
    page.get_by_role("button", name="Retry").click()
    expect(row(page, jobs[0]).locator(".state")).to_have_text("running")
    choose(page, jobs[1])
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row(page, jobs[1])).to_have_count(0)
    assert list(site.queue.states()) == [jobs[0]]


def test_the_queue_is_paused_and_its_jobs_held_released_and_given_a_priority(site: Site) -> None:
    page = site.tab("/jobs")
    page.get_by_role("button", name="Pause queue").click()
    expect(page.get_by_text("The queue is paused:").first).to_be_visible()
    job = site.queue.add("sleep", "60")
    expect(row(page, job).locator(".state")).to_have_text("waiting")
    choose(page, job)
    page.get_by_role("button", name="Hold").click()
    expect(row(page, job).locator(".state")).to_have_text("held")
    choose(page, job)
    page.get_by_role("button", name="Release").click()
    expect(row(page, job).locator(".state")).to_have_text("waiting")
    choose(page, job)
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_text(f"job {job} is changed")).to_be_visible()
    assert site.queue.show(job)["priority"] == 7
    page.get_by_role("button", name="Resume queue").click()
    expect(row(page, job).locator(".state")).to_have_text("running")


def test_waiting_jobs_are_moved_by_dragging_and_by_keys(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    first, second, third = (site.queue.add("true") for _ in range(3))
    page = site.tab("/jobs")
    expect(row(page, third)).to_be_visible()
    assert order(page) == [first, second, third]
    row(page, third).drag_to(row(page, first), target_position={"x": 300, "y": 4})
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(third))
    assert order(page) == [third, first, second]
    page.keyboard.press("j")
    page.keyboard.press("J")
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first))
    assert order(page) == [first, third, second]
    page.get_by_label("Order").select_option("newest first")
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(third))
    choose(page, third)
    page.get_by_role("button", name="Down").click()
    expect(page.get_by_text("Jobs can be moved only in queue order")).to_be_visible()
    page.get_by_label("Order").select_option("queue order")
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first))
    assert order(page) == [first, third, second]


def test_filters_narrow_the_table_and_are_part_of_the_address(site: Site) -> None:
    good = site.queue.add("-N", "alpha", "--project", "p1", "true")
    bad = site.queue.add("-N", "beta", "--project", "p2", "false")
    site.queue("wait")
    page = site.tab("/jobs")
    page.get_by_role("button", name="failed 1").click()
    expect(row(page, good)).to_have_count(0)
    expect(row(page, bad)).to_be_visible()
    assert "states=failed" in page.url
    page.get_by_role("button", name="failed 1").click()
    page.get_by_label("Search").fill("ALPHA")
    expect(row(page, bad)).to_have_count(0)
    expect(row(page, good)).to_be_visible()
    expect(page.get_by_role("button", name="done 1")).to_be_visible()
    expect(page.get_by_role("button", name="failed 0")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_label("Project").fill("p2")
    expect(row(page, good)).to_have_count(0)
    page.reload()
    expect(row(page, bad)).to_be_visible()
    expect(page.get_by_label("Project")).to_have_value("p2")
    page.get_by_label("Project").fill("")
    gpu = str(site.queue.show(good)["slots"])
    page.get_by_label("GPU", exact=True).fill(gpu)
    expect(row(page, good)).to_be_visible()
    page.get_by_label("GPU", exact=True).fill("nowhere")
    expect(page.get_by_text("No job matches the filters.")).to_be_visible()


def test_pages_follow_each_other_in_any_order(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    lines = "".join(f"echo {number}\n" for number in range(120))
    site.queue.ok("add", "--batch", site.queue.stoker.file("batch", lines))
    first = min(site.queue.states())
    page = site.tab("/jobs")
    expect(page.locator("tr[data-job]")).to_have_count(50)
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first + 50))
    page.keyboard.press("n")
    expect(page.locator("tr[data-job]")).to_have_count(20)
    page.get_by_role("button", name="First", exact=True).click()
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first))
    page.get_by_label("Order").select_option("newest first")
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first + 119))
    page.get_by_role("button", name="Next", exact=True).click()
    expect(page.locator("tr[data-job]").first).to_have_attribute("data-job", str(first + 69))


def test_clicks_on_a_heading_sort_and_return_to_the_queue_order(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    b, c, a = (site.queue.add("-N", name, "true") for name in ("b", "c", "a"))
    page = site.tab("/jobs")
    expect(row(page, a)).to_be_visible()
    first = page.locator("tr[data-job]").first
    for title, way, wanted in (
        ("Id", "descending", [a, c, b]),
        ("Id", "ascending", [b, c, a]),
        ("What", "ascending", [a, b, c]),
    ):
        page.get_by_role("columnheader", name=title).get_by_role("button").click()
        expect(first).to_have_attribute("data-job", str(wanted[0]))
        assert order(page) == wanted
        assert page.locator("th[aria-sort]").get_attribute("aria-sort") == way
    page.get_by_role("columnheader", name="What").get_by_role("button").click()
    expect(first).to_have_attribute("data-job", str(b))
    assert page.locator("th[aria-sort]").count() == 0


def test_jobs_on_other_pages_are_selected_if_they_match_the_filter(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    for project in ("mine", "other"):
        lines = "".join(f"echo {number}\n" for number in range(60))
        site.queue.ok(
            "add", "--project", project, "--batch", site.queue.stoker.file("batch", lines)
        )
    page = site.tab("/jobs?project=mine")
    expect(page.locator("tr[data-job]")).to_have_count(50)
    page.get_by_role("button", name="Select all pages").click()
    expect(page.get_by_text("60 selected")).to_be_visible()
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("button", name="held 60")).to_be_visible()
    states = [(job["project"], job["state"]) for job in site.queue.ls().values()]
    assert sorted(states) == [("mine", "held")] * 60 + [("other", "waiting")] * 60


def test_the_selection_of_one_page_stays_on_the_next(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    lines = "".join(f"echo {number}\n" for number in range(70))
    site.queue.ok("add", "--batch", site.queue.stoker.file("batch", lines))
    first = min(site.queue.states())
    page = site.tab("/jobs")
    expect(row(page, first + 49)).to_be_visible()
    choose(page, first + 2)
    page.get_by_role("button", name="Next", exact=True).click()
    expect(row(page, first + 69)).to_be_visible()
    everything = page.get_by_label("Select all on this page")
    everything.check()
    expect(page.get_by_text("21 selected")).to_be_visible()
    everything.uncheck()
    expect(page.get_by_text("1 selected", exact=True)).to_be_visible()
    choose(page, first + 50)
    page.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("button", name="held 2")).to_be_visible()
    held = [job for job, state in site.queue.states().items() if state == "held"]
    assert held == [first + 2, first + 50]


def test_a_paused_project_is_resumed_on_the_page(site: Site) -> None:
    site.queue.ok("pause", "--queue", "--project", "vision")
    job = site.queue.add("--project", "vision", "-g", "0", "true")
    page = site.tab("/jobs")
    notice = page.locator(".notice", has_text="Project vision is paused")
    notice.get_by_role("button", name="Resume").click()
    expect(notice).to_have_count(0)
    expect(page.locator(f"tr[data-job='{job}'] .state")).to_have_text("done")


def test_back_from_a_job_leads_to_the_same_page_and_place(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    lines = "".join(f"echo {number}\n" for number in range(120))
    site.queue.ok("add", "--batch", site.queue.stoker.file("batch", lines))
    first = min(site.queue.states())
    page = site.tab("/jobs")
    page.get_by_role("button", name="Next", exact=True).click()
    ways: list[Callable[[], object]] = [
        page.go_back,
        page.get_by_role("link", name="← Jobs").click,
        lambda: page.keyboard.press("u"),
    ]
    for leave in ways:
        expect(row(page, first + 50)).to_be_visible()
        row(page, first + 90).scroll_into_view_if_needed()
        page.wait_for_function("() => history.state && history.state.scroll[1] > 100")
        row(page, first + 90).get_by_role("link").click()
        expect(page.get_by_role("heading", name=f"Job {first + 90}")).to_be_visible()
        leave()
        expect(row(page, first + 90)).to_be_in_viewport()
        expect(page.get_by_text("Page 2", exact=True)).to_be_visible()
    page.reload()
    expect(row(page, first + 50)).to_be_attached()
    expect(page.get_by_text("Page 2", exact=True)).to_be_visible()


def test_a_focused_filter_shows_what_the_address_says(site: Site) -> None:
    page = site.tab("/jobs?text=alpha")
    field = page.get_by_label("Search")
    expect(field).to_have_value("alpha")
    field.focus()
    page.evaluate("location.hash = '/jobs?text=beta'")
    expect(field).to_have_value("beta")
    field.press_sequentially("s")
    page.wait_for_url("**text=betas")
    expect(field).to_have_value("betas")


def test_shift_selects_a_range_and_actions_appear_only_with_a_selection(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    jobs = [site.queue.add("python", "fit.py", "--lr", f"0.{n}", "--bs", "4") for n in range(1, 6)]
    page = site.tab("/jobs")
    expect(row(page, jobs[1]).locator("code")).to_have_text("lr=0.2 python fit.py")
    expect(page.get_by_role("toolbar")).to_be_hidden()
    page.get_by_label(f"Select job {jobs[1]}", exact=True).click()
    page.get_by_label(f"Select job {jobs[3]}", exact=True).click(modifiers=["Shift"])
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("toolbar")).to_be_hidden()


def test_the_palette_leads_to_pages_and_jobs_by_keyboard(site: Site) -> None:
    site.queue.ok("pause", "--queue")
    job = site.queue.add("-N", "mnist", "python", "fit.py")
    page = site.tab("/gpus")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Go to or do")
    expect(field).to_be_focused()
    assert find_barriers(page) == []
    field.fill("timel")
    expect(page.get_by_role("option", selected=True)).to_contain_text("Timeline")
    field.press("Enter")
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.keyboard.press("Control+k")
    field.fill("mnist")
    expect(page.get_by_role("option")).to_contain_text([f"Job {job} mnist"])
    field.press("Enter")
    expect(page.get_by_role("heading", name=f"Job {job}")).to_be_visible()
    page.keyboard.press("Meta+k")
    field.fill("resume")
    field.press("Enter")
    expect(page.get_by_text("The queue continues.")).to_be_visible()


def test_the_table_is_sorted_by_duration_dense_and_without_columns(site: Site) -> None:
    short = site.queue.add("-g", "0", "true")
    site.queue.ok("wait", str(short))
    long = site.queue.add("-g", "0", "sleep 600")
    page = site.tab("/jobs")
    page.get_by_role("columnheader", name="Ran").get_by_role("button").click()
    page.wait_for_url("**sort=longest**")
    site.queue.until(lambda: site.queue.states()[long] == "running", "the long job runs")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Ran")
    expect(page.locator("tr[data-job]")).to_have_count(2)
    page.get_by_role("columnheader", name="When").get_by_role("button").click()
    page.wait_for_url("**sort=ended**")
    expect(page.locator("tr[data-job]")).to_have_count(1)
    page.get_by_role("button", name="Dense").click()
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Priority").uncheck()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_hidden()
    assert find_barriers(page) == []
    page.reload()
    expect(page.get_by_role("button", name="Dense")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("columnheader", name="When")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_hidden()
