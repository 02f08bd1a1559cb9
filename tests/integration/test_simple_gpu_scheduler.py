"""The door of simple_gpu_scheduler: what its users know, and what was mended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Stoker


def start(stoker: Stoker, *words: str, program: str = "gpu_scheduler") -> subprocess.Popen[bytes]:
    """Start the program by its own name, as pip installs it."""
    path = os.path.join(os.path.dirname(sys.executable), f"simple_{program}")
    process = subprocess.Popen(
        [path, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=stoker.env,
        cwd=stoker.work,
    )
    return stoker.adopt(process)


def run(stoker: Stoker, *gpus: str, lines: str) -> Ended:
    return stoker.end(start(stoker, "--gpus", *gpus), lines)


def announced(ended: Ended) -> list[str]:
    return [line for line in ended.out.splitlines() if line.startswith("Processing command")]


def test_the_example_of_its_readme(stoker: Stoker) -> None:
    stoker.file("train_model.py", "import time; time.sleep(0.3)")
    commands = [
        f"python train_model.py --lr {lr} --output run_{n}"
        for n, lr in enumerate(("0.001", "0.0005", "0.0001"), 1)
    ]

    ended = run(stoker, "0", "1", "2", lines="".join(f"{command}\n" for command in commands))

    assert ended.code == 0
    assert announced(ended) == [
        f"Processing command `{command}` on gpu {gpu}"
        for command, gpu in zip(commands, "210", strict=True)
    ]


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        (["0", "1", "2"], {"0", "1", "2"}),
        (["0,1,2"], {"0", "1", "2"}),
        (["0,1", "2,3"], {"0,1", "2,3"}),
        (["GPU-1b2c", "MIG-7"], {"GPU-1b2c", "MIG-7"}),
        (["-1"], {"-1"}),
        (["0, 1"], {"0", "1"}),
        (["0,1,"], {"0", "1"}),
        (["0 1 2"], {"0", "1", "2"}),
    ],
)
def test_slots_are_what_the_words_say(stoker: Stoker, words: list[str], slots: set[str]) -> None:
    # Each command waits until all slots have one, so that none can be left out.
    wait = (
        f"echo $CUDA_VISIBLE_DEVICES >> seen; until [ $(wc -l < seen) = {len(slots)} ]; do :; done"
    )

    ended = stoker.end(start(stoker, "--gpus", *words), f"{wait}\n" * len(slots))

    assert ended.code == 0
    assert sorted(stoker.read("seen")) == sorted(slots)


def test_two_jobs_share_a_gpu_that_is_named_twice(stoker: Stoker) -> None:
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; echo $CUDA_VISIBLE_DEVICES >> seen"

    ended = run(stoker, "0", "0", lines=f"{meet.format('a', 'b')}\n{meet.format('b', 'a')}\n")

    assert (ended.code, stoker.read("seen")) == (0, ["0", "0"])


def test_the_gpu_released_last_is_used_first(stoker: Stoker) -> None:
    hold = "until [ -e {} ]; do sleep 0.01; done"
    lines = f"{hold.format('go')}\n{hold.format('end')}\n{hold.format('end')}\ntouch end\n"
    process = start(stoker, "--gpus", "0", "1", "2")
    assert process.stdin is not None
    process.stdin.write(lines.encode())
    process.stdin.flush()
    stoker.until(lambda: len(stoker.processes()) > 3, "three run")
    (stoker.work / "go").touch()

    ended = stoker.end(process)

    assert announced(ended)[3] == "Processing command `touch end` on gpu 2"


def test_a_line_starts_when_it_arrives(stoker: Stoker) -> None:
    process = start(stoker, "--gpus", "0,1,2")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"echo my_command | cat > logfile\n")
    process.stdin.flush()

    assert process.stdout.readline().startswith(b"Processing command `echo my_command")
    stoker.until(lambda: stoker.read("logfile") == ["my_command"], "the redirection worked")
    assert stoker.end(process).code == 0


def test_failures_are_told_and_make_the_exit_status(stoker: Stoker) -> None:
    ended = run(stoker, "0", lines="true\n\n# a comment\nexit 3\ncat > swallow\ntrue\n")

    assert ended.code == 1
    assert len(announced(ended)) == 4
    assert "exit 3" in ended.err
    assert "--resume" not in ended.err  # which is no option of this door


def test_without_gpus_the_usage_is_wrong(stoker: Stoker) -> None:
    for words in ([], ["--gpus"], ["--gpus", ","]):
        ended = stoker.end(start(stoker, *words), "touch ran\n")

        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert ended.err.startswith("simple_gpu_scheduler: ")
    assert not (stoker.work / "ran").exists()


def test_a_signal_lets_commands_finish(stoker: Stoker) -> None:
    process = start(stoker, "--gpus", "0")
    assert process.stdin is not None
    process.stdin.write(
        b"touch up; until [ -e go ]; do sleep 0.01; done; touch ended\ntouch next\n"
    )
    process.stdin.flush()
    stoker.until((stoker.work / "up").exists, "it runs")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert b"starting no more" in process.stderr.readline()
    (stoker.work / "go").touch()

    assert stoker.end(process).code == 1
    assert (stoker.work / "ended").exists()
    assert not (stoker.work / "next").exists()


def test_the_help_names_the_native_command(stoker: Stoker) -> None:
    for program in ("gpu_scheduler", "hypersearch"):
        ended = stoker.end(start(stoker, "-h", program=program))

        assert ended.code == 0
        assert "stoker run --gpus 0,1,2" in ended.out


def test_short_commands_are_announced_once_each_with_the_gpu_they_had(stoker: Stoker) -> None:
    lines = [f"echo {number} $CUDA_VISIBLE_DEVICES >> seen" for number in range(60)]

    ended = run(stoker, "0", "1", "2", "3", lines="".join(f"{line}\n" for line in lines))

    gpus = dict(line.split() for line in stoker.read("seen"))
    assert sorted(announced(ended)) == sorted(
        f"Processing command `{line}` on gpu {gpus[str(number)]}"
        for number, line in enumerate(lines)
    )


def test_a_quote_over_several_lines_is_explained(stoker: Stoker) -> None:
    lines = "echo 'one\ntwo'\ntrue # it's fine\n"
    hint = (
        "stoker: command 1 ends inside a quote: end the lines of a longer command in \\,"
        " or end each command with a NUL byte and use stoker run -0\n"
    )

    assert run(stoker, "0", lines=lines).err.count(hint) == 1
    assert stoker.run("--gpus", "0", lines=lines).err.count(hint) == 1
    assert "inside a quote" not in run(stoker, "0", lines="false 'a b'\nfalse # it's\n").err


def test_a_command_of_several_lines_may_end_with_a_nul_byte(stoker: Stoker) -> None:
    ended = stoker.run("-0", "--gpus", "0", lines="echo 'one\ntwo' > out\0true\0")

    assert ended.code == 0, ended.err
    assert stoker.read("out") == ["one", "two"]
