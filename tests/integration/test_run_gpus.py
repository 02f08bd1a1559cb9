from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from stoker.testing.state import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Stoker

GPUS = {"0", "1", "2", "3"}
# Tells its GPU when it starts and when it ends, in a file whose order is the order of events.
MARK = 'echo "{0} start $CUDA_VISIBLE_DEVICES" >> marks; {1}; echo "{0} end $CUDA_VISIBLE_DEVICES" >> marks\n'
UNTIL_GO = "until [ -e go ]; do sleep 0.01; done"


class Mark(NamedTuple):
    name: str
    event: str
    gpu: str


def marks(stoker: Stoker) -> list[Mark]:
    return [Mark(*line.split()) for line in stoker.read("marks")]


def most_at_once(seen: list[Mark]) -> dict[str, int]:
    """How many jobs were on each GPU at its busiest moment."""
    now = dict.fromkeys(GPUS, 0)
    most = dict(now)
    for mark in seen:
        now[mark.gpu] += 1 if mark.event == "start" else -1
        most[mark.gpu] = max(most[mark.gpu], now[mark.gpu])
    return most


@contextlib.contextmanager
def foreigner(stoker: Stoker, gpu: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not Stoker's and uses a GPU."""
    with subprocess.Popen(["sleep", "60"]) as process:
        stoker.box.use(process.pid, gpu, GIB)
        try:
            yield process
        finally:
            process.kill()


def test_the_check_sees_two_jobs_on_one_gpu() -> None:
    shared = [Mark("a", "start", "0"), Mark("b", "start", "0"), Mark("a", "end", "0")]

    assert most_at_once(shared)["0"] == 2


def test_by_default_a_gpu_that_others_use_is_left_to_them(stoker: Stoker) -> None:
    meet = "until [ $(ls | grep -c ^at) -ge 3 ]; do sleep 0.01; done"
    with foreigner(stoker, 1):
        lines = "".join(MARK.format(i, f"touch at{i}; {meet}") for i in range(6))
        ended = stoker.run(lines=lines)

    assert ended.code == 0
    assert {mark.gpu for mark in marks(stoker)} == {"0", "2", "3"}
    assert "stoker: GPU 1 is in use by " in ended.err


def test_when_the_others_have_gone_their_gpu_is_used_again(stoker: Stoker) -> None:
    meet = "until [ $(ls | grep -c ^at) -ge 4 ]; do sleep 0.01; done"
    with foreigner(stoker, 1) as other:
        process = stoker.start("run")
        assert process.stdin is not None
        process.stdin.write(
            "".join(MARK.format(i, f"touch at{i}; {meet}") for i in range(4)).encode()
        )
        process.stdin.flush()
        stoker.until(lambda: len(marks(stoker)) == 3)
        other.kill()
        other.wait()
        ended = stoker.end(process)

    assert ended.code == 0
    assert {mark.gpu for mark in marks(stoker)} == GPUS
    assert "stoker: GPU 1 is free again" in ended.err


def test_our_own_jobs_on_a_gpu_are_no_foreigners(stoker: Stoker) -> None:
    train = f"{sys.executable} -m stoker.testing.train --mem 1G --seconds 2.5 --steps 1"

    ended = stoker.run(lines=f"{train}\n" * 4 + "true\n" * 4)

    assert ended.code == 0
    assert "in use by" not in ended.err


def test_a_gpu_that_is_named_is_used_whoever_else_is_on_it(stoker: Stoker) -> None:
    with foreigner(stoker, 1):
        ended = stoker.run("--gpus", "1", lines="echo $CUDA_VISIBLE_DEVICES\n")

    assert (ended.code, ended.out) == (0, "1\n")
    assert "in use by" not in ended.err


@pytest.mark.parametrize("words", [[], ["--gpus", "0-3"]])
def test_a_lost_gpu_is_not_used(stoker: Stoker, words: list[str]) -> None:
    stoker.box.lose(2)
    meet = "until [ $(ls | grep -c ^at) -ge 3 ]; do sleep 0.01; done"

    lines = "".join(MARK.format(i, f"touch at{i}; {meet}") for i in range(6))
    ended = stoker.run(*words, lines=lines)

    assert ended.code == 0
    assert {mark.gpu for mark in marks(stoker)} == {"0", "1", "3"}
    assert "GPU 2 is lost" in ended.err


def test_a_gpu_lost_during_a_run_is_not_used_any_more(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0,1")
    assert process.stdin is not None
    process.stdin.write(MARK.format("first", "true").encode())
    process.stdin.flush()
    stoker.until(lambda: len(marks(stoker)) == 2)
    stoker.box.lose(0)
    assert process.stderr is not None
    assert b"GPU 0 is lost" in process.stderr.readline()

    ended = stoker.end(process, "".join(MARK.format(i, "true") for i in range(20)))

    assert ended.code == 0
    assert {mark.gpu for mark in marks(stoker)[2:]} == {"1"}


def test_two_runs_at_once_never_share_a_gpu(stoker: Stoker) -> None:
    names = "ab"
    runs = {}
    for name in names:
        jobs = "".join(MARK.format(f"{name}{i}", "sleep 0.02") for i in range(40))
        file = stoker.file(f"{name}.txt", jobs)
        runs[name] = stoker.start("run", file, stdin=subprocess.DEVNULL)

    codes = [stoker.end(run).code for run in runs.values()]

    seen = marks(stoker)
    assert (codes, len(seen)) == ([0, 0], 160)
    assert max(most_at_once(seen).values()) == 1


def test_two_runs_share_their_gpus_only_within_themselves(stoker: Stoker) -> None:
    first = stoker.start("run", "--gpus", "0", "-j", "2")
    assert first.stdin is not None
    first.stdin.write((MARK.format("a", UNTIL_GO) * 2).encode())
    first.stdin.flush()
    stoker.until(lambda: len(marks(stoker)) == 2)
    second = stoker.start("run", "--gpus", "0,1")
    assert second.stdin is not None
    second.stdin.write((MARK.format("b", "true") * 4).encode())
    second.stdin.flush()
    stoker.until(lambda: len(marks(stoker)) == 10)
    stoker.file("go", "")

    assert (stoker.end(first).code, stoker.end(second).code) == (0, 0)
    assert {mark.gpu for mark in marks(stoker) if mark.name == "b"} == {"1"}
    assert most_at_once(marks(stoker))["0"] == 2


def test_a_waiting_run_gets_the_gpu_when_the_other_ends(stoker: Stoker) -> None:
    first = stoker.start("run", "--gpus", "0+1")
    assert first.stdin is not None
    first.stdin.write(b"touch holds; until [ -e go ]; do sleep 0.01; done\n")
    first.stdin.flush()
    stoker.until((stoker.work / "holds").exists)
    second = stoker.start("run", "--gpus", "1", "--json")
    assert second.stdin is not None
    second.stdin.write(b"touch second\n")
    second.stdin.close()
    second.stdin = None

    stoker.file("go", "")
    assert stoker.end(first).code == 0
    assert stoker.end(second).code == 0
    assert (stoker.work / "second").exists()


def test_a_run_that_waits_for_more_input_holds_no_gpu(stoker: Stoker) -> None:
    idle = stoker.start("run", "--gpus", "0")
    assert idle.stdin is not None
    idle.stdin.write(b"touch ran\n")
    idle.stdin.flush()
    stoker.until((stoker.work / "ran").exists)

    assert stoker.run("--gpus", "0", lines="echo b\n").out == "b\n"
    assert stoker.end(idle).code == 0


def test_a_gpu_stays_held_while_a_job_lives_though_its_stoker_and_supervisor_are_dead(
    stoker: Stoker,
) -> None:
    process = stoker.start("run", "--gpus", "0")
    assert process.stdin is not None
    process.stdin.write(MARK.format("old", f"echo $$ > pid; {UNTIL_GO}").encode())
    process.stdin.flush()
    stoker.until(lambda: stoker.read("pid"))
    supervisor, cleaner = stoker.supervisor(process), stoker.cleaner(process)
    process.send_signal(signal.SIGSTOP)
    os.kill(cleaner, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(cleaner, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    process.kill()
    stoker.until(lambda: not stoker.is_alive(supervisor))
    assert stoker.is_alive(int(stoker.read("pid")[0]))

    other = stoker.start("run", "--gpus", "0,1")
    assert other.stdin is not None
    other.stdin.write((MARK.format("new", "true") * 20).encode())
    other.stdin.flush()
    stoker.until(lambda: len(marks(stoker)) == 41)
    assert {mark.gpu for mark in marks(stoker) if mark.name == "new"} == {"1"}
    stoker.file("go", "")

    assert stoker.end(other).code == 0
    stoker.until(lambda: len(marks(stoker)) == 42)
