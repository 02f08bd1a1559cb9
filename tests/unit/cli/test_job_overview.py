from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from stoker.cli.job_overview import fetch_overview
from stoker.cli.job_table import gpus_of, row_of, took, when
from stoker.client.light_client import read_job
from stoker.core.lifecycle import State
from stoker.wire import Job, Page, Selection, Status

if TYPE_CHECKING:
    from stoker.client.client import Client

NOW = 10_000.0


def a_job(number: int = 1, state: State = State.DONE, **facts: object) -> Job:
    values = {
        "id": number,
        "name": None,
        "project": None,
        "state": state,
        "command": "true",
        "gpus": 1,
        "priority": 0,
        "attempt": 1,
        "slots": None,
        "reason": None,
        "exit_code": None,
        "signal": None,
        "submitted_at": NOW - 300,
        "started_at": None if state is State.WAITING else NOW - 200,
        "ended_at": None if state in (State.WAITING, State.RUNNING) else NOW - 150,
        **facts,
    }
    return Job(**values)  # type: ignore[arg-type]


class FakeClient:
    """A queue with a number of jobs in each state."""

    def __init__(self, **counts: int) -> None:
        self._counts = {State(name): count for name, count in counts.items()}

    def ls(self, selection: Selection, limit: int) -> Page:
        jobs = [
            a_job(number, state)
            for state in selection.states
            for number in range(self._counts.get(state, 0))
        ]
        return Page(jobs=jobs[:limit], next="more" if len(jobs) > limit else None)

    def status(self) -> Status:
        return Status(
            version="",
            pid=1,
            supervisor_pids=[],
            home="",
            since=0,
            counts=self._counts,
            slots=[],
            cpu_places=1,
            notices=[],
        )


def listed(
    lines: int, selection: Selection | None = None, **counts: int
) -> tuple[dict[State, int], list[str]]:
    client = cast("Client", FakeClient(**counts))
    listing = fetch_overview(client, selection or Selection(), lines)
    shown = {job.state: 0 for job in listing.jobs}
    for job in listing.jobs:
        shown[job.state] += 1
    return shown, listing.left_out


def test_a_short_list_is_shown_completely() -> None:
    assert listed(10, running=2, waiting=4, done=4) == (
        {State.RUNNING: 2, State.WAITING: 4, State.DONE: 4},
        [],
    )


def test_all_running_jobs_are_shown_and_others_share_the_other_lines() -> None:
    shown, left_out = listed(20, running=8, waiting=100, done=100)

    assert shown == {State.RUNNING: 8, State.WAITING: 8, State.DONE: 4}
    assert left_out == ["96 more done", "92 more waiting"]


def test_ended_jobs_fill_the_lines_that_waiting_jobs_leave() -> None:
    shown, left_out = listed(20, waiting=2, done=1204)

    assert shown == {State.WAITING: 2, State.DONE: 18}
    assert left_out == ["1,186 more done"]


def test_some_other_jobs_are_shown_however_many_run() -> None:
    shown, _left_out = listed(10, running=64, waiting=100)

    assert shown == {State.RUNNING: 64, State.WAITING: 6}


def test_a_selected_state_gets_all_lines() -> None:
    shown, left_out = listed(20, Selection(states=[State.FAILED]), failed=30, waiting=9, done=9)

    assert shown == {State.FAILED: 20}
    assert left_out == ["10 more failed"]


def test_jobs_left_out_of_a_project_are_not_counted() -> None:
    _shown, left_out = listed(20, Selection(project="p"), waiting=100)

    assert left_out == ["more of this project"]


@pytest.mark.parametrize(
    ("job", "cell"),
    [
        (a_job(slots="0,1"), "0,1"),
        (a_job(gpus=0), ("cpu", "dim")),
        (a_job(state=State.WAITING, gpus=2), ("×2", "dim")),
        (a_job(state=State.WAITING), ("–", "dim")),
    ],
)
def test_the_gpu_column_shows_slots_or_the_number_of_gpus(job: Job, cell: object) -> None:
    assert gpus_of(job) == cell


def test_the_time_columns_fit_each_state() -> None:
    assert (took(a_job(), NOW), when(a_job(), NOW)) == ("50s", "2m ago")
    running = a_job(state=State.RUNNING)
    assert (took(running, NOW), when(running, NOW)) == ("3m 20s", "")
    waiting = a_job(state=State.WAITING)
    assert (took(waiting, NOW), when(waiting, NOW)) == ("", "5m ago")


def test_a_command_is_one_line_and_a_name_has_its_project() -> None:
    job = a_job(command="a\n  b", project="p", name="n", priority=3, reason="exit 1")

    row = row_of(job, NOW)

    assert row[6:] == ("3", "p/n", "exit 1", "a b")
    assert row_of(a_job(project="p"), NOW)[7] == "p/"


def test_a_job_on_a_shared_gpu_shows_its_used_and_reserved_memory() -> None:
    job = a_job(reserved_bytes=6 << 30, gpu_bytes=5 << 30)

    assert row_of(job, NOW)[3] == "5.0/6.0 GiB"
    assert row_of(a_job(), NOW)[3] == ""


def test_a_job_of_an_older_daemon_has_a_row() -> None:
    required = [field.name for field in msgspec.structs.fields(Job) if field.required]
    told = json.loads(msgspec.json.encode(a_job(state=State.RUNNING)))
    light: Any = read_job({name: told[name] for name in required})
    assert row_of(light, NOW) == row_of(a_job(state=State.RUNNING), NOW)
