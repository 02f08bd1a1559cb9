from __future__ import annotations

import pytest

from stoker.engine.service.log import find
from stoker.errors import NotFoundError, UsageError
from unit.engine.world import FAILED, MakeWorld, World


def test_the_log_of_the_present_attempt_is_found_and_can_grow(world: World) -> None:
    world.add("a", retries=1)
    world.end("1.1", FAILED)
    found = find(world.hub, "1", None)

    assert found.path == str(world.home / "logs" / "0" / "1.2.log")
    assert (found.id, found.attempt) == (1, 2)
    assert not found.is_over()
    world.end("1.2")
    assert found.is_over()


def test_an_earlier_attempt_is_over_although_the_job_is_not(world: World) -> None:
    world.add("a", retries=1)
    first = find(world.hub, "1", None)
    assert not first.is_over()
    world.end("1.1", FAILED)

    assert first.is_over()
    assert find(world.hub, "1", 1).path == first.path


def test_the_log_of_a_job_that_has_not_started_is_where_it_will_be(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    found = find(world.hub, "2", None)

    assert found.path.endswith("2.1.log")
    assert not found.is_over()


def test_a_log_of_the_users_own_has_its_placeholders_filled_in(world: World) -> None:
    world.add("a", log="out/{project}/{name}/{id}.log", name="one", project="vision")
    assert find(world.hub, "1", None).path == str(world.home / "out/vision/one/1.log")

    world.add("b", log="out/{project}/{name}/{id}.log")
    assert find(world.hub, "2", None).path == str(world.home / "out/default/2/2.log")


def test_a_job_that_is_removed_meanwhile_writes_no_more(world: World) -> None:
    world.add("a")
    found = find(world.hub, "1", None)
    world.rm("1", kill=True)

    assert found.is_over()


def test_the_daemons_own_log_is_never_over(world: World) -> None:
    found = find(world.hub, "daemon", None)

    assert found.path == str(world.home / "daemon.log")
    assert not found.is_over()


def test_an_attempt_that_never_was_is_an_error(world: World) -> None:
    world.add("a")
    with pytest.raises(NotFoundError, match="job 1 has no attempt 2: its last is 1"):
        find(world.hub, "1", 2)


@pytest.mark.parametrize(("job", "error"), [("9", NotFoundError), ("1-2", UsageError)])
def test_one_job_at_a_time_that_is_there(world: World, job: str, error: type[Exception]) -> None:
    world.add("a", "b")
    with pytest.raises(error):
        find(world.hub, job, None)
