"""What jobs are called and write is text, whatever it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from web.conftest import Site

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
NAME = "<script>alert(3)<b>"
PROJECT = "<i>p"


def test_markup_in_names_commands_projects_and_logs_is_shown_as_text(site: Site) -> None:
    job = site.queue.add("-N", NAME, "--project", PROJECT, f"printf '%s' '{SCRIPT}'")
    site.queue("wait")
    page = site.tab("/jobs")
    page.on("dialog", lambda dialog: site.complaints.append(dialog.message))
    expect(page.locator(f"tr[data-job='{job}']")).to_contain_text(SCRIPT)
    expect(page.locator(f"tr[data-job='{job}']")).to_contain_text(PROJECT)
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()
    expect(page.get_by_role("region", name="Log")).to_contain_text(SCRIPT)
    assert page.locator("main img, main script, main b, main i").count() == 0


def test_escape_sequences_bad_text_and_endless_lines_are_harmless(site: Site) -> None:
    site.queue.stoker.file(
        "write.py",
        "import sys\n"
        "out = sys.stdout.buffer\n"
        "out.write(b'\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m \\xff\\xfe\\n')\n"
        "out.write(b'y' * 10_000_000 + b'\\n')\n"
        "out.write(b'the end\\n')\n",
    )
    job = site.queue.add("-g", "0", "python write.py")
    site.queue("wait")
    page = site.tab(f"/jobs/{job}")
    log = page.get_by_role("region", name="Log")
    expect(log).to_contain_text("the end")
    assert "title" not in (log.text_content() or "")
    assert page.title() == f"Job {job} · Stoker"
