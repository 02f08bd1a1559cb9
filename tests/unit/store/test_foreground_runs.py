from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.core.job import Request
from stoker.errors import StokerError
from stoker.store import foreground_runs
from stoker.store.foreground_runs import ForegroundRun, create, latest

KEY = {"cwd": "/somewhere", "file": "jobs.txt"}
OPEN_ANOTHER = """
import sys
from stoker.errors import StokerError
from stoker.store.foreground_runs import ForegroundRun
try:
    ForegroundRun(sys.argv[1]).close()
except StokerError as error:
    print(error)
"""
CREATE_AND_DIE = """
import os, sys
from stoker.core.job import Request
from stoker.store.foreground_runs import create
run = create(sys.argv[1], {"cwd": "/somewhere", "file": "jobs.txt"})
run.jobs.add_waiting(b"one", Request())
run.database.commit()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "home")


def made(home: str, key: dict[str, str] = KEY) -> str:
    run = create(home, key)
    run.close()
    return run.name


def found(home: str, key: dict[str, str] = KEY) -> str | None:
    run = latest(home, key)
    if run is None:
        return None
    run.close()
    return run.name


def in_another_process(folder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_ANOTHER, folder], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_new_run_has_a_folder_of_its_owners_alone(home: str) -> None:
    run = create(home, KEY)
    run.close()

    assert os.stat(run.folder).st_mode & 0o777 == 0o700
    assert os.path.dirname(run.folder) == os.path.join(home, "runs")
    assert os.path.basename(run.folder) == run.name


def test_without_any_run_there_is_none_to_resume(home: str) -> None:
    assert found(home) is None


def test_a_run_is_found_by_its_key(home: str) -> None:
    mine = made(home)
    made(home, {**KEY, "file": "other.txt"})

    assert found(home) == mine
    assert found(home, {**KEY, "file": "third.txt"}) is None
    assert found(home, {"cwd": "/somewhere"}) is None


def test_the_newest_of_several_runs_is_found_also_within_one_second(home: str) -> None:
    names = [made(home) for _ in range(8)]

    assert found(home) == names[-1]


def test_a_run_that_was_killed_is_found_with_what_it_had_recorded(home: str) -> None:
    subprocess.run([sys.executable, "-c", CREATE_AND_DIE, home], check=False)

    run = latest(home, KEY)

    assert run is not None
    assert run.jobs.command_of(1) == b"one"
    run.close()


@pytest.mark.parametrize("name", ["with blank", "100%41", "a#b", "what?x=y", "ü\udcff"])
def test_the_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    home = os.path.join(tmp_path, name)
    mine = made(home)

    assert found(home) == mine


def test_a_second_process_is_refused_with_the_number_of_the_first(home: str) -> None:
    run = create(home, KEY)
    refused = in_another_process(run.folder)
    run.close()
    allowed = in_another_process(run.folder)

    assert re.fullmatch(
        rf"that run is still going on \(process {os.getpid()}\): stop it first, .*\n", refused
    )
    assert allowed == ""


def test_a_run_whose_process_was_killed_is_free(home: str) -> None:
    subprocess.run([sys.executable, "-c", CREATE_AND_DIE, home], check=False)
    (name,) = os.listdir(os.path.join(home, "runs"))

    assert in_another_process(os.path.join(home, "runs", name)) == ""


def test_a_run_that_cannot_be_opened_is_let_go(home: str) -> None:
    run = create(home, KEY)
    run.close()
    database = Path(run.folder) / "run.db"
    whole = database.read_bytes()
    database.write_bytes(b"damaged" * 100)
    with pytest.raises(StokerError, match="damaged"):
        ForegroundRun(run.folder)
    database.write_bytes(whole)

    ForegroundRun(run.folder).close()


def test_a_damaged_run_does_not_hide_others(home: str) -> None:
    mine = made(home)
    other = made(home, {"cwd": "/elsewhere"})
    (Path(home) / "runs" / other / "run.db").write_bytes(b"damaged" * 100)

    assert found(home) == mine


def test_a_path_inside_the_run_has_parents(home: str) -> None:
    run = create(home, KEY)
    path = run.path("logs", "0", "1.log")
    run.close()

    assert os.path.isdir(os.path.dirname(path))
    assert path.startswith(run.folder + os.sep)
    assert run.journal == os.path.join(run.folder, "journal")


def test_the_oldest_runs_are_forgotten_but_never_one_that_is_going_on(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.path.join(home, "runs")
    first, second, third, fourth = [made(home) for _ in range(4)]
    going_on = ForegroundRun(os.path.join(folder, first))
    going_on.jobs.add_waiting(b"a", Request())
    going_on.database.commit()
    monkeypatch.setattr(foreground_runs, "_KEEP_RUNS", 2)

    fifth = made(home)
    left = set(os.listdir(folder))
    going_on.close()

    assert {first, third, fourth, fifth} <= left
    assert second not in left
