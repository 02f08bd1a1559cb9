from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Stoker


def test_blank_lines_and_comments_are_no_commands(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="\n  \n# a\n   # b\necho c # not d\n\t\n")

    assert (ended.code, ended.out) == (0, "c\n")
    assert [row.command for row in stoker.rows()] == [b"echo c # not d"]


def test_a_backslash_continues_a_line(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="echo a \\\n  b \\\n# c\necho 'd\\\\'\necho e\\\n")

    assert [row.command for row in stoker.rows()] == [b"echo a   b # c", b"echo 'd\\\\'", b"echo e"]
    assert ended.code == 0


def test_lines_from_windows_run_as_they_would_have_there(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="echo a\r\necho b \\\r\n  c\r\n\r\n# d\r\n")

    assert (ended.code, ended.stdout) == (0, b"a\nb c\n")


def test_null_separates_whole_jobs_of_many_lines(stoker: Stoker) -> None:
    jobs = "for i in 1 2\ndo\n  # a comment of the job's own\n  echo $i\ndone\n\0echo x \\\n  y\0\n\0echo z"

    ended = stoker.run("--gpus", "0", "--null", lines=jobs)

    assert (ended.code, ended.out) == (0, "1\n2\nx y\nz\n")
    assert len(stoker.rows()) == 3


def test_a_last_line_without_its_end_still_runs(stoker: Stoker) -> None:
    assert stoker.run("--gpus", "0", lines="echo a\necho b").out == "a\nb\n"


def test_commands_come_from_a_file_too(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "echo a\necho b\n")

    assert stoker.run(file, "--gpus", "0").out == "a\nb\n"
    assert stoker.run("-", "--gpus", "0", lines="echo c\n").out == "c\n"


def test_standard_input_may_be_a_file(stoker: Stoker) -> None:
    stoker.file("jobs.txt", "echo a\necho b\n")
    with (stoker.work / "jobs.txt").open("rb") as file:
        process = stoker.start("run", "--gpus", "0", stdin=file)

    assert stoker.end(process).out == "a\nb\n"


def test_a_growing_file_is_a_queue(stoker: Stoker) -> None:
    stoker.file("queue", "echo old\n")
    with (
        subprocess.Popen(
            ["tail", "-f", "-n", "0", "queue"], stdout=subprocess.PIPE, cwd=stoker.work
        ) as tail,
        (stoker.work / "queue").open("ab", buffering=0) as queue,
    ):
        assert tail.stdout is not None
        process = stoker.start("run", "--gpus", "0", stdin=tail.stdout)
        stoker.until(lambda: "inotify" in _descriptors(tail.pid))
        queue.write(b"echo first >> ran\n")
        stoker.until(lambda: stoker.read("ran") == ["first"])
        queue.write(b"echo second >> ran\n")
        stoker.until(lambda: stoker.read("ran") == ["first", "second"])
        tail.terminate()

    assert stoker.end(process).code == 0


def _descriptors(pid: int) -> str:
    folder, found = f"/proc/{pid}/fd", []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(os.readlink(f"{folder}/{name}"))
    return " ".join(found)


def test_a_fifo_outlives_its_writers_and_ends_on_a_signal(stoker: Stoker) -> None:
    fifo = stoker.work / "queue"
    os.mkfifo(fifo)
    process = stoker.start("run", "queue", "--gpus", "0")

    for word in ("first", "second"):
        with fifo.open("w") as queue:  # each one a writer that comes, and goes
            queue.write(f"echo {word} >> ran\n")
        stoker.until(lambda word=word: word in stoker.read("ran"))  # type: ignore[misc]
    assert process.poll() is None
    process.send_signal(signal.SIGINT)

    ended = stoker.end(process)
    assert ended.code == 0
    assert stoker.read("ran") == ["first", "second"]
    assert ended.err.splitlines()[-1].startswith("stoker: 2 done, in")


def test_a_fifo_that_still_holds_commands_was_not_run_to_its_end(stoker: Stoker) -> None:
    fifo = stoker.work / "queue"
    os.mkfifo(fifo)
    process = stoker.start("run", "queue", "--gpus", "0")
    with fifo.open("w") as queue:
        queue.write("touch up; until [ -e go ]; do sleep 0.01; done\n" + "touch next\n" * 9)
    stoker.until((stoker.work / "up").exists)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert b"starting no more" in process.stderr.readline()
    (stoker.work / "go").touch()

    ended = stoker.end(process)
    assert (ended.code, "the rest was not started" in ended.err) == (1, True)
    assert not (stoker.work / "next").exists()


def test_commands_of_a_process_substitution_come_to_an_end(stoker: Stoker) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"echo a >> ran\n")
    os.close(writer)

    ended = stoker.end(stoker.start("run", "/dev/stdin", "--gpus", "0", stdin=reader))
    os.close(reader)

    assert (ended.code, stoker.read("ran")) == (0, ["a"])


def test_a_fifo_on_standard_input_outlives_its_writers_too(stoker: Stoker) -> None:
    fifo = stoker.work / "queue"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)
    process = stoker.start("run", "--gpus", "0", stdin=held)
    os.write(held, b"echo first >> ran\n")
    stoker.until(lambda: stoker.read("ran") == ["first"])
    os.close(held)

    with fifo.open("w") as queue:
        queue.write("echo second >> ran\n")
    stoker.until(lambda: stoker.read("ran") == ["first", "second"])
    process.send_signal(signal.SIGTERM)

    assert stoker.end(process).code == 0


def test_more_lines_than_a_pipe_holds_are_read_as_they_are_needed(stoker: Stoker) -> None:
    lines = "".join(f": {'x' * 500} {number}\n" for number in range(400))

    ended = stoker.run("--gpus", "0,1,2,3", lines=lines)

    assert ended.code == 0
    assert "400 done" in ended.err
