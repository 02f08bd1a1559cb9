from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Stoker


def test_only_what_has_not_succeeded_runs_again(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a >> ran\n[ -e go ] && echo b >> ran\necho c >> ran\n")

    assert stoker.run(file, "--gpus", "0").code == 1
    stoker.file("go", "")
    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a", "c", "b"])
    assert "1 done, 2 had succeeded before" in ended.err
    assert [row.attempt for row in stoker.rows() if row.job == 2] == [1, 2]


def test_when_all_has_succeeded_nothing_runs_again(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a >> ran\n" * 3)
    stoker.run(file, "--gpus", "0")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a"] * 3)
    assert "0 done, 3 had succeeded before" in ended.err


def test_equal_lines_are_told_apart_by_their_count(stoker: Stoker) -> None:
    # Each attempt takes a ticket by making a folder; the second of the first run fails.
    line = "n=1; while ! mkdir t$n; do n=$((n+1)); done 2>&-; echo $n >> ran; [ $n != 2 ]\n"
    file = stoker.file("jobs.txt", line * 4)

    assert stoker.run(file, "--gpus", "0").code == 1
    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["1", "2", "3", "4", "5"])
    assert "1 done, 3 had succeeded before" in ended.err


def test_a_changed_file_runs_what_is_new_and_what_is_not_done(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a >> ran\necho b >> ran\nexit 1\n")
    stoker.run(file, "--gpus", "0")
    stoker.file("jobs.txt", "# moved\necho b >> ran\necho c >> ran\necho a >> ran\necho a >> ran\n")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a", "b", "c", "a"])
    assert "2 done, 2 had succeeded before" in ended.err


def test_standard_input_can_be_resumed_too_and_so_can_a_name(stoker: Stoker) -> None:
    stoker.run("--gpus", "0", lines="echo a >> ran\nfalse\n")
    stoker.run("--gpus", "0", "--name", "mine", lines="echo b >> ran\nfalse\n")

    piped = stoker.run("--gpus", "0", "--resume", lines="echo a >> ran\n")
    named = stoker.run("--gpus", "0", "--resume", "--name", "mine", lines="echo b >> ran\n")

    assert (piped.code, named.code, stoker.read("ran")) == (0, 0, ["a", "b"])


def test_with_no_earlier_run_there_is_nothing_to_resume(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a\n")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("stoker: no earlier run of ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("folder", ["a#b", "a?b", "50%20c", "blank here"])
def test_the_home_may_have_any_name(stoker: Stoker, folder: str) -> None:
    env = {"STOKER_HOME": str(stoker.work / folder)}
    file = stoker.file("jobs.txt", "echo a >> ran\n")
    stoker.run(file, "--gpus", "0", env=env)

    ended = stoker.run(file, "--gpus", "0", "--resume", env=env)

    assert "had succeeded before" in ended.err
    assert stoker.read("ran") == ["a"]


def test_the_latest_run_is_meant_also_when_the_clock_was_turned_back(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a >> ran; [ -e go ]\n")
    stoker.run(file, "--gpus", "0", env={"TZ": "EAST-5"})
    stoker.file("go", "")
    stoker.run(file, "--gpus", "0", env={"TZ": "WEST+5"})

    ended = stoker.run(file, "--gpus", "0", "--resume", env={"TZ": "WEST+5"})

    assert "0 done, 1 had succeeded before" in ended.err


def test_the_latest_of_many_runs_within_a_second_is_meant(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "[ -e go ]\n")
    for _ in range(7):
        stoker.run(file, "--gpus", "0")
    stoker.file("go", "")
    stoker.run(file, "--gpus", "0")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert "0 done, 1 had succeeded before" in ended.err


def test_a_damaged_record_is_left_alone_and_named(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "true\n")
    stoker.run(file, "--gpus", "0")
    path = stoker.folders()[0] / "run.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert ended.code == 1
    assert "was written by a newer Stoker" in ended.err
    assert path.read_bytes() == before
