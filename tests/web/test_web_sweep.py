"""The page of a sweep: what came of its runs, and what can be done about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from web.axe import find_barriers

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Site

# Runs that report as real ones do, and fail where lr is 0.1; no Python, so that they are fast.
_SWEEP = """\
name: net
command: sh run.sh {lr} {opt}
parameters:
  lr: [1.0e-3, 1.0e-2, 1.0e-1]
  opt: [sgd, "<script>alert(1)</script>"]
resources: {gpus: 0}
metric: {name: acc, goal: maximize}
"""
_RUN = """\
for step in 1 2 3; do
  echo "{\\"step\\":$step,\\"time\\":1,\\"acc\\":$1,\\"<b>loss\\":$step}" >> $STOKER_RUN_DIR/metrics.jsonl
done
test -e fixed || test "$1" != 0.1 || { echo no luck; exit 3; }
"""

# Marks the document when the page begins its pause between two updates of a sweep.
_MARK_PAUSE = """() => {
  const start = window.setTimeout;
  window.setTimeout = (action, ms) => {
    if (ms === 2000) document.body.dataset.pauses = true;
    return start(action, ms);
  };
}"""


def run_sweep(site: Site) -> str:
    """The path of the page of a sweep that has ended: four runs done, two failed."""
    site.queue.stoker.file("run.sh", _RUN)
    site.queue.stoker.file("net.yaml", _SWEEP)
    site.queue.ok("config", "brake", "0")
    site.queue.ok("sweep", "-f", "net.yaml")
    assert site.queue("wait", "--all").code == 1
    return f"/sweeps/net?cwd={quote(str(site.queue.work), safe='')}"


@pytest.fixture(scope="module")
def sweep(shared_site: Site) -> str:
    """Return the path of the page of a sweep that has ended; nothing in this file changes it."""
    return run_sweep(shared_site)


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """Return the page of the queue with that sweep; its jobs stay."""
    yield shared_site
    shared_site.close_tabs()


def open_sweep(site: Site, sweep: str, **options: object) -> Page:
    page = site.tab(sweep, **options)
    page.locator(".runs tbody tr").nth(5).wait_for(timeout=30_000)
    return page


def jobs_shown(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".runs tbody td:first-child").all_inner_texts()]


def test_runs_are_shown_with_params_metrics_the_best_and_the_failed(site: Site, sweep: str) -> None:
    page = open_sweep(site, sweep)
    assert "4 done" in page.inner_text(".progress")
    assert "2 failed" in page.inner_text(".progress")
    headings = [text.strip() for text in page.locator(".runs th").all_inner_texts()]
    assert headings == ["job", "state", "lr", "opt", "acc", "<b>loss", "took"]
    assert page.inner_text(".best .figure").split() == ["acc", "0.01"]  # those with 0.1 failed
    assert page.locator(".failures li").count() == 1
    assert "exit 3" in page.inner_text(".failures")
    assert "This needs 8 runs" in page.inner_text(".importance")
    page.get_by_label("Goal").select_option("minimize")
    page.locator(".best .figure", has_text="0.001").wait_for()
    assert page.locator("main script, main b > b").count() == 0
    for canvas in page.locator("canvas:not([aria-hidden])").all():
        assert canvas.get_attribute("aria-label")


def test_runs_are_sorted_by_any_column(site: Site, sweep: str) -> None:
    page = open_sweep(site, sweep)
    lr = page.locator(".runs th button", has_text="lr")
    lr.click()
    page.locator("th[aria-sort=ascending]", has_text="lr").wait_for()
    first = page.locator(".runs tbody tr").first
    assert "0.001" in first.inner_text()
    lr.click()
    page.locator("th[aria-sort=descending]", has_text="lr").wait_for()
    assert "0.1" in page.locator(".runs tbody tr").first.inner_text()


def test_a_brush_filters_runs_by_mouse_and_by_keyboard(site: Site, sweep: str) -> None:
    page = open_sweep(site, sweep)
    axis = page.locator(".axis", has_text="lr")
    axis.focus()
    page.keyboard.press("ArrowUp")
    page.get_by_text("4 of 6 runs").wait_for()
    assert len(jobs_shown(page)) == 4
    page.keyboard.press("Escape")
    page.locator(".runs tbody tr").nth(5).wait_for()
    slot_table = page.locator(".parallel canvas.brushed")
    slot_table.scroll_into_view_if_needed()
    box = slot_table.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] * 0.5 / 4  # the first of four axes
    page.mouse.move(x, box["y"] + 13)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.4, steps=4)
    page.mouse.up()
    page.get_by_text("2 of 6 runs").wait_for()
    page.get_by_role("button", name="Show all runs").click()
    page.locator(".runs tbody tr").nth(5).wait_for()


def test_similar_failures_are_retried_together(own_site: Site) -> None:
    site = own_site
    sweep = run_sweep(site)
    page = open_sweep(site, sweep)
    failed = [job for job, state in site.queue.states().items() if state == "failed"]
    assert len(failed) == 2
    site.queue.stoker.file("fixed", "")
    page.get_by_role("button", name="Retry these").click()
    page.get_by_text("2 runs queued again").wait_for()
    page.locator(".progress", has_text="6 done").wait_for(timeout=30_000)
    assert all(site.queue.show(job)["attempt"] == 2 for job in failed)
    assert "No run has failed" in page.inner_text(".failures")


def test_a_change_between_two_updates_is_shown_by_the_next(own_site: Site) -> None:
    site = own_site
    sweep = run_sweep(site)
    page = site.blank_tab()
    page.clock.install()
    heard: list[str] = []
    page.on(
        "websocket", lambda socket: socket.on("framereceived", lambda text: heard.append(str(text)))
    )
    page.goto(site.link)
    page.wait_for_selector(".link.open")
    page.clock.pause_at(time.time() + 60)
    page.evaluate(_MARK_PAUSE)
    page.goto(f"{site.url}#{sweep}")
    page.locator(".progress", has_text="2 failed").wait_for()
    page.locator("[data-pauses]").wait_for()
    site.queue.stoker.file("fixed", "")
    site.queue.ok("retry", "--failed")
    site.queue.ok("wait")
    while not any('"done":6' in text for text in heard):
        page.wait_for_timeout(10)
    page.clock.run_for(3000)
    page.locator(".progress", has_text="6 done").wait_for()


def test_a_run_stands_out_in_curves_and_table_and_a_drag_zooms(site: Site, sweep: str) -> None:
    page = open_sweep(site, sweep)
    page.get_by_label("Compare by").select_option("<b>loss")
    chart = page.get_by_role("img", name="<b>loss of 6 runs over steps")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    tip = page.locator(".curves .chart-tip")
    expect(tip).to_contain_text("job ")
    job = tip.inner_text().split()[1]
    expect(page.locator(".runs tr.near td").first).to_have_text(job)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, y, steps=3)
    page.mouse.up()
    page.get_by_role("button", name="Show all", exact=True).click()
    expect(page.get_by_role("button", name="Show all", exact=True)).to_be_hidden()
    page.locator(".runs tbody tr").nth(2).hover()
    expect(page.locator(".runs tr.near")).to_have_count(1)


def test_curves_are_shown_as_means_as_the_best_so_far_and_for_all_metrics(
    site: Site, sweep: str
) -> None:
    page = open_sweep(site, sweep)
    page.get_by_role("button", name="All metrics").click()
    expect(page.locator(".multiples h3")).to_have_text(["acc", "<b>loss"])
    page.get_by_role("button", name="All metrics").click()
    show = page.locator("#curve-show")
    show.select_option("band")
    page.get_by_label("Group by").select_option("lr")
    expect(page.locator(".curves .legend li")).to_have_text(
        ["lr=0.001 (2)", "lr=0.01 (2)", "lr=0.1 (2)"]
    )
    page.get_by_label("Smooth").fill("0.5")
    show.select_option("best")
    expect(page.get_by_role("img", name="Best acc so far over 4 runs: 0.01")).to_be_visible()
    page.wait_for_url("**show=best**")
    page.reload()
    expect(show).to_have_value("best")
    assert find_barriers(page) == []


def test_runs_are_filtered_and_compared_and_columns_hidden_and_pinned(
    site: Site, sweep: str
) -> None:
    page = open_sweep(site, sweep)
    first = min(jobs_shown(page))
    page.get_by_label(f"Compare job {first}").check()
    page.get_by_label(f"Compare job {first + 2}").check()
    compared = page.get_by_role("article", name="Compared runs")
    differing = compared.get_by_role("region", name="What differs")
    expect(differing.locator("tbody th")).to_have_text(["state", "lr", "acc", "<b>loss", "took"])
    expect(differing.locator("tr", has_text="lr").locator("td")).to_have_text(["0.001", "0.01"])
    chart = compared.get_by_role("img", name=f"acc of the compared jobs {first}, {first + 2}")
    expect(chart).to_be_visible()
    expect(compared.locator(".tails pre")).to_have_text(["nothing yet", "nothing yet"])
    page.get_by_label("Filter runs").fill("lr>=0.1 failed")
    expect(page.locator(".runs tbody tr")).to_have_count(2)
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="opt").uncheck()
    page.get_by_role("button", name="Pin acc").click()
    expect(page.locator(".runs th")).to_have_text(["job", "acc", "state", "lr", "<b>loss", "took"])
    page.wait_for_url("**pin=acc**")
    assert find_barriers(page) == []
    page.reload()
    expect(page.locator(".runs tbody tr")).to_have_count(2)
    expect(page.locator(".runs th")).to_have_text(["job", "acc", "state", "lr", "<b>loss", "took"])
    expect(compared).to_be_visible()
    compared.get_by_role("button", name="Done").click()
    expect(compared).to_have_count(0)


def test_a_sweep_is_paused_stopped_and_retried_on_its_page(own_site: Site) -> None:
    site = own_site
    site.queue.ok("sweep", "--name", "long", "-g", "0", "sleep {s}", "s=600,601")
    site.queue.until(lambda: "running" in site.queue.states().values(), "a run has begun")
    page = site.tab("/sweeps/long")
    steer = page.get_by_role("toolbar", name="Steer long")
    steer.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Project long is paused")).to_be_visible()
    steer.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Project long is paused")).to_have_count(0)
    steer.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop the sweep").click()
    expect(page.locator(".progress")).to_contain_text("2 killed")
    assert set(site.queue.states().values()) == {"killed"}
    expect(steer.get_by_role("button", name="Pause")).to_be_hidden()


def test_all_runs_are_exported_as_csv(site: Site, sweep: str) -> None:
    page = open_sweep(site, sweep)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    header, *rows = Path(download.value.path()).read_text().splitlines()
    assert header == "job,state,attempt,slots,reason,lr,opt,acc,<b>loss"
    assert len(rows) == 6
    assert rows[0].startswith(f"{min(site.queue.states())},done,1,")
    assert download.value.suggested_filename == "net.csv"


def test_a_run_shows_its_metrics_its_place_in_the_sweep_and_its_neighbours(
    site: Site, sweep: str
) -> None:
    first = min(site.queue.states())
    page = site.tab(f"/jobs/{first}")
    run = page.locator(".sweep-run")
    expect(run.locator(".standing")).to_contain_text("acc 0.001 number 3 of 4; best, job")
    expect(run.locator(".standing")).to_contain_text("+0.009")
    expect(run.locator(".multiples h3")).to_have_text(["acc", "<b>loss"])
    assert find_barriers(page) == []
    run.get_by_role("link", name=f"job {first + 1} →").click()
    expect(page.get_by_role("heading", name=f"Job {first + 1}")).to_be_focused()
    page.locator(".sweep-run").get_by_role("link", name="net").click()
    expect(page.locator(".runs tbody tr")).to_have_count(6)


def test_a_sweep_is_listed_and_can_be_opened_again(site: Site, sweep: str) -> None:
    page = site.tab("/sweeps")
    expect(page.locator(".sweep-summary")).to_contain_text("best acc 0.01 job")
    expect(page.get_by_role("img", name="Best acc so far over 4 runs")).to_be_visible()
    page.get_by_role("link", name="net").click()
    page.get_by_role("heading", name="net").wait_for()


def test_without_a_sweep_the_page_shows_the_command_for_one(own_site: Site) -> None:
    site = own_site
    page = site.tab("/sweeps")
    page.get_by_text("stoker sweep 'python train.py").wait_for()
    page.goto(f"{site.url}#/sweeps/nothing?cwd=%2F")
    page.get_by_text("no sweep 'nothing'").wait_for()


def test_axe_finds_nothing_and_the_sweep_fits_a_phone(site: Site, sweep: str) -> None:
    phone = {"width": 390, "height": 844}
    job = min(site.queue.states())
    page = open_sweep(site, sweep, viewport=phone)
    shown = {
        sweep: ".runs tbody tr:nth-child(6)",
        "/sweeps": "a:has-text('net')",
        "/submit": "[aria-current=page]:has-text('One job')",
        "/submit?form=batch": "[aria-current=page]:has-text('A batch')",
        "/submit?form=sweep": "[aria-current=page]:has-text('A sweep')",
        f"/jobs/{job}": f"h1:has-text('Job {job}')",
    }
    for path, fact in shown.items():
        page.goto(f"{site.url}#{path}")
        page.locator(f"main {fact}").wait_for()
        assert find_barriers(page) == [], path
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= phone["width"], path
