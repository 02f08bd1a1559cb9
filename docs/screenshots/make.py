"""Makes the pictures of the web page in this folder, light and dark, from a queue at work.

    python docs/screenshots/make.py [NAME …]

Needs Chromium and Playwright, as the tests of the page do; shows fake GPUs and real processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = os.path.dirname(os.path.abspath(__file__))
SWEEP = """\
name: pacgan
command: python train.py --lr {lr} --bs {bs} --opt {opt} --dropout {dropout} --seconds 4
method: random
samples: 36
parameters:
  lr: loguniform(1e-4, 3e-1)
  bs: [32, 64, 128, 256]
  opt: [adam, sgd]
  dropout: uniform(0, 0.5)
metric: {name: val_acc, goal: maximize}
"""
FLAGS = ("--no-sandbox", "--disable-quic", "--disable-background-networking", "--no-first-run")
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


class Lab:
    """A queue on four fake GPUs, with a sweep that has ended and jobs that run and wait."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "pacgan")
        os.mkdir(self.folder)
        shutil.copy(os.path.join(HERE, "train.py"), self.folder)
        gpus = FakeGpus(os.path.join(folder, "gpus"))
        gpus.create(4, mem_bytes=24 * GIB, name="Imaginary RTX 24 GB")
        scripts = os.path.dirname(sys.executable)
        self._env = {
            **os.environ,
            **gpus.env(),
            "STOKER_HOME": os.path.join(folder, "home"),
            "STOKER_LEASE_DIR": os.path.join(folder, "leases"),
            "PATH": f"{scripts}:{os.environ['PATH']}",
        }

    def stoker(self, *words: str, stdin: str = "") -> str:
        """What `stoker WORDS` prints."""
        return subprocess.run(
            ["stoker", *words],
            env=self._env,
            cwd=self.folder,
            input=stdin,
            text=True,
            capture_output=True,
            check=True,
        ).stdout

    def work(self) -> None:
        """Let a sweep end, and others run and wait."""
        self.stoker("daemon", "start", "--gpus", "0-3")
        self.stoker("config", "brake", "0")  # many of its runs fail on purpose
        self.stoker("sweep", "-f", "-", stdin=SWEEP)
        self.stoker("add", "-n", "tokenize", "-g", "0", "sleep", "600")
        self._until(lambda: self._count("-s", "waiting", "running", "starting") <= 1)
        for number, name in enumerate(("unet-base", "unet-wide", "vit-small", "vit-large", "clip")):
            train = f"python train.py --bs {32 << number % 3} --seconds 600 --steps 3000"
            self.stoker("add", "-n", name, "--project", "vision", "-p", str(number % 2), train)
        self.stoker("add", "-n", "ablation", "--hold", "python train.py --opt sgd")
        self.stoker("add", "-n", "evaluate", "--after", "clip", "python eval.py --split test")

    def _count(self, *words: str) -> int:
        states = words[1:]
        jobs = json.loads(self.stoker("ls", "-a", "--json"))
        return sum(job["state"] in states for job in jobs)

    def _until(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 180
        while not fact():
            if time.monotonic() > deadline:
                raise SystemExit("the demo takes too long")
            time.sleep(0.5)


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """A lab that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="stoker-pictures-") as folder:
        found = Lab(folder)
        try:
            found.work()
            yield found
        finally:
            found.stoker("daemon", "stop", "--kill")


def pages(place: Lab) -> dict[str, tuple[str, Callable[[Page], None]]]:
    """What is to be seen: a path for each name, and what is done there before the picture."""
    running = json.loads(place.stoker("show", "--json", "unet-wide"))["id"]
    sweep = f"/sweeps/pacgan?cwd={quote(place.folder, safe='')}"

    def write_sweep(page: Page) -> None:
        page.fill("#sweep-cwd", place.folder)
        page.fill("#sweep-text", "python train.py --lr {lr} --bs {bs} --opt {opt}")
        page.fill("#sweep-words", "lr=logspace(-4,-1,4)\nbs=32,64,128\nopt=adam,sgd")
        page.wait_for_selector(".preview .figure")

    def follow_log(page: Page) -> None:
        page.wait_for_selector(".log-row")
        page.wait_for_timeout(3000)

    return {
        "gpus": ("/gpus", lambda page: page.wait_for_timeout(8000)),
        "jobs": ("/jobs", lambda page: page.wait_for_timeout(1000)),
        "job": (f"/jobs/{running}", follow_log),
        "submit": ("/submit?form=sweep", write_sweep),
        "sweeps": ("/sweeps", lambda page: page.wait_for_selector(".progress")),
        "sweep": (sweep, lambda page: page.wait_for_selector(".runs tr.best")),
    }


def shoot(browser: Browser, place: Lab, names: list[str]) -> None:
    """Take the pictures."""
    found = re.search(r"http://\S+", place.stoker("web"))
    assert found is not None
    site = found[0].partition("#")[0]
    for scheme in ("light", "dark"):
        for size, form in (("", WIDE), ("-phone", PHONE)):
            context = browser.new_context(viewport=form, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(found[0])
            page.wait_for_selector(".link.open")
            for name, (path, prepare) in pages(place).items():
                if names and name not in names:
                    continue
                page.goto(f"{site}#{path}")
                prepare(page)
                page.wait_for_timeout(400)
                target = os.path.join(HERE, f"{name}{size}-{scheme}.png")
                page.screenshot(path=target, animations="disabled")
                print(os.path.relpath(target), os.path.getsize(target) // 1024, "kB", flush=True)
            context.close()


def main() -> None:
    """Make all pictures, or those named."""
    from playwright.sync_api import sync_playwright

    with lab() as place, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        shoot(browser, place, sys.argv[1:])
        browser.close()


if __name__ == "__main__":
    main()
