"""The timeline: what was on the GPUs, what is there, and what is expected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from web.conftest import Site
    from web.modules import Modules


def run_some(site: Site) -> tuple[int, int, int]:
    """A job that has ended, one that runs, and one that waits, all of one kind."""
    site.queue.ok("gpus", "drain", "1")
    done = site.queue.add("-N", "fit", "--", "sh", "-c", "sleep 1.2")
    site.queue.ok("wait", str(done))
    words = ("-N", "fit", "--", "sh", "-c", "sleep 600")
    return done, site.queue.add(*words), site.queue.add(*words)


def test_past_present_and_plan_are_drawn_moved_and_opened(own_site: Site) -> None:
    site = own_site
    done, runs, waits = run_some(site)
    page = site.tab("/timeline?span=120")
    chart = page.get_by_role("img", name="Timeline of 2 GPUs")
    expect(chart).to_have_accessible_name(
        re.compile("1 attempts have ended, 1 run, 1 are expected")
    )
    expect(page.get_by_role("listitem").filter(has_text="fit on GPU 0")).to_contain_text(
        f"job {waits}"
    )
    assert find_barriers(page) == []
    box = chart.bounding_box()
    assert box is not None
    now = box["x"] + 74 + (box["width"] - 84) * 0.62
    page.mouse.move(now - 1, box["y"] + 20)
    expect(page.locator(".chart-tip")).to_contain_text(f"job {runs} fit, running on GPU 0")
    page.mouse.wheel(0, -100)
    page.wait_for_url("**span=96")
    chart.press("ArrowLeft")
    page.wait_for_url("**from=**")
    page.reload()
    expect(page.get_by_role("button", name="Now")).to_be_enabled()
    page.get_by_role("button", name="Now").click()
    page.mouse.click(now - 1, box["y"] + 20)
    expect(page.get_by_role("heading", name=re.compile(f"Job ({done}|{runs})"))).to_be_visible()


def test_the_rows_of_a_timeline_put_jobs_that_share_into_lanes(modules: Modules) -> None:
    run = {"attempt": 1, "name": None, "project": None, "state": "done", "expected_end_at": None}
    rows = modules.run(
        "async (...details) => (await import('/logic/timeline.js')).timelineRows(...details)",
        [
            {**run, "job": 1, "slots": ["h/0+1"], "started_at": 10, "ended_at": 20},
            {**run, "job": 2, "slots": ["h/0"], "started_at": 15, "ended_at": None},
            {**run, "job": 3, "slots": ["h/0"], "started_at": 20, "ended_at": 25},
        ],
        [{"job": 4, "slots": ["h/1"], "start_at": 29, "end_at": 40}],
        30,
        ["h/0", "h/1", "h/2"],
    )
    drawn = {row["label"]: [(each["job"], each["lane"]) for each in row["items"]] for row in rows}
    assert drawn == {"h/0": [(1, 0), (2, 1), (3, 0)], "h/1": [(1, 0), (4, 0)], "h/2": []}
    assert rows[1]["items"][1]["from"] == 30
