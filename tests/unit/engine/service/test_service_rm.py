from __future__ import annotations

import asyncio
import os
import signal

import pytest

from stoker.core.lifecycle import State
from stoker.engine.service.rm import rm
from stoker.errors import NotFoundError, UsageError
from stoker.executors.command import MAX_ARGUMENT_BYTES
from stoker.wire import NewJob, Refusal, Remove
from unit.engine.world import FAILED, MakeWorld, World


def write_log(world: World, job: int, attempt: int) -> str:
    path = world.home / "logs" / "0" / f"{job}.{attempt}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("output\n")
    return str(path)


def test_what_is_over_goes_with_its_attempts_and_its_logs(world: World) -> None:
    world.add("a", retries=1)
    world.end("1.1", FAILED)
    world.end("1.2", FAILED)
    logs = [write_log(world, 1, number) for number in (1, 2)]

    assert world.rm("1").ids == [1]
    assert world.states() == {}
    assert world.attempts(1) == []
    assert not any(map(os.path.exists, logs))


def test_a_log_at_a_place_of_the_users_own_stays(world: World) -> None:
    own = world.home / "own.log"
    own.write_text("output\n")
    world.add("a", log=str(own))
    world.end("1.1")
    world.rm("1")

    assert own.exists()


@pytest.mark.parametrize(
    "job", [NewJob(command="echo a", script=True), NewJob(command="x" * MAX_ARGUMENT_BYTES)]
)
def test_the_file_that_a_job_ran_from_goes_too(world: World, job: NewJob) -> None:
    world.add(job)
    script = world.home / "scripts" / "1"
    assert script.exists()
    world.end("1.1")
    world.rm("1")

    assert not script.exists()


def test_what_runs_is_refused_with_what_to_pass(world: World) -> None:
    world.add("a", "b")
    world.end("2.1")
    changed = world.rm("1-2")

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 is running: rm --kill ends it first")]
    assert world.executor.running == ["1.1"]


def test_with_kill_what_runs_is_ended_first(world: World) -> None:
    world.add("a", retries=3)
    assert world.rm("1", kill=True).ids == [1]

    assert world.executor.signals == [("1.1", signal.SIGTERM)]
    assert world.states() == {}
    assert world.executor.leased == set()


def test_with_kill_it_waits_for_what_ignores_term(world: World) -> None:
    world.add("a")
    world.executor.ignore_signals("1.1")

    async def story() -> list[int]:
        task = asyncio.ensure_future(rm(world.hub, Remove(ids="1", kill=True)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        world.now += 10
        world.hub.pulse.poke()
        return (await task).ids

    assert world.run(story()) == [1]
    assert world.executor.signals[-1] == ("1.1", signal.SIGKILL)


def test_with_kill_nothing_takes_the_place_of_what_is_ended(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    assert world.rm(all=True, kill=True).ids == [1, 2, 3]

    assert world.started() == ["1.1"]
    assert world.states() == {}


def test_what_waits_goes_only_if_it_is_meant(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c", "d")
    world.now += 5
    world.end("1.1")
    assert world.rm(all=True).ids == [1]
    assert world.states() == {2: "running", 3: "waiting", 4: "waiting"}

    assert world.rm("3").ids == [3]
    assert world.rm(states=[State.WAITING]).ids == [4]


def test_a_removed_job_is_not_found_and_its_id_not_given_again(world: World) -> None:
    world.add("a")
    world.rm("1", kill=True)
    with pytest.raises(NotFoundError, match="there is no job 1"):
        world.rm("1")

    assert world.add("b").first == 2


def test_with_no_selection_nothing_is_removed(world: World) -> None:
    with pytest.raises(UsageError, match="no job is named"):
        world.rm()


def test_many_go_in_slices(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 1200)
    assert len(world.rm(states=[State.WAITING]).ids) == 1199
    assert world.jobs.tally() == {State.RUNNING: 1}


def test_a_log_that_is_gone_already_is_no_matter(world: World) -> None:
    world.add("a")
    world.end("1.1")

    assert world.rm("1").ids == [1]
