from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Stoker


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--timeout", "0.3s", lines="sleep 60\necho next\n")

    assert (ended.code, ended.out) == (1, "next\n")
    assert "time limit of 0.3s: sleep 60" in ended.err
    assert "1 done, 1 killed" in ended.err


def test_the_time_limit_asks_first_and_reaches_the_whole_tree(stoker: Stoker) -> None:
    job = "trap 'echo asked >> said; exit 5' TERM; (trap 'echo child >> said; exit' TERM; touch up;"
    job += " while :; do sleep 0.01; done) & while :; do sleep 0.01; done"

    ended = stoker.run("--gpus", "0", "--timeout", "0.5s", lines=job + "\n")

    assert ended.code == 1
    assert sorted(stoker.read("said")) == ["asked", "child"]
    assert [(row.state, row.status) for row in stoker.rows()] == [("killed", 5 << 8)]


def test_a_command_that_ignores_the_time_limit_is_killed(stoker: Stoker) -> None:
    job = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done\n"

    ended = stoker.run("--gpus", "0", "--timeout", "0.3s", lines=job + "echo next\n")

    assert (ended.code, ended.out) == (1, "next\n")
    assert not stoker.is_alive(int(stoker.read("pid")[0]))
    assert [(row.state, row.status) for row in stoker.rows()] == [("killed", 9), ("done", 0)]


def test_a_limit_of_weeks_is_a_limit(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--timeout", "5w", lines="sleep 0.2; echo a\n")

    assert (ended.code, ended.out) == (0, "a\n")
    assert "Traceback" not in ended.err


def test_a_failed_command_is_tried_again_and_knows_which_attempt_it_is(stoker: Stoker) -> None:
    job = "echo $STOKER_JOB_ID.$STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 3 ]\n"

    ended = stoker.run("--gpus", "0", "--retries", "2", lines=job)

    assert (ended.code, ended.out) == (0, "1.1\n1.2\n1.3\n")
    assert ended.err.count("trying again") == 2
    assert [row.outcome for row in stoker.rows()] == ["failed", "failed", "done"]


def test_after_its_retries_a_command_has_failed_for_good(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--retries", "1", lines="echo x; false\ntrue\n")

    assert (ended.code, ended.out) == (1, "x\nx\n")
    assert "1 done, 1 failed" in ended.err


def test_what_is_over_its_time_is_tried_again_too(stoker: Stoker) -> None:
    job = "[ $STOKER_ATTEMPT = 2 ] || exec sleep 60\n"

    ended = stoker.run("--gpus", "0", "--timeout", "0.3s", "--retries", "1", lines=job)

    assert ended.code == 0
    assert [row.outcome for row in stoker.rows()] == ["killed", "done"]


def test_fail_fast_starts_no_more_but_lets_running_ones_end(stoker: Stoker) -> None:
    wait = "until [ -e failed ]; do sleep 0.01; done; sleep 0.2; echo long\n"

    ended = stoker.run(
        "--gpus", "0,1", "--fail-fast", lines=wait + "touch failed; false\necho never\n" * 3
    )

    assert (ended.code, ended.out) == (1, "long\n")
    assert "1 done, 1 failed, the rest was not started" in ended.err


def test_fail_fast_waits_for_the_last_retry(stoker: Stoker) -> None:
    lines = "[ $STOKER_ATTEMPT = 2 ]\necho next\n"

    ended = stoker.run("--gpus", "0", "--fail-fast", "--retries", "1", lines=lines)

    assert (ended.code, ended.out) == (0, "next\n")
