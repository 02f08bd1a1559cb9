"""The web page: time to load, time to show a change, and the cost of fifty tabs."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import tabs
from benchmarks.arena import say
from benchmarks.browser import Site, open_site
from benchmarks.cases.followers import time_jobs
from benchmarks.logs import COMMAND as LOG_COMMAND
from benchmarks.logs import LINES as LOG_LINES
from benchmarks.logs import time_log, time_opening
from benchmarks.measure import Contestant, Sample, interleave, spread
from benchmarks.proc import rss_bytes
from benchmarks.process import in_company
from benchmarks.queues.stoker import open_queue
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Figure, Result, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import Page

    from benchmarks.arena import Arena
    from benchmarks.queues.stoker import Queue

LINE = "true"
JOBS = 5000
QUICK_JOBS = 1000
MANY = 1_000_000
QUICK_MANY = 100_000
LOADS = 10
CHANGES = 40
LOOKS = 10
TABS = 50
WINDOWS = 12
WINDOW_CHANGES = 10
FAILURES = 10
_ALONE = "nobody looks"
_WATCHED = f"{TABS} tabs"
_APART_S = 0.1  # as a person's orders are
_ROW = "tr[data-job]"


@dataclass(frozen=True)
class Looks:
    """What a browser saw."""

    usable_ms: Sequence[float]
    loaded_kb: Sequence[float]
    told_ms: Sequence[float]
    all_told_ms: Sequence[float]
    page_ms: Sequence[float]
    filter_ms: Sequence[float]
    log_ms: Sequence[float]
    job_ms: Sequence[float]


def run(arena: Arena) -> Result:
    """Look at a short queue and at a very long one; then run jobs with tabs open, and without."""
    many = QUICK_MANY if arena.quick else MANY
    with open_queue(arena) as queue:
        looks = _look(arena, queue, many)
    with open_queue(arena) as queue:
        samples, grown_bytes = _race(arena, queue)
    return Result(
        name="web",
        what=f"Chromium on the page; {CHANGES} changes of a job, from the order on the unix socket to"
        f" the document; a table of {many} jobs; {arena.rounds} rounds of jobs `{LINE}` on 4 slots in"
        f" turns with {TABS} tabs that watch the jobs and the GPUs, and without.",
        details=standings(samples, _ALONE),
        figures=[
            _at_most("usable, cold", looks.usable_ms, 500, "ms"),
            _at_most("loaded, cold", looks.loaded_kb, 130, "kB"),
            _at_most("from a change to the document", looks.told_ms, 20, "ms"),
            _at_most(f"to the last of {WINDOWS} tabs of a browser", looks.all_told_ms, 100, "ms"),
            _at_most(f"first page of {many} jobs", looks.page_ms, 150, "ms"),
            _at_most(f"failed ones of {many} jobs", looks.filter_ms, 150, "ms"),
            _at_most(f"{LOG_LINES} lines of a log with colours", looks.log_ms, 150, "ms"),
            _at_most("the same from the click on its job", looks.job_ms, 500, "ms"),
            _at_most(f"daemon's memory, {TABS} tabs more", [grown_bytes / 1e6], 60, "MB"),
            pace_figure(samples, _WATCHED, _ALONE, Target(Bound.AT_LEAST, 0.95)),
        ],
        notes=["Usable: the first data is in the document, counted from the navigation's start."],
    )


def _at_most(name: str, values: Sequence[float], limit: float, unit: str) -> Figure:
    target = Target(Bound.AT_MOST, limit)
    return Figure(name=name, spread=spread(values), target=target, unit=unit, digits=1)


def _look(arena: Arena, queue: Queue, many: int) -> Looks:
    queue.close_admission()
    with open_site(queue) as site:
        cold = [site.load("[data-gpu]") for _ in range(LOADS)]
        page = cold[-1][0]
        for each, _spent_ms, _bytes in cold[:-1]:
            each.context.close()
        told_ms, all_told_ms = _time_changes(queue, site, page)
        log_ms = [time_log(page) for _ in range(LOOKS)]
        job_ms = _time_job(queue, page)
        queue.open_admission()
        failures = arena.lines("fail", "false", FAILURES)
        queue.add(failures)
        queue.until(lambda: queue.count("failed") >= FAILURES, "some jobs have failed")
        queue.close_admission()
        say(f"  {many} jobs are added")
        queue.add(arena.lines("web", LINE, many))
        times: dict[str, list[float]] = {"/jobs": [], "/jobs?states=failed": []}
        for _ in range(LOOKS):
            for path, spent_ms in times.items():
                page.evaluate("location.hash = '/submit'")
                page.wait_for_selector(_ROW, state="detached")
                spent_ms.append(site.time(page, path, _ROW))
    return Looks(
        usable_ms=[spent_ms for _page, spent_ms, _bytes in cold],
        loaded_kb=[loaded / 1e3 for _page, _spent_ms, loaded in cold],
        told_ms=told_ms,
        all_told_ms=all_told_ms,
        page_ms=times["/jobs"],
        filter_ms=times["/jobs?states=failed"],
        log_ms=log_ms,
        job_ms=job_ms,
    )


def _time_changes(queue: Queue, site: Site, page: Page) -> tuple[list[float], list[float]]:
    """Milliseconds from an order to the moment when one tab shows what came of it, and when all do."""
    job = int(queue.stoker("add", "-q", LINE))
    row = f"tr[data-job='{job}']"
    site.time(page, "/jobs", row)
    alone_ms = [_time_change(queue, site, [page], job) for _ in range(CHANGES)]
    pages = [page.context.new_page() for _ in range(WINDOWS)]
    for each in pages:
        each.goto(f"http://{site.address}/#/jobs")
        each.wait_for_selector(row)
    all_ms = [_time_change(queue, site, pages, job) for _ in range(WINDOW_CHANGES)]
    for each in pages:
        each.close()
    return alone_ms, all_ms


def _time_change(queue: Queue, site: Site, pages: Sequence[Page], job: int) -> float:
    """Hold or release a job; milliseconds until the last page shows it."""
    time.sleep(_APART_S)
    is_held = queue.count("held") > 0
    for page in pages:
        site.note_next_change(page, job)
    began_s = time.time()
    queue.line.post("/v1/release" if is_held else "/v1/hold", {"ids": str(job)})
    return (max(site.seen_at_s(page) for page in pages) - began_s) * 1e3


def _time_job(queue: Queue, page: Page) -> list[float]:
    """Milliseconds from the click on a job that has written much to the end of its log."""
    job = int(queue.stoker("add", "-q", "-g", "0", LOG_COMMAND))
    queue.stoker("wait", str(job))
    times_ms = []
    for _ in range(LOOKS):
        page.evaluate("location.hash = '/submit'")
        page.wait_for_selector(".log-view", state="detached")
        times_ms.append(time_opening(page, job))
    return times_ms


def _race(arena: Arena, queue: Queue) -> tuple[dict[str, list[Sample]], int]:
    jobs = QUICK_JOBS if arena.quick else JOBS
    lines = arena.lines("web", LINE, jobs)
    contestants = [
        Contestant(name=name, argv=[LINE], stdin=lines, jobs=jobs, env=queue.env)
        for name in (_ALONE, _WATCHED)
    ]
    grown = 0

    def run_jobs(contestant: Contestant) -> Sample:
        nonlocal grown
        if contestant.name == _ALONE:
            return time_jobs(queue, contestant)
        before = rss_bytes(queue.pids[0])
        with open_tabs(queue):
            sample = time_jobs(queue, contestant)
            grown = max(grown, rss_bytes(queue.pids[0]) - before)
            return sample

    for contestant in contestants:
        run_jobs(contestant)
    return interleave(contestants, arena.rounds, run_jobs, arena.progress), grown


@contextlib.contextmanager
def open_tabs(queue: Queue) -> Iterator[None]:
    """Have tabs open for as long as the block runs."""
    link = queue.stoker("web").split()[0]
    address, _, token = link.removeprefix("http://").partition("/#token=")
    with in_company(tabs.__file__, [address, token, str(TABS)], "tabs"):
        yield
