from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from stoker.cli.job_overview import take_listing
from stoker.cli.job_table import place_of, row_of, took, when
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
    """A queue that holds so many jobs of each state."""

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
    listing = take_listing(client, selection or Selection(), lines)
    shown = {job.state: 0 for job in listing.jobs}
    for job in listing.jobs:
        shown[job.state] += 1
    return shown, listing.left_out


def test_what_fits_is_shown_whole() -> None:
    assert listed(10, running=2, waiting=4, done=4) == (
        {State.RUNNING: 2, State.WAITING: 4, State.DONE: 4},
        [],
    )


def test_all_that_run_are_shown_and_the_rest_shares_what_is_left() -> None:
    shown, left_out = listed(20, running=8, waiting=100, done=100)

    assert shown == {State.RUNNING: 8, State.WAITING: 8, State.DONE: 4}
    assert left_out == ["96 more done", "92 more waiting"]


def test_what_has_ended_fills_the_lines_that_nothing_waits_for() -> None:
    shown, left_out = listed(20, waiting=2, done=1204)

    assert shown == {State.WAITING: 2, State.DONE: 18}
    assert left_out == ["1,186 more done"]


def test_a_few_are_shown_however_many_run() -> None:
    shown, _left_out = listed(10, running=64, waiting=100)

    assert shown == {State.RUNNING: 64, State.WAITING: 6}


def test_a_state_that_is_asked_for_has_all_the_lines() -> None:
    shown, left_out = listed(20, Selection(states=[State.FAILED]), failed=30, waiting=9, done=9)

    assert shown == {State.FAILED: 20}
    assert left_out == ["10 more failed"]


def test_of_a_project_nobody_knows_how_many_are_left_out() -> None:
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
def test_where_a_job_runs_or_what_it_asks_for(job: Job, cell: object) -> None:
    assert place_of(job) == cell


def test_clocks_tell_what_matters_in_each_state() -> None:
    assert (took(a_job(), NOW), when(a_job(), NOW)) == ("50 s", "2 min ago")
    running = a_job(state=State.RUNNING)
    assert (took(running, NOW), when(running, NOW)) == ("3:20", "")
    waiting = a_job(state=State.WAITING)
    assert (took(waiting, NOW), when(waiting, NOW)) == ("", "5 min ago")


def test_a_command_of_many_lines_is_one_line_and_names_carry_their_project() -> None:
    job = a_job(command="a\n  b", project="p", name="n", priority=3, reason="exit 1")

    row = row_of(job, NOW)

    assert row[6:] == ("3", "p/n", "exit 1", "a b")
    assert row_of(a_job(project="p"), NOW)[7] == "p/"


def test_of_a_job_that_shares_a_gpu_it_is_told_what_it_has_and_what_is_set_aside() -> None:
    job = a_job(reserved_bytes=6 << 30, gpu_bytes=5 << 30)

    assert row_of(job, NOW)[3] == "5.0/6.0 GiB"
    assert row_of(a_job(), NOW)[3] == ""
