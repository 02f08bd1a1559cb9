from __future__ import annotations

from stoker.engine.failure_limit import _pattern_of
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def end(harness: Harness, key: str, status: int) -> None:
    """Let an attempt end that was not so short that others are claimed in advance."""
    harness.now += 5
    harness.end(key, status)


def test_equal_failures_in_a_row_pause_their_project_with_the_reason(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["x"] * 9, project="p")
    harness.add("other")
    for number in (1, 2, 3):
        end(harness, f"{number}.1", FAILED)

    assert harness.executor.running == ["10.1"]
    assert harness.context.admission.projects_paused == {"p": "3 jobs in a row failed: exit 1"}
    assert harness.notices().endswith(
        "project p is paused, 3 jobs in a row failed: exit 1; stoker resume --queue -P p goes on"
    )
    harness.restart()
    harness.settle()
    assert harness.states()[4] == "waiting"

    harness.end("10.1")
    harness.resume(queue=True, project="p")
    assert harness.executor.running == ["4.1"]


def test_the_notice_of_a_pause_ends_with_it(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["x"] * 4, project="p")
    harness.context.publisher.on_notice("a notice of something else")
    for number in (1, 2, 3):
        end(harness, f"{number}.1", FAILED)
    assert "project p is paused" in harness.notices()
    harness.resume(queue=True, project="p")

    assert "project p is paused" not in harness.notices()
    assert harness.notices().endswith("a notice of something else")


def test_it_takes_as_many_again_after_it_was_resumed(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=3)
    harness.add(*["x"] * 9, project="p")
    for number in (1, 2, 3):
        harness.executor.end(f"{number}.1", FAILED)
    harness.settle()
    assert harness.context.admission.projects_paused
    harness.resume(queue=True, project="p")
    for number in (4, 5):
        end(harness, f"{number}.1", FAILED)

    assert not harness.context.admission.projects_paused


def test_a_success_or_another_reason_starts_the_count_anew(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["x"] * 9, project="p")
    for number, status in enumerate((FAILED, FAILED, 0, FAILED, FAILED, 2 << 8, FAILED), 1):
        end(harness, f"{number}.1", status)

    assert not harness.context.admission.projects_paused
    assert harness.executor.running == ["8.1"]


def test_kills_and_retries_do_not_count(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("tried", retries=3, project="p")
    harness.add(*["x"] * 5, project="p")
    for attempt in range(1, 4):
        end(harness, f"1.{attempt}", FAILED)
    assert not harness.context.admission.projects_paused
    harness.kill("1-4")

    assert not harness.context.admission.projects_paused


def test_equal_failures_pause_the_jobs_without_a_project_and_no_others(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["x"] * 9)
    harness.add("other", project="p")
    for number in (1, 2, 3):
        end(harness, f"{number}.1", FAILED)

    assert harness.executor.running == ["10.1"]
    assert harness.notices().endswith(
        "jobs without a project are paused, 3 jobs in a row failed: exit 1;"
        " stoker resume --queue goes on"
    )
    assert harness.why(4) == (
        "job 4 waits: jobs without a project are paused (3 jobs in a row failed: exit 1):"
        " stoker resume --queue"
    )
    harness.restart()
    harness.settle()
    assert harness.states()[4] == "waiting", "it stays paused over a restart"

    harness.end("10.1")
    harness.resume(queue=True)
    assert harness.executor.running == ["4.1"]


def test_failures_with_and_without_a_project_are_counted_apart(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    for _ in range(4):
        harness.add("x", project="p")
        harness.add("x")
    for number in range(1, 5):
        end(harness, f"{number}.1", FAILED)

    assert not harness.context.admission.projects_paused


def test_tasks_of_gpulimit_do_not_count(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["x"] * 6, share="free")
    for number in range(1, 5):
        end(harness, f"{number}.1", FAILED)

    assert not harness.context.admission.projects_paused


def test_it_can_be_set_tighter_or_switched_off(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.config("brake", "1")
    harness.add("x", "x", project="p")
    end(harness, "1.1", FAILED)
    assert harness.context.admission.projects_paused
    harness.config("brake", "0")
    harness.resume(queue=True, project="p")
    harness.add(*["x"] * 9, project="p")
    for number in range(2, 8):
        end(harness, f"{number}.1", FAILED)

    assert not harness.context.admission.projects_paused


def test_what_was_claimed_in_advance_is_taken_back(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.config("brake", "2")
    harness.add(*["x"] * 40, project="p")
    harness.now += 0.001
    harness.end("1.1", FAILED)
    assert len(harness.executor.queued) > 1
    harness.now += 0.001
    harness.end("2.1", FAILED)

    assert harness.executor.queued == []
    assert harness.executor.running == ["3.1"]


def test_so_many_failures_in_all_pause_a_project_that_has_a_bound(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.config("brake", "0")
    harness.config("max-failures.p", "2")
    harness.add(*["x"] * 9, project="p")
    for number, status in ((1, FAILED), (2, 0)):
        end(harness, f"{number}.1", status)
    harness.restart()
    harness.settle()
    assert not harness.context.admission.projects_paused
    end(harness, "3.1", 2 << 8)

    assert harness.context.admission.projects_paused == {"p": "2 jobs failed, the last: exit 2"}
    harness.resume(queue=True, project="p")
    end(harness, "4.1", FAILED)
    assert not harness.context.admission.projects_paused, "it takes as many again"


def test_words_of_the_own_command_and_numbers_make_no_other_fault() -> None:
    def pattern(opt: str, line: int) -> str:
        reason = f"exit 2: train.py: error in line {line}: unrecognized arguments: --opt={opt}"
        return _pattern_of(reason, f"python train.py --opt={opt}".encode())

    assert pattern("sgd", 12) == pattern("adam", 7)
    assert pattern("sgd", 12) != _pattern_of("exit 2: train.py: no such file", b"python train.py")
