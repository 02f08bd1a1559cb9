"""Selection, order and drawing of `stoker top`, without a terminal and without a daemon."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stoker.cli.top.feed import Snapshot
from stoker.cli.top.gpu_lines import blocks_of, draw_bar, draw_spark
from stoker.cli.top.screen import draw
from stoker.cli.top.view import Mode, Sort, View
from stoker.core.lifecycle import State
from stoker.core.usage import Foreigner
from stoker.wire import GpuInfo, GpuTenant, History, Job, Status, SweepInfo

NOW = 1_800_000_000.0
GIB = 2**30


def job(number: int, state: State = State.WAITING, **more: Any) -> Job:
    fields: dict[str, Any] = dict.fromkeys(
        ("name", "project", "slots", "reason", "exit_code", "signal", "started_at", "ended_at")
    )
    known: dict[str, Any] = {
        "command": "true",
        "gpus": 1,
        "priority": 0,
        "attempt": 0,
        "submitted_at": NOW,
    }
    return Job(**{**fields, **known, "id": number, "state": state, **more})


def gpu(label: str, *tenants: tuple[int, float, float], **more: Any) -> GpuInfo:
    fields: dict[str, Any] = dict.fromkeys(
        ("name", "closed", "drained", "temperature_c", "power_w")
    )
    known: dict[str, Any] = {
        "mem_total_bytes": 80 * GIB,
        "mem_used_bytes": round(sum(used for _job, used, _aside in tenants) * GIB),
        "mem_reserved_bytes": 0,
        "utilisation_pct": 50,
        "lost": False,
        "slot": label,
        "jobs": [job for job, _used, _aside in tenants],
        "users": [],
        "history": History(),
        "tenants": [
            GpuTenant(
                job=job,
                name=None,
                project=None,
                mem_used_bytes=round(used * GIB),
                mem_reserved_bytes=round(aside * GIB),
                utilisation_pct=None,
            )
            for job, used, aside in tenants
        ],
    }
    return GpuInfo(**{**fields, **known, "label": label, **more})


def snapshot(*jobs: Job, **more: Any) -> Snapshot:
    status = Status(
        version="1",
        pid=1,
        supervisor_pids=[],
        home="/h",
        since=0.0,
        counts={State.WAITING: len(jobs)},
        slots=[],
        cpu_places=1,
        notices=[],
    )
    known: dict[str, Any] = {"left_out": [], "gpus": [], "sweeps": [], "utilisation": {}}
    return Snapshot(**{"status": status, **known, "jobs": list(jobs), **more})


def shown(view: View, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in draw(view, width, height, NOW).lines]


def test_the_blocks_of_a_gpu_fill_its_bar_and_belong_to_their_jobs() -> None:
    others = [Foreigner(pid=9, user="ann", mem_bytes=20 * GIB)]
    shared = gpu("0", (3, 20, 30), (12, 10, 10), mem_used_bytes=50 * GIB, users=others)
    found = [(block.kind, block.cells, block.job) for block in blocks_of(shared, 80)]
    expected = [("used", 20, 3), ("aside", 10, 3), ("used", 10, 12), ("others", 20, None)]
    assert found == [*expected, ("free", 20, None)]
    bar, hits = draw_bar(shared, 80)
    assert bar.cell_len == 80
    assert {hit.job for hit in hits if hit.begin <= 35 < hit.end} == {12}
    assert bar.plain[:20].strip() == "3"


@pytest.mark.parametrize("width", [10, 33, 200])
def test_a_bar_has_its_width_even_if_jobs_claim_more_memory_than_there_is(width: int) -> None:
    full = gpu("0", (1, 79, 90), (2, 60, 61))
    assert sum(block.cells for block in blocks_of(full, width)) == width
    assert draw_bar(full, width)[0].cell_len == width


def test_a_gpu_says_for_which_job_it_is_kept_and_why_it_is_closed() -> None:
    kept = draw_bar(gpu("0", kept_for=7, kept_needs=8), 60)[0].plain
    assert "kept for job 7, which needs 8" in kept
    assert "drained" in draw_bar(gpu("0", drained=""), 60)[0].plain


def test_the_spark_has_its_width_and_rises_with_use() -> None:
    assert draw_spark([0, 50, 100], 3) == " ▄█"
    assert len(draw_spark([float(n % 100) for n in range(300)], 20)) == 20
    assert draw_spark([None, None], 4) == "    "


def test_the_selected_job_stays_selected_when_the_list_changes() -> None:
    view = View()
    view.take(snapshot(*map(job, range(1, 40))))
    view.fit(10)
    view.move(25)
    assert view.selected == 26
    assert view.first <= 25 < view.first + 10
    view.take(snapshot(*map(job, range(20, 60))))
    assert view.selected == 26
    assert view.first <= 6 < view.first + 10
    view.take(snapshot(job(99)))
    assert view.selected == 99


def test_jobs_are_sorted_by_duration_and_problems() -> None:
    jobs = [
        job(1, State.RUNNING, started_at=NOW - 10, slots="1"),
        job(2),
        job(3, State.RUNNING, started_at=NOW - 500, slots="0"),
        job(4, State.FAILED, started_at=NOW - 90, ended_at=NOW, reason="exit 1"),
    ]
    view = View()
    view.take(snapshot(*jobs))
    order = {}
    for _ in Sort:
        order[view.sort] = [each.id for each in view.jobs()]
        view.next_sort()
    assert order[Sort.QUEUE] == [1, 2, 3, 4]
    assert order[Sort.LONGEST] == [3, 1, 4, 2]
    assert order[Sort.GPU] == [3, 1, 2, 4]
    assert order[Sort.PROBLEMS][0] == 4


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 30), (160, 50), (250, 60), (40, 10)])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_screen_fits_every_terminal(width: int, height: int, mode: Mode) -> None:
    view = View(mode=mode)
    hostile = "\x1b]0;owned\x07" + "x" * 300
    many = [
        job(n, State.RUNNING, slots="0", started_at=NOW, command=hostile) for n in range(1, 130)
    ]
    sweep = SweepInfo(
        name=hostile, cwd="/w", counts={State.RUNNING: 3, State.DONE: 4}, first=1, last=7
    )
    taken = snapshot(
        *many, gpus=[gpu(f"box/{n}", (n + 1, 9, 9)) for n in range(16)], sweeps=[sweep]
    )
    view.take(msgspec.structs.replace(taken, about=1, why=hostile, log=("one", "two")))
    lines = draw(view, width, height, NOW).lines
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width
    assert not any("\x1b" in line.plain for line in lines)


def test_a_click_on_a_block_or_a_row_finds_the_job() -> None:
    view = View()
    view.take(snapshot(job(5), job(6), gpus=[gpu("0", (6, 40, 40))]))
    screen = draw(view, 80, 24, NOW)
    on_gpu = screen.hits[1]
    assert [hit.job for hit in on_gpu] == [6]
    rows = {hit.job: y for y, hits in screen.hits.items() for hit in hits if y != 1}
    assert screen.lines[rows[5]].plain.lstrip().startswith("5 ")


def test_the_log_page_scrolls_back_and_stays_within_the_log() -> None:
    view = View(mode=Mode.LOG)
    log = tuple(f"line {n}" for n in range(100))
    view.take(snapshot(job(1, State.RUNNING), about=1, log=log))
    assert "line 99" in shown(view)
    view.move(-50)
    assert "line 99" not in shown(view)
    assert "line 40" in shown(view)
    view.move(-500)
    assert "line 0" in shown(view)


def test_before_the_first_answer_the_screen_says_what_it_waits_for() -> None:
    view = View()
    assert "connecting" in shown(view)[0]
    view.problem = "no daemon runs"
    assert shown(view)[0] == "no daemon runs"
