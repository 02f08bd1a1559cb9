"""Makes the pictures of the web page in this folder, light and dark, from `stoker demo --web`.

    python docs/screenshots/make.py [NAME …]

Needs Chromium and Playwright, as the tests of the page do.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ("--no-sandbox", "--disable-quic", "--disable-background-networking", "--no-first-run")
SIZES = {"": (1120, 860), "-phone": (390, 780)}
PATIENCE_MS = 240_000


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """The link to the page of a demo, which ends with this."""
    stoker = os.path.join(os.path.dirname(sys.executable), "stoker")
    command = [stoker, "demo", "--web", "--gpus", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = next(filter(None, map(find_link, process.stdout)))
            yield link
        finally:
            process.send_signal(signal.SIGINT)


def find_link(line: str) -> str | None:
    """The link in a line of output."""
    found = re.search(r"http://\S+#token=\S+", line)
    return found[0] if found else None


def see_gpus(page: Page) -> None:
    """Wait until there is a past to be seen."""
    go(page, "/gpus")
    page.wait_for_timeout(10_000)


def see_timeline(page: Page) -> None:
    """What was, is and is expected."""
    go(page, "/timeline?span=240")
    page.locator(".next-starts li").nth(3).wait_for()


def see_jobs(page: Page) -> None:
    """All jobs."""
    go(page, "/jobs")
    page.locator("tbody tr").nth(8).wait_for()


def see_job(page: Page) -> None:
    """One that runs, with its log."""
    go(page, "/jobs?states=running")
    page.locator("tbody a[href^='#/jobs/']").first.click()
    page.locator(".log-row").nth(12).wait_for()


def see_submit(page: Page) -> None:
    """A sweep that is being written."""
    go(page, "/submit?form=sweep")
    page.fill("#sweep-text", "python train.py --lr {lr} --bs {bs} --opt {opt}")
    page.fill("#sweep-words", "lr=logspace(-4,-1,4)\nbs=32,64,128\nopt=adam,sgd")
    page.locator(".preview .figure").wait_for()


def see_sweeps(page: Page) -> None:
    """All sweeps."""
    go(page, "/sweeps")
    page.locator(".progress").first.wait_for()


def see_sweep(page: Page) -> None:
    """The one of the demo, when it is over."""
    see_sweeps(page)
    page.get_by_role("link", name="demo").click()
    page.locator(".runs tr.best").wait_for()
    page.wait_for_timeout(1500)


PAGES: dict[str, Callable[[Page], None]] = {
    "gpus": see_gpus,
    "timeline": see_timeline,
    "jobs": see_jobs,
    "job": see_job,
    "submit": see_submit,
    "sweeps": see_sweeps,
    "sweep": see_sweep,
}


def go(page: Page, path: str) -> None:
    """Go to a page."""
    page.goto(f"{page.url.partition('#')[0]}#{path}")
    page.locator("main h1").wait_for()


def shoot(browser: Browser, link: str, names: list[str]) -> None:
    """Take the pictures; those of a phone only light."""
    for scheme in ("light", "dark"):
        for suffix, (width, height) in SIZES.items():
            if suffix and scheme == "dark":
                continue
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
            )
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.goto(link)
            page.locator(".link.open").wait_for()
            see_sweeps(page)
            page.locator(".word.waiting").wait_for(state="detached")
            for name in names:
                PAGES[name](page)
                page.wait_for_timeout(300)
                target = os.path.join(HERE, f"{name}{suffix}-{scheme}.png")
                page.screenshot(path=target, animations="disabled")
                print(os.path.relpath(target), os.path.getsize(target) // 1024, "kB", flush=True)
            context.close()


def main() -> None:
    """Make all pictures, or those named."""
    from playwright.sync_api import sync_playwright

    names = sys.argv[1:] or list(PAGES)
    with demo() as link, sync_playwright() as playwright:
        chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        shoot(browser, link, names)
        browser.close()


if __name__ == "__main__":
    main()
