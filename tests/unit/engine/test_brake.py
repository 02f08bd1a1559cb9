from __future__ import annotations

from unit.engine.world import FAILED, MakeWorld, World


def end(world: World, key: str, status: int) -> None:
    """Let an attempt end that was not so short that others are claimed in advance."""
    world.now += 5
    world.end(key, status)


def test_equal_failures_in_a_row_pause_their_project_with_the_reason(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["x"] * 9, project="p")
    world.add("other")
    for number in (1, 2, 3):
        end(world, f"{number}.1", FAILED)

    assert world.executor.running == ["10.1"]
    assert world.hub.gate.projects_paused == {"p": "3 jobs in a row failed: exit 1"}
    assert world.notices().endswith(
        "project p is paused, 3 jobs in a row failed: exit 1; stoker resume --queue -P p goes on"
    )
    world.restart()
    world.settle()
    assert world.states()[4] == "waiting"

    world.end("10.1")
    world.resume(queue=True, project="p")
    assert world.executor.running == ["4.1"]


def test_it_takes_as_many_again_after_it_was_resumed(make_world: MakeWorld) -> None:
    world = make_world(gpus=3)
    world.add(*["x"] * 9, project="p")
    for number in (1, 2, 3):
        world.executor.end(f"{number}.1", FAILED)
    world.settle()
    assert world.hub.gate.projects_paused
    world.resume(queue=True, project="p")
    for number in (4, 5):
        end(world, f"{number}.1", FAILED)

    assert not world.hub.gate.projects_paused


def test_a_success_or_another_reason_starts_the_count_anew(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add(*["x"] * 9, project="p")
    for number, status in enumerate((FAILED, FAILED, 0, FAILED, FAILED, 2 << 8, FAILED), 1):
        end(world, f"{number}.1", status)

    assert not world.hub.gate.projects_paused
    assert world.executor.running == ["8.1"]


def test_kills_and_retries_do_not_count(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("tried", retries=3, project="p")
    world.add(*["x"] * 5, project="p")
    for attempt in range(1, 4):
        end(world, f"1.{attempt}", FAILED)
    assert not world.hub.gate.projects_paused
    world.kill("1-4")

    assert not world.hub.gate.projects_paused


def test_equal_failures_pause_the_jobs_without_a_project_and_no_others(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["x"] * 9)
    world.add("other", project="p")
    for number in (1, 2, 3):
        end(world, f"{number}.1", FAILED)

    assert world.executor.running == ["10.1"]
    assert world.notices().endswith(
        "jobs without a project are paused, 3 jobs in a row failed: exit 1;"
        " stoker resume --queue goes on"
    )
    assert world.why(4) == (
        "job 4 waits: jobs without a project are paused (3 jobs in a row failed: exit 1):"
        " stoker resume --queue"
    )
    world.restart()
    world.settle()
    assert world.states()[4] == "waiting", "it stays paused over a restart"

    world.end("10.1")
    world.resume(queue=True)
    assert world.executor.running == ["4.1"]


def test_failures_with_and_without_a_project_are_counted_apart(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    for _ in range(4):
        world.add("x", project="p")
        world.add("x")
    for number in range(1, 5):
        end(world, f"{number}.1", FAILED)

    assert not world.hub.gate.projects_paused


def test_tasks_of_gpulimit_do_not_count(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add(*["x"] * 6, share="free")
    for number in range(1, 5):
        end(world, f"{number}.1", FAILED)

    assert not world.hub.gate.projects_paused


def test_it_can_be_set_tighter_or_switched_off(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.config("brake", "1")
    world.add("x", "x", project="p")
    end(world, "1.1", FAILED)
    assert world.hub.gate.projects_paused
    world.config("brake", "0")
    world.resume(queue=True, project="p")
    world.add(*["x"] * 9, project="p")
    for number in range(2, 8):
        end(world, f"{number}.1", FAILED)

    assert not world.hub.gate.projects_paused


def test_what_was_claimed_in_advance_is_taken_back(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.config("brake", "2")
    world.add(*["x"] * 40, project="p")
    world.now += 0.001
    world.end("1.1", FAILED)
    assert len(world.executor.queued) > 1
    world.now += 0.001
    world.end("2.1", FAILED)

    assert world.executor.queued == []
    assert world.executor.running == ["3.1"]


def test_so_many_failures_in_all_pause_a_project_that_has_a_bound(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.config("brake", "0")
    world.config("max-failures.p", "2")
    world.add(*["x"] * 9, project="p")
    for number, status in ((1, FAILED), (2, 0)):
        end(world, f"{number}.1", status)
    world.restart()
    world.settle()
    assert not world.hub.gate.projects_paused
    end(world, "3.1", 2 << 8)

    assert world.hub.gate.projects_paused == {"p": "2 jobs failed, the last: exit 2"}
    world.resume(queue=True, project="p")
    end(world, "4.1", FAILED)
    assert not world.hub.gate.projects_paused, "it takes as many again"
