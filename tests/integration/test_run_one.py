"""`stoker run -- CMD`, `-g N`, and lists that are programs."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from patience import PATIENCE_S

if TYPE_CHECKING:
    from conftest import Stoker


def test_one_command_has_a_gpu_and_its_output_and_exit_code_are_the_runs(stoker: Stoker) -> None:
    ended = stoker.run(
        "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $1; exit 7", "-", "a b"
    )

    assert (ended.code, ended.out) == (7, "2 a b\n")
    assert ended.err.startswith("stoker: exit 7: sh -c ")
    assert ended.err.count("\n") == 1
    assert stoker.run("--gpus", "2", "--", "echo one | cat").out == "one\n"


def test_a_command_that_a_signal_ends_has_the_shells_exit_code(stoker: Stoker) -> None:
    assert stoker.run("--gpus", "0", "--", "kill -9 $$").code == 128 + signal.SIGKILL


def test_one_interrupt_ends_one_command(stoker: Stoker) -> None:
    fifo = stoker.work / "fifo"
    os.mkfifo(fifo)
    process = stoker.start(
        "run",
        "--gpus",
        "0",
        "--",
        "trap 'echo bye; exit 3' TERM; echo > fifo; while :; do sleep 0.01; done",
        stdin=subprocess.DEVNULL,
    )
    fifo.read_bytes()

    process.send_signal(signal.SIGINT)
    out, _err = process.communicate(timeout=PATIENCE_S)

    assert out == b"bye\n"
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        (["-g", "2"], ["0,1", "2,3"]),
        (["-g", "3"], ["0,1,2"]),
        (["-g", "2", "--gpus", "3,1,0"], ["3,1"]),
        (["-g", "2", "--gpus", "0+2"], ["0,2"]),
        (["-g", "1", "--gpus", "3"], ["3"]),
    ],
)
def test_g_is_the_number_of_gpus_of_each_command(
    stoker: Stoker, words: list[str], devices: list[str]
) -> None:
    lines = "echo $CUDA_VISIBLE_DEVICES\n" * len(devices)

    # Each slot once: a command waits until all have begun.
    barrier = "".join(
        f"touch {n}; until [ $(ls 0 1 2>/dev/null | wc -l) = {len(devices)} ]; do sleep 0.01; done; {line}\n"
        for n, line in enumerate(lines.splitlines())
    )
    ended = stoker.run(*words, lines=barrier)

    assert ended.code == 0, ended
    assert sorted(ended.out.split()) == sorted(devices)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-g", "0,1"], "-g is how many GPUs each command gets: name GPUs with --gpus 0,1"),
        (["-g", "0-3"], "name GPUs with --gpus 0-3"),
        (["-g", "0"], "-g 0: each command gets 1 GPU or more; stoker add -g 0"),
        (["-g", "5"], "-g 5: there are only 4 GPUs: 0, 1, 2, 3"),
        (["-g", "2", "--gpus", "0+1+2"], "-g 2: --gpus names slots of another size"),
        (["python", "train.py"], "to run one command: stoker run -- python train.py"),
        (
            ["train.py"],
            "train.py is a program, not a list of commands: stoker run -- python train.py",
        ),
        (
            ["job"],
            "job begins with #!, so it is one program, not a list of commands: stoker run -- ./job",
        ),
        (["--"], "no command follows --"),
        (["list", "--", "true"], "give one of a list, list, and a command after --"),
        (["-j", "2", "--", "true"], "-j is for a list of commands"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(
    stoker: Stoker, words: list[str], message: str
) -> None:
    stoker.file("train.py", "print(1)\n")
    stoker.file("job", "#!/bin/bash\necho 1\n")
    stoker.file("list", "true\n")

    ended = stoker.run(*words)

    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1


def test_a_byte_order_mark_is_no_part_of_the_first_command(stoker: Stoker) -> None:
    assert stoker.run("--gpus", "0", lines=b"\xef\xbb\xbfecho one\n").out == "one\n"


@pytest.mark.skipif(
    os.path.basename(os.path.realpath("/bin/sh")) == "bash", reason="/bin/sh is bash here"
)
def test_a_line_for_bash_is_explained_once(stoker: Stoker) -> None:
    lines = "for i in {1..3}; do echo $i; done\n[[ 1 = 1 ]]\n"

    ended = stoker.run("--gpus", "0", lines=lines)

    assert ended.out == "{1..3}\n"
    assert "command 1: /bin/sh does not know {1..3}: --shell bash does\n" in ended.err
    assert ended.err.count("--shell bash") == 1
    assert stoker.run("--gpus", "0", "--shell", "bash", lines=lines).out == "1\n2\n3\n"
