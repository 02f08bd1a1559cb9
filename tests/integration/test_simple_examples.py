"""Every example of simple_gpu_scheduler's README and of its author's article, typed as it stands there."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from integration.programs import door_env, shell

if TYPE_CHECKING:
    from conftest import Stoker

COMMANDS = """\
python train_model.py --lr 0.001 --output run_1
python train_model.py --lr 0.0005 --output run_2
python train_model.py --lr 0.0001 --output run_3
"""
# Each waits until three run, and tells what it was given.
TRAIN = """\
import os, sys, time
with open("started", "a") as file: file.write("x\\n")
while len(open("started").readlines()) < 3: time.sleep(0.01)
with open("runs", "a") as file:
    file.write(" ".join([os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:]]) + "\\n")
"""


def test_simple_example(stoker: Stoker) -> None:
    stoker.file("gpu_commands.txt", COMMANDS)
    stoker.file("train_model.py", TRAIN)

    ended = shell(stoker, "simple_gpu_scheduler --gpus 0 1 2 < gpu_commands.txt")

    assert ended.code == 0
    assert ended.out == (
        "Processing command `python train_model.py --lr 0.001 --output run_1` on gpu 2\n"
        "Processing command `python train_model.py --lr 0.0005 --output run_2` on gpu 1\n"
        "Processing command `python train_model.py --lr 0.0001 --output run_3` on gpu 0\n"
    )
    assert sorted(stoker.read("runs")) == [
        "0 --lr 0.0001 --output run_3",
        "1 --lr 0.0005 --output run_2",
        "2 --lr 0.001 --output run_1",
    ]


GRID = {
    f"--lr {lr} --batch_size {bs}"
    for lr, bs in itertools.product(("0.001", "0.0005", "0.0001"), (32, 64, 128))
}


@pytest.mark.parametrize(("samples", "count"), [("", 9), ("--n-samples 5 ", 5)])
def test_hyperparameter_search(stoker: Stoker, samples: str, count: int) -> None:
    stoker.file("train_dnn.py", TRAIN)

    ended = shell(
        stoker,
        'simple_hypersearch "python3 train_dnn.py --lr {lr} --batch_size {bs}" '
        f"{samples}-p lr 0.001 0.0005 0.0001 -p bs 32 64 128 | simple_gpu_scheduler --gpus 0,1,2",
    )

    assert ended.code == 0
    runs = [line.partition(" ") for line in stoker.read("runs")]
    assert len(runs) == len({run for _gpu, _, run in runs}) == count
    assert {run for _gpu, _, run in runs} <= GRID
    assert {gpu for gpu, _, _run in runs} == {"0", "1", "2"}


def follows_to_its_end(stoker: Stoker, name: str) -> bool:
    """Whether a tail has the file open, and has passed over what is in it."""
    path = stoker.work / name
    for pid, words in stoker.processes().items():
        for fd in os.listdir(f"/proc/{pid}/fd") if words.startswith("tail") else ():
            if os.readlink(f"/proc/{pid}/fd/{fd}") == str(path):
                with open(f"/proc/{pid}/fdinfo/{fd}") as file:
                    return int(file.readline().split()[1]) == path.stat().st_size
    return False


def make_program(stoker: Stoker, name: str, lines: str) -> None:
    """Give the user a command of that name."""
    folder = stoker.work.parent / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
    (folder / name).chmod(0o755)
    stoker.env["PATH"] = f"{folder}:{stoker.env['PATH'].removeprefix(f'{folder}:')}"


def test_simple_scheduler_for_jobs(stoker: Stoker) -> None:
    make_program(stoker, "my_command_with", "echo $CUDA_VISIBLE_DEVICES")
    make_program(stoker, "and", 'echo "$1 on $(cat)"')
    shell(stoker, "touch gpu.queue; echo touch written-before >> gpu.queue")
    queue = stoker.adopt(
        subprocess.Popen(
            ["/bin/bash", "-c", "tail -f -n 0 gpu.queue | simple_gpu_scheduler --gpus 0,1,2"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=door_env(stoker),
            cwd=stoker.work,
            start_new_session=True,
        )
    )
    stoker.until(lambda: follows_to_its_end(stoker, "gpu.queue"), "tail has found the end")

    shell(stoker, 'echo "my_command_with | and stuff > logfile" >> gpu.queue')

    stoker.until(lambda: stoker.read("logfile") == ["stuff on 2"], "it runs as it was submitted")
    assert not (stoker.work / "written-before").exists()
    os.killpg(queue.pid, signal.SIGTERM)
    stoker.end(queue)


def test_reading_commands_from_a_fifo(stoker: Stoker) -> None:
    ended = shell(
        stoker,
        "mkfifo queue; (echo 'echo one > first'; echo 'echo two > second') > queue &"
        " simple_gpu_scheduler --gpus 0 1 < queue",
    )

    assert (ended.code, ended.out.count("Processing command")) == (0, 2)
    assert (stoker.read("first"), stoker.read("second")) == (["one"], ["two"])


def test_further_details_see_their_help(stoker: Stoker) -> None:
    assert "--gpus" in shell(stoker, "simple_gpu_scheduler -h").out
    assert "--n-samples" in shell(stoker, "simple_hypersearch -h").out
