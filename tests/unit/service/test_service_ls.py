from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.lifecycle import State, is_final, is_live
from stoker.errors import NotFoundError, UsageError
from stoker.service import ls as service
from stoker.service.ls import ls
from stoker.store import job_listing
from stoker.wire import Base64, Job, LsQuery, NewJob, Page
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

steady = settings(derandomize=True, deadline=None, max_examples=25)


def page(harness: Harness, after: str | None = None, limit: int = 100, **query: Any) -> Page:
    return ls(harness.context, LsQuery(after=after, limit=limit, **query))


def pages(harness: Harness, limit: int, **how: Any) -> list[Job]:
    """All jobs, page by page; no page may be longer than asked for."""
    found: list[Job] = []
    after = None
    for _ in range(1000):
        part = page(harness, after, limit, **how)
        assert len(part.jobs) <= limit
        found += part.jobs
        if part.next is None:
            return found
        assert part.next != after
        after = part.next
    raise AssertionError("the pages never end")


def ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def documented_order(harness: Harness) -> list[int]:
    """What runs by id, what waits as it will start, what has ended by its end, the last one first."""
    rows = harness.database.execute(
        "SELECT id, state, priority, rank, ended_at_us FROM job"
    ).fetchall()
    live = sorted(row[0] for row in rows if is_live(State(row[1])))
    waiting = sorted((-row[2], row[3], row[0]) for row in rows if row[1] == "waiting")
    ended = sorted(((row[4], row[0]) for row in rows if is_final(State(row[1]))), reverse=True)
    return live + [row[2] for row in waiting] + [row[1] for row in ended]


def motley(harness: Harness, plan: list[tuple[int, int, str | None, str]]) -> None:
    """Jobs of all priorities, projects and fates: each entry is (gpus, priority, project, fate)."""
    for number, (gpus, priority, project, fate) in enumerate(plan, 1):
        harness.now += 1
        text = f"needle {number}" if number % 3 == 0 else f"hay {number}"
        harness.add(text, gpus=gpus, priority=priority, project=project, name=f"n{number % 2}")
        if fate == "wait":
            continue
        running = f"{number}.1" in harness.executor.running
        if fate in ("end", "fail") and running:
            harness.end(f"{number}.1", FAILED if fate == "fail" else 0)
        elif fate == "kill":
            harness.kill(str(number))
    harness.database.write("UPDATE job SET rank = id % 3 - 1 WHERE id % 5 = 0", ())
    harness.database.commit()


plans = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(-1, 1),
        st.sampled_from([None, "vision", "text"]),
        st.sampled_from(["wait", "wait", "end", "fail", "kill"]),
    ),
    max_size=25,
)
selections = st.fixed_dictionaries(
    {},
    optional={
        "states": st.lists(st.sampled_from(State), min_size=1, max_size=4, unique=True),
        "project": st.sampled_from(["vision", "text", "nobody"]),
        "text": st.sampled_from(["NEEDLE", "n1", "hay 1", "nowhere", ""]),
    },
)


@steady
@given(plans, st.integers(1, 30), selections, st.sampled_from([3, 5000]))
def test_the_pages_hold_every_job_once_in_the_documented_order(
    plan: list[tuple[int, int, str | None, str]], limit: int, how: dict[str, Any], look_at: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "_LOOK_AT", look_at)
        harness = Harness(Path(folder))
        motley(harness, plan)
        everything = {job.id: job for job in pages(harness, 1000)}
        assert list(everything) == documented_order(harness)

        wanted = [job.id for job in everything.values() if fits(job, **how)]
        assert ids(pages(harness, limit, **how)) == wanted
        harness.close()


def fits(
    job: Job,
    states: list[State] | None = None,
    project: str | None = None,
    text: str | None = None,
) -> bool:
    return (
        (states is None or job.state in states)
        and (project is None or job.project == project)
        and (text is None or text.lower() in f"{job.command} {job.name}".lower())
    )


@steady
@given(st.integers(1, 7), st.sampled_from(["1-9", "9,3,1-2", "@", "5"]))
def test_named_jobs_come_once_each_by_id(limit: int, names: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder))
        harness.add(*["a"] * 9)
        found = ids(pages(harness, limit, ids=names))
        harness.close()

    assert found == {"1-9": [*range(1, 10)], "9,3,1-2": [1, 2, 3, 9], "@": [9], "5": [5]}[names]


def test_an_empty_queue_has_one_empty_page(harness: Harness) -> None:
    assert page(harness) == Page(jobs=[], next=None)
    assert page(harness, states=[State.WAITING], project="nobody") == Page(jobs=[], next=None)


def test_a_page_that_is_just_full_has_no_next_one(harness: Harness) -> None:
    harness.add("a", "b", "c")

    assert page(harness, limit=3).next is None
    assert page(harness, limit=2).next is not None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "r",
        "r:",
        "r:a",
        "r:1:2",
        "w:1:2",
        "e:1",
        "e:1:2:3",
        "i:1",
        "r:9223372036854775808",
        "é:1",
        "r:1\n:",
        "w:::",
        "r:0x1",
        "e:-99999999999999999999:1",
    ],
)
def test_a_cursor_that_is_none_is_refused(harness: Harness, cursor: str) -> None:
    with pytest.raises(UsageError, match="is no cursor"):
        page(harness, cursor)


@pytest.mark.parametrize("cursor", ["r:1", "w:0:0:1", "e:1:1", "", "i:"])
def test_a_cursor_of_other_pages_is_refused_for_named_jobs(harness: Harness, cursor: str) -> None:
    harness.add("a")
    with pytest.raises(UsageError, match="is no cursor"):
        page(harness, cursor, ids="1")


@steady
@given(st.text(max_size=20))
def test_any_text_as_a_cursor_is_a_page_or_a_refusal(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder))
        harness.add("a", "b", "c")
        try:
            assert page(harness, text).jobs is not None
        except UsageError as error:
            refusal = str(error)
        else:
            refusal = "is no cursor"
        harness.close()

    assert "is no cursor" in refusal
    assert len(refusal.splitlines()) == 1


def test_a_job_is_shown_as_it_stands(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add(NewJob(command="python train.py", name="one"), project="vision", gpus=2, priority=3)
    harness.now += 9
    harness.end("1.1", 3 << 8)
    (job,) = page(harness).jobs

    assert (job.id, job.name, job.project, job.state) == (1, "one", "vision", State.FAILED)
    assert (job.command, job.gpus, job.priority, job.attempt) == ("python train.py", 2, 3, 1)
    assert (job.slots, job.reason, job.exit_code, job.signal) == ("0,1", "exit 3", 3, None)
    assert (job.started_at, job.ended_at) == (1000.0, 1009.0)
    assert job.submitted_at is not None


def test_a_signal_is_told_as_one(harness: Harness) -> None:
    harness.add("a")
    harness.end("1.1", 9)
    (job,) = page(harness).jobs

    assert (job.exit_code, job.signal, job.reason) == (None, 9, "killed by SIGKILL")


def test_commands_are_shown_as_one_would_type_them_also_where_they_are_no_text(
    harness: Harness,
) -> None:
    harness.add(["echo", "a b", "$x"], Base64("ZWNobyD/"), NewJob(command="echo a\n", script=True))
    shown = {job.id: job.command for job in page(harness).jobs}

    assert shown == {1: "echo 'a b' '$x'", 2: "echo �", 3: "echo a\n"}


def test_of_a_very_long_command_only_the_beginning_is_read(harness: Harness) -> None:
    harness.add("x" * 5_000_000)
    (job,) = page(harness).jobs

    assert job.command == "x" * 1000


def test_a_name_that_is_not_there_is_an_error(harness: Harness) -> None:
    with pytest.raises(NotFoundError):
        page(harness, ids="nobody")


def test_a_waiting_job_whose_claim_was_revoked_has_no_slot(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 3)
    harness.run_short_jobs("1.1")
    harness.wait(0.2)
    assert harness.executor.revoked == ["3.1"]

    assert [job.slots for job in page(harness, states=[State.WAITING]).jobs] == [None]


def test_a_job_tells_the_folder_it_was_added_from(harness: Harness) -> None:
    harness.add("a", cwd="/data/mine")
    assert page(harness).jobs[0].cwd == "/data/mine"


@pytest.mark.parametrize("states", [[], [State.FAILED], [State.FAILED, State.HELD], [State.DONE]])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_jobs_come_newest_or_oldest_first_whatever_their_states(
    make_harness: MakeHarness, states: list[State], limit: int
) -> None:
    harness = make_harness(gpus=1)
    for number in range(1, 7):
        harness.add("train", hold=number % 3 == 0)
    for number in (1, 2, 4):
        harness.end(f"{number}.1", FAILED if number % 2 else 0)

    wanted = pages(harness, 100, states=states)
    oldest = sorted(ids(wanted))
    assert ids(pages(harness, limit, sort="oldest", states=states)) == oldest
    assert ids(pages(harness, limit, sort="newest", states=states)) == oldest[::-1]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_jobs_come_by_their_names_and_those_without_one_last(
    make_harness: MakeHarness, limit: int
) -> None:
    harness = make_harness(gpus=1)
    for name in ("b", None, "a:b", "a", "b", None):
        harness.add(NewJob(command="train", name=name))
    assert ids(pages(harness, limit, sort="name")) == [4, 3, 1, 5, 2, 6]
    assert ids(pages(harness, limit, sort="name", states=[State.RUNNING])) == [1]


def test_jobs_by_name_are_found_by_an_index(harness: Harness) -> None:
    for sql, values in ((job_listing._BY_NAME, ("", 0)), (job_listing._NAMELESS, (0,))):
        steps = [row[3] for row in harness.database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert steps[0].startswith("SEARCH job USING")
        assert not any("TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize("after", ["b:x:a", "b:", "r:1", "n:a"])
def test_a_cursor_that_no_page_by_name_gave_is_refused(
    make_harness: MakeHarness, after: str
) -> None:
    with pytest.raises(UsageError, match="no cursor of such a page"):
        page(make_harness(gpus=1), after, sort="name")


def test_a_cursor_of_another_order_is_refused(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    with pytest.raises(UsageError, match="no cursor of such a page"):
        page(harness, "r:1", sort="newest")
    with pytest.raises(UsageError, match="no cursor of such a page"):
        page(harness, "n:1")


def test_jobs_are_found_by_the_gpu_they_run_or_ran_on(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("a", "b", "c")
    harness.end("1.1")

    assert ids(pages(harness, 100, gpu="1")) == [2]
    assert sorted(ids(pages(harness, 100, gpu="0"))) == [1, 3]
    assert ids(pages(harness, 100, gpu="7")) == []


def test_jobs_are_listed_by_their_end_and_by_how_long_they_took(
    make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness(gpus=2)
    monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
    monkeypatch.setattr("time.time", lambda: harness.now)
    harness.add("a", "b")
    harness.now += 10
    harness.end("2.1")
    harness.add("c", "waits")
    harness.now += 20
    harness.end("1.1", FAILED)
    harness.now += 15
    for limit in (1, 2, 10):
        assert ids(pages(harness, limit, sort="ended")) == [1, 2]
        # Job 3 has run for 35 s, job 4 for 15 s.
        assert ids(pages(harness, limit, sort="longest")) == [3, 1, 4, 2]
    assert ids(pages(harness, 10, sort="longest", states=[State.RUNNING])) == [3, 4]
    with pytest.raises(UsageError, match="cursor"):
        page(harness, "r:1", sort="ended")
    with pytest.raises(UsageError, match="cursor"):
        page(harness, "e:1:2", sort="longest")
