"""The page of a sweep while its runs go on: what the user holds, has chosen and has typed stays."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Site

# Each run reports without end, so that every refresh of the page has new values.
_SWEEP = """\
name: live
command: sh run.sh {lr}
parameters: {lr: [1.0e-3, 1.0e-2]}
resources: {gpus: 0}
metric: {name: loss, goal: minimize}
"""
_RUN = """\
step=0
while step=$((step + 1)); do
  echo "{\\"step\\":$step,\\"time\\":$step,\\"loss\\":$1,\\"speed\\":$step}" >> $STOKER_RUN_DIR/metrics.jsonl
  sleep 0.3
done
"""


@pytest.fixture
def path(site: Site) -> str:
    """Return the path of the page of a sweep that runs until it is killed."""
    site.queue.stoker.file("run.sh", _RUN)
    site.queue.stoker.file("live.yaml", _SWEEP)
    site.queue.ok("sweep", "-f", "live.yaml")
    return f"/sweeps/live?cwd={quote(str(site.queue.work), safe='')}"


def open_live(site: Site, path: str) -> Page:
    page = site.tab(path)
    expect(page.locator(".best .figure")).to_have_text("loss 0.001")
    expect(page.locator(".runs td:nth-child(5)").first).not_to_be_empty()
    return page


def see_refreshes(page: Page, count: int) -> None:
    """Wait until the page has got and shown this many newer results."""
    for _ in range(count):
        before = page.locator(".runs tbody tr").first.inner_text()
        expect(page.locator(".runs tbody tr").first).not_to_have_text(before, use_inner_text=True)


def test_order_focus_and_an_open_select_outlive_three_refreshes(site: Site, path: str) -> None:
    page = open_live(site, path)
    speed = page.locator(".runs th button", has_text="lr")
    speed.click()
    speed.click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("lr")
    # A select that is open is closed by a change of its options, or by their end.
    page.evaluate(
        """() => {
          const changes = new MutationObserver((seen) => (document.body.dataset.changed = seen.length));
          for (const each of document.querySelectorAll('select')) {
            changes.observe(each, {childList: true, subtree: true, attributes: true, characterData: true});
          }
          window.selects = [...document.querySelectorAll('select')];
        }"""
    )
    see_refreshes(page, 3)
    expect(page.locator("th[aria-sort=descending]")).to_have_text("lr")
    assert page.evaluate("document.activeElement.textContent") == "lr"
    assert page.evaluate("window.selects.every((each) => each.isConnected)")
    assert page.evaluate("document.body.dataset.changed ?? null") is None


def test_a_held_drag_outlives_three_refreshes(site: Site, path: str) -> None:
    page = open_live(site, path)
    board = page.locator(".parallel canvas.brushed")
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    assert box is not None
    page.evaluate("window.board = document.querySelector('.parallel canvas.brushed')")
    x = box["x"] + box["width"] / 6  # the first of three axes
    page.mouse.move(x, box["y"] + 13)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.3, steps=3)
    expect(page.get_by_text("1 of 2 runs")).to_be_visible()
    see_refreshes(page, 3)
    page.mouse.move(x, box["y"] + box["height"] * 0.99, steps=3)
    expect(page.get_by_text("2 runs, coloured")).to_be_visible()
    assert page.evaluate("window.board.isConnected")
    page.mouse.up()


def test_the_goal_of_the_sweep_is_shown_and_another_is_kept(site: Site, path: str) -> None:
    page = open_live(site, path)
    goal = page.get_by_label("Goal")
    expect(goal).to_have_value("minimize")
    goal.select_option("maximize")
    expect(page.locator(".best .figure")).to_have_text("loss 0.01")
    see_refreshes(page, 2)
    expect(goal).to_have_value("maximize")
    goal.select_option("minimize")
    see_refreshes(page, 2)
    expect(goal).to_have_value("minimize")
    expect(page.locator(".best .figure")).to_have_text("loss 0.001")


def test_metric_goal_and_brush_are_in_the_address(site: Site, path: str) -> None:
    page = open_live(site, path)
    page.get_by_label("Compare by").select_option("speed")
    page.get_by_label("Goal").select_option("minimize")
    axis = page.locator(".axis", has_text="lr")
    axis.press("ArrowUp")
    expect(page.get_by_text("1 of 2 runs")).to_be_visible()
    page.wait_for_url("**metric=speed**brush=lr**")
    page.reload()
    expect(page.get_by_text("1 of 2 runs")).to_be_visible()
    expect(page.get_by_label("Compare by")).to_have_value("speed")
    expect(page.get_by_label("Goal")).to_have_value("minimize")
    assert "cwd=" in page.url


def test_a_sweep_is_found_by_its_name_alone_and_a_wrong_name_is_told(site: Site, path: str) -> None:
    page = site.tab("/sweeps/live")
    expect(page.locator(".best .figure")).to_have_text("loss 0.001")
    page.wait_for_url("**cwd=**")
    page.goto(f"{site.url}#/sweeps/nope")
    expect(page.get_by_role("alert")).to_contain_text("There is no sweep nope. There are: live")
