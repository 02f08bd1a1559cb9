from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Stoker

WRONG = {
    "-j 0": ["-j", "0"],
    "-j -1": ["-j", "-1"],
    "-j x": ["-j", "x"],
    "--retries -1": ["--retries", "-1"],
    "--retries many": ["--retries", "many"],
    "a number without a unit": ["--timeout", "5"],
    "no time at all": ["--timeout", "0s"],
    "a word for a time": ["--timeout", "soon"],
    "a negative time": ["--timeout=-5s"],
    "half a time": ["--timeout", "1h30"],
    "an empty time": ["--timeout", ""],
    "an unknown option": ["--no-such-option"],
    "a second file": ["jobs.txt", "more.txt"],
    "an option without its value": ["--logs"],
    "tags and logs": ["--tag", "--logs", "logs"],
    "tags and JSON": ["--tag", "--json"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_usage_is_one_clear_line_and_exit_2(stoker: Stoker, words: list[str]) -> None:
    ended = stoker.run("--gpus", "0", *words, lines="echo never\n")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("stoker: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert stoker.folders() == []


@pytest.mark.parametrize("words", [["rnu"], ["frobnicate"], ["--frobnicate"]])
def test_an_unknown_verb_is_one_clear_line(stoker: Stoker, words: list[str]) -> None:
    ended = stoker.end(stoker.start(*words))

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"stoker: no such verb '{words[0]}': ")
    assert ended.err.count("\n") == 1
    assert ("did you mean 'run'" in ended.err) == (words == ["rnu"])


def test_help_and_version_are_for_everyone(stoker: Stoker) -> None:
    assert "usage: stoker VERB" in stoker.end(stoker.start("--help")).out
    assert "examples:" in stoker.run("--help").out
    assert stoker.end(stoker.start("--version")).out.startswith("stoker ")


def test_help_can_be_read_on_a_terminal_without_unicode(stoker: Stoker) -> None:
    ended = stoker.end(stoker.start("--help", env={"PYTHONIOENCODING": "ascii"}))

    assert (ended.code, ended.err) == (0, "")


def test_a_reader_that_goes_away_ends_json_quietly(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0", "--json", stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    ended = stoker.end(process, "true\n" * 50)

    assert (ended.code, ended.err) == (1, "")


def test_a_reader_of_messages_that_goes_away_ends_no_job(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0", "--logs", "logs", stdin=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None

    ended = stoker.end(process, "false\necho a >> ran\nfalse\necho a >> ran\n")

    assert (ended.code, stoker.read("ran")) == (1, ["a", "a"])


def test_a_working_folder_that_is_gone_is_one_clear_line(stoker: Stoker) -> None:
    gone = stoker.work / "gone"
    gone.mkdir()
    script = 'rmdir ../gone; exec "$0" -m stoker run --gpus 0'
    process = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable],
        input="echo a\n",
        env=stoker.env,
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode != 0
    assert process.stderr.startswith("stoker: ")
    assert process.stderr.count("\n") == 1


def test_signals_that_a_parent_ignored_work_again(stoker: Stoker) -> None:
    words = [sys.executable, "-m", "stoker", "run", "--gpus", "0"]
    script = (
        "import os, signal\n"
        "for name in ('SIGCHLD', 'SIGINT', 'SIGTERM', 'SIGPIPE'):\n"
        "    signal.signal(getattr(signal, name), signal.SIG_IGN)\n"
        f"os.execv({words[0]!r}, {words!r})\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        input="false\nyes | head -1\nsleep 60 & kill -TERM $!; wait $!; echo $?\n",
        env=stoker.env,
        cwd=stoker.work,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (process.returncode, process.stdout) == (1, "y\n143\n")
    assert "Traceback" not in process.stderr
    assert "2 done, 1 failed" in process.stderr


def test_a_signal_during_startup_ends_it_quietly(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0")
    stoker.until(lambda: len(stoker.processes()) > 1, "the supervisor is there")
    process.send_signal(signal.SIGINT)

    ended = stoker.end(process)

    assert ended.code != 0
    assert "Traceback" not in ended.err


def test_a_home_that_cannot_be_written_is_one_clear_line(stoker: Stoker) -> None:
    stoker.file("file", "")

    ended = stoker.run(
        "--gpus", "0", lines="echo a\n", env={"STOKER_HOME": str(stoker.work / "file")}
    )

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("stoker: ")
    assert ended.err.count("\n") == 1
    assert "STOKER_HOME" in ended.err
