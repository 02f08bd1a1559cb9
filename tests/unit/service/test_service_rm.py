from __future__ import annotations

import asyncio
import os
import signal

import pytest

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.executors.command import MAX_ARGUMENT_BYTES
from stoker.service.rm import rm
from stoker.wire import NewJob, Refusal, Remove
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def write_log(harness: Harness, job: int, attempt: int) -> str:
    path = harness.home / "logs" / "0" / f"{job}.{attempt}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("output\n")
    return str(path)


def test_what_is_over_goes_with_its_attempts_and_its_logs(harness: Harness) -> None:
    harness.add("a", retries=1)
    harness.end("1.1", FAILED)
    harness.end("1.2", FAILED)
    logs = [write_log(harness, 1, number) for number in (1, 2)]

    assert harness.rm("1").ids == [1]
    assert harness.states() == {}
    assert harness.attempts(1) == []
    assert not any(map(os.path.exists, logs))


def test_a_log_at_a_place_of_the_users_own_stays(harness: Harness) -> None:
    own = harness.home / "own.log"
    own.write_text("output\n")
    harness.add("a", log=str(own))
    harness.end("1.1")
    harness.rm("1")

    assert own.exists()


@pytest.mark.parametrize(
    "job", [NewJob(command="echo a", script=True), NewJob(command="x" * MAX_ARGUMENT_BYTES)]
)
def test_the_file_that_a_job_ran_from_goes_too(harness: Harness, job: NewJob) -> None:
    harness.add(job)
    script = harness.home / "scripts" / "1"
    assert script.exists()
    harness.end("1.1")
    harness.rm("1")

    assert not script.exists()


def test_what_runs_is_refused_with_what_to_pass(harness: Harness) -> None:
    harness.add("a", "b")
    harness.end("2.1")
    changed = harness.rm("1-2")

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 is running: rm --kill ends it first")]
    assert harness.executor.running == ["1.1"]


def test_with_kill_what_runs_is_ended_first(harness: Harness) -> None:
    harness.add("a", retries=3)
    assert harness.rm("1", kill=True).ids == [1]

    assert harness.executor.signals == [("1.1", signal.SIGTERM)]
    assert harness.states() == {}
    assert harness.executor.leased == set()


def test_with_kill_it_waits_for_what_ignores_term(harness: Harness) -> None:
    harness.add("a")
    harness.executor.ignore_signals("1.1")

    async def story() -> list[int]:
        task = asyncio.ensure_future(rm(harness.context, Remove(ids="1", kill=True)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        harness.now += 10
        harness.context.driver.poke()
        return (await task).ids

    assert harness.run(story()) == [1]
    assert harness.executor.signals[-1] == ("1.1", signal.SIGKILL)


def test_with_kill_nothing_takes_the_place_of_what_is_ended(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    assert harness.rm(all=True, kill=True).ids == [1, 2, 3]

    assert harness.started() == ["1.1"]
    assert harness.states() == {}


def test_what_waits_goes_only_if_it_is_meant(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c", "d")
    harness.now += 5
    harness.end("1.1")
    assert harness.rm(all=True).ids == [1]
    assert harness.states() == {2: "running", 3: "waiting", 4: "waiting"}

    assert harness.rm("3").ids == [3]
    assert harness.rm(states=[State.WAITING]).ids == [4]


def test_a_removed_job_is_not_found_and_its_id_not_given_again(harness: Harness) -> None:
    harness.add("a")
    harness.rm("1", kill=True)
    with pytest.raises(NotFoundError, match="there is no job 1"):
        harness.rm("1")

    assert harness.add("b").first == 2


def test_with_no_selection_nothing_is_removed(harness: Harness) -> None:
    with pytest.raises(UsageError, match="no job is named"):
        harness.rm()


def test_many_go_in_slices(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 1200)
    assert len(harness.rm(states=[State.WAITING]).ids) == 1199
    assert harness.jobs.tally() == {State.RUNNING: 1}


def test_a_log_that_is_gone_already_is_no_matter(harness: Harness) -> None:
    harness.add("a")
    harness.end("1.1")

    assert harness.rm("1").ids == [1]
