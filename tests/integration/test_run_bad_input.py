from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Stoker

LOST_NOTHING = "echo others >> ran\n"


def assert_one_clear_line(ended: Ended, code: int, *words: str) -> None:
    assert ended.code == code, ended
    assert ended.err.count("\n") == 1, ended.err
    assert ended.err.startswith("stoker: "), ended.err
    for word in words:
        assert word in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("slots", ["9", "0,9", "0-9", "0+9"])
def test_a_gpu_that_does_not_exist(stoker: Stoker, slots: str) -> None:
    ended = stoker.run("--gpus", slots, lines=LOST_NOTHING)

    missing = "4" if "-" in slots else "9"
    assert_one_clear_line(ended, 2, f"GPU {missing} does not exist", "0-3")
    assert stoker.folders() == []


@pytest.mark.parametrize("slots", ["", " ", ",", "+", ", ,"])
def test_an_empty_list_of_gpus(stoker: Stoker, slots: str) -> None:
    assert_one_clear_line(stoker.run("--gpus", slots, lines=LOST_NOTHING), 2, "--gpus 0,1")


def test_no_gpu_and_none_named(stoker: Stoker) -> None:
    ended = stoker.run(lines=LOST_NOTHING, env={"STOKER_FAKE_NVML": "/nonexistent"})

    assert_one_clear_line(ended, 1, "no GPU found", "--gpus 0,1")


def test_without_nvml_every_name_passes_as_it_is(stoker: Stoker) -> None:
    lines = "echo $CUDA_VISIBLE_DEVICES\n"

    ended = stoker.run("--gpus", "9+cat", lines=lines, env={"STOKER_FAKE_NVML": "/nonexistent"})

    assert (ended.code, ended.out) == (0, "9,cat\n")


def test_a_nul_byte_in_a_line_fails_that_line_alone(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines=b"echo a\0b\necho c\n")

    assert (ended.code, ended.out) == (1, "c\n")
    assert ended.err.startswith("stoker: 1 ")
    assert "holds a NUL byte" in ended.err
    assert "--null" in ended.err
    assert "1 done, 1 failed" in ended.err


def test_undecodable_bytes_run_as_they_are(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines=b"printf '%s' '\xff\xfe\x80\xc3'\nfalse \xff\n")

    assert (ended.code, ended.stdout) == (1, b"\xff\xfe\x80\xc3")
    assert "stoker: 2 exit 1: false \N{REPLACEMENT CHARACTER}\n" in ended.stderr.decode()


def test_a_dry_run_shows_undecodable_bytes_on_any_terminal(stoker: Stoker) -> None:
    ended = stoker.run(
        "--gpus", "0", "--dry-run", lines=b"echo \xff\n", env={"PYTHONIOENCODING": "latin-1"}
    )

    assert (ended.code, ended.err) == (0, "")
    assert "1 command would run" in ended.out


def test_undecodable_names_are_names(stoker: Stoker) -> None:
    path = os.fsencode(stoker.work) + b"/jobs\xff.txt"
    with open(path, "wb") as file:
        file.write(b"echo a\n")

    ended = stoker.run(path, "--gpus", "0")

    assert (ended.code, ended.out) == (0, "a\n")


def test_a_line_of_a_megabyte(stoker: Stoker) -> None:
    big = b"x" * (1 << 20)

    ended = stoker.run("--gpus", "0", lines=b"printf %s '" + big + b"' | wc -c\necho next\n")

    assert (ended.code, ended.out.split()) == (0, [str(1 << 20), "next"])


@pytest.mark.parametrize("size", range(131068, 131075))
def test_a_line_about_as_long_as_exec_takes(stoker: Stoker, size: int) -> None:
    command = b": " + b"x" * (size - 2)

    assert stoker.run("--gpus", "0", lines=command + b"\n").code == 0


def test_a_missing_file(stoker: Stoker) -> None:
    ended = stoker.run("no/such/file", "--gpus", "0")

    assert_one_clear_line(ended, 2, "no/such/file", "No such file")


def test_a_folder_for_a_file(stoker: Stoker) -> None:
    assert_one_clear_line(stoker.run(".", "--gpus", "0"), 2, "it is a folder")


def test_a_file_that_cannot_be_read(stoker: Stoker) -> None:
    ended = stoker.run("/proc/self/mem", "--gpus", "0")  # opens, and then gives an I/O error

    assert ended.code != 0
    assert ended.err.startswith("stoker: cannot read /proc/")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("folder", ["file/logs", "/proc/logs"])
def test_a_log_folder_that_cannot_be_written(stoker: Stoker, folder: str) -> None:
    stoker.file("file", "")

    ended = stoker.run("--gpus", "0", "--logs", folder, lines=LOST_NOTHING)

    assert_one_clear_line(ended, 1, f"cannot write logs to {folder}", "another folder")
    assert stoker.folders() == []


def test_a_log_folder_that_goes_away_fails_only_what_needed_it(stoker: Stoker) -> None:
    lines = "rm -r logs\necho a\nmkdir logs\necho b\n"

    ended = stoker.run("--gpus", "0", "--logs", "logs", lines=lines)

    assert ended.code == 1
    assert [row.state for row in stoker.rows()][:2] == ["done", "failed"]
    assert "2 could not start: No such file or directory: " in ended.err
    assert ": echo a\n" in ended.err


def test_a_command_not_found_is_127_and_the_others_run(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="no-such-command\n./no/such\necho c\n")

    assert (ended.code, ended.out) == (1, "c\n")
    assert "stoker: 1 exit 127: command not found: no-such-command\n" in ended.err
    assert [row.status for row in stoker.rows()] == [127 << 8, 127 << 8, 0]


def test_a_file_that_is_not_executable_is_126(stoker: Stoker) -> None:
    stoker.file("script", "echo hi\n")

    ended = stoker.run("--gpus", "0", lines="./script\n./\necho c\n")

    assert (ended.code, ended.out) == (1, "c\n")
    assert "stoker: 1 exit 126: not executable: ./script\n" in ended.err


def test_a_script_without_an_interpreter_line_is_run_by_the_shell(stoker: Stoker) -> None:
    stoker.file("script", "echo hi $1\n")
    (stoker.work / "script").chmod(0o755)

    assert stoker.run("--gpus", "0", lines="./script you\n").out == "hi you\n"


def test_a_program_whose_interpreter_is_missing_is_127(stoker: Stoker) -> None:
    stoker.file("script", "#!/no/such/interpreter\n")
    (stoker.work / "script").chmod(0o755)

    ended = stoker.run("--gpus", "0", lines="./script\necho c\n")

    assert (ended.code, ended.out) == (1, "c\n")
    assert [row.status for row in stoker.rows()] == [127 << 8, 0]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_closed_descriptors(stoker: Stoker, closed: str) -> None:
    stoker.file("jobs.txt", "echo a >> ran\necho b; echo b >> ran\n")
    file = "" if closed == "<&-" else "jobs.txt"
    process = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m stoker run --gpus 0 {file} {closed}', sys.executable],
        env=stoker.env,
        cwd=stoker.work,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert "Traceback" not in process.stderr
    if closed == "<&-":
        assert process.stderr == (
            "stoker: standard input is closed: pipe commands in, or name a file\n"
        )
        assert process.returncode == 2
    else:
        assert stoker.read("ran") == ["a", "b"]
