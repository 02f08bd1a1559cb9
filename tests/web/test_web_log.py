"""The log of a job, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from page_client import PageClient

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Site


def lines(page: Page) -> list[str]:
    found = page.eval_on_selector_all(
        ".log-row",
        "rows => rows.sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))"
        ".map(row => row.textContent)",
    )
    assert isinstance(found, list)
    return found


def wait_for_line(page: Page, text: str) -> None:
    page.locator(".log-row", has_text=text).first.wait_for(timeout=30_000)


def test_a_log_shows_colours_and_the_last_state_of_a_progress_bar(site: Site) -> None:
    job = site.queue.add("-g", "0", r"printf '10%%\r50%%\r100%%\n\033[1;31mred\033[0m plain\n'")
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "red")
    assert lines(page) == ["100%", "red plain"]
    red = page.locator(".log-row span.f-1.t-bold")
    assert red.inner_text() == "red"


def test_the_output_of_a_job_is_shown_while_it_runs(site: Site) -> None:
    admission = site.queue.work / "gate"
    job = site.queue.add(
        "-g", "0", f"echo first; while ! test -e {admission}; do sleep 0.05; done; echo second"
    )
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "first")
    assert "second" not in lines(page)
    admission.touch()
    wait_for_line(page, "second")


def test_hostile_output_is_shown_as_text(site: Site) -> None:
    hostile = site.queue.work / "hostile"
    hostile.write_bytes(
        b"<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">\n"
        b"\xff\xfe not UTF-8 \xc3\n"
        b"\x1b]0;owned\x07\x1b]8;;javascript:alert(1)\x1b\\click\x1b]8;;\x1b\\ \x1b[2J\x1b[5n\n"
        b"\xe2\x80\xaegnirts desrever\n" + b"y" * 10_000_000 + b"\nthe end\n"
    )
    job = site.queue.add("-g", "0", "cat", str(hostile))
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "the end")
    shown = lines(page)
    assert shown[0].startswith("<script>document.title = 'owned'</script><img")
    assert shown[1] == "\ufffd\ufffd not UTF-8 \ufffd"
    assert shown[2] == "click "
    assert len(shown[4]) == 10_000
    assert page.locator(".log-view script, .log-view img, .log-view a").count() == 0
    assert "owned" not in page.title()
    assert "9,990,000 characters left out" in page.inner_text(".log-summary")


def test_search_goes_forward_and_back(site: Site) -> None:
    job = site.queue.add("-g", "0", "seq 1 5000 | sed 's/^/number /'")
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "number 5000")
    assert page.locator(".log-row").count() < 200
    page.keyboard.press("/")
    page.keyboard.type("number 25")
    page.get_by_text("1 of 111").wait_for()
    wait_for_line(page, "number 25")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 111").wait_for()
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    page.get_by_text("111 of 111").wait_for()
    assert page.locator(".log-row.current mark").inner_text() == "number 25"
    assert page.locator(".log-row.current").inner_text() == "number 2599"
    page.fill(".log-tools input", "absent")
    page.get_by_text("not found").wait_for()


def test_scrolling_up_stops_following_and_the_end_resumes_it(site: Site) -> None:
    job = site.queue.add("-g", "0", "seq 1 3000")
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "3000")
    follow = page.get_by_role("button", name="Follow")
    assert follow.get_attribute("aria-pressed") == "true"
    page.locator(".log-view").hover()
    page.mouse.wheel(0, -2000)
    page.locator("button[aria-pressed='false']", has_text="Follow").wait_for()
    follow.click()
    wait_for_line(page, "3000")
    page.locator("button[aria-pressed='true']", has_text="Follow").wait_for()


def test_the_user_can_scroll_up_while_a_job_writes(site: Site) -> None:
    admission = site.queue.work / "gate"
    job = site.queue.add(
        "-g",
        "0",
        f"seq 1 3000; while ! test -e {admission}; do date +%N; sleep 0.01; done; echo end",
    )
    page = site.tab(f"/jobs/{job}")
    page.locator(".log-row").nth(20).wait_for()
    page.locator(".log-view").hover()
    page.mouse.wheel(0, -2000)
    page.locator("button[aria-pressed='false']", has_text="Follow").wait_for()
    before = page.inner_text(".log-summary")
    admission.touch()
    page.wait_for_function(
        "before => document.querySelector('.log-summary').innerText !== before", arg=before
    )
    assert page.locator("button[aria-pressed='false']", has_text="Follow").is_visible()
    assert "end" not in lines(page)
    page.keyboard.press("f")
    wait_for_line(page, "end")


def test_the_whole_log_is_downloaded_byte_for_byte(site: Site) -> None:
    job = site.queue.add("-g", "0", r"printf 'a\r\033[31mb\377\n'")
    page = site.tab(f"/jobs/{job}")
    wait_for_line(page, "b")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    path = download.value.path()
    assert Path(path).read_bytes() == b"a\r\x1b[31mb\xff\n"
    assert download.value.suggested_filename == f"job-{job}.1.log"


@pytest.mark.parametrize("job", ["../../etc/passwd", "daemon/../token", "%2e%2e"])
def test_only_logs_of_jobs_can_be_read(site: Site, job: str) -> None:
    with PageClient(int(site.url.rstrip("/").rpartition(":")[2])) as tab:
        tab.sign_in(site.token)
        assert tab.ask(f"/v1/log?job={quote(job, safe='')}") in (400, 404)
