"""`stoker demo --web`: serves the web page with jobs on fake GPUs until it is stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

from stoker.cli.main import main
from stoker.client.client import Client
from stoker.core.lifecycle import State
from stoker.errors import StokerError
from stoker.wire import NewJob, Submission, WebOrder

_TRAIN = "{python} -m stoker.testing.train"
_NAMES = ("resnet", "vit-small", "unet", "gpt-nano", "clip", "mixer")
_PROJECTS = ("vision", "language")
_AHEAD = 12
_PRIORITY_OF_SWEEP = 5
# Runs with 30G run out of memory: the GPUs have 24G.
_SWEEP = """\
name: demo
command: {train} --lr {{lr}} --dropout {{dropout}} --mem {{mem}}G --seconds 4 --steps 30
method: random
samples: 32
parameters:
  lr: loguniform(1e-4, 1e-1)
  dropout: uniform(0, 0.5)
  mem: [4, 8, 12, 30]
metric: {{name: val_acc, goal: maximize}}
"""
_LOOK_EACH_S = 1.0
_FAIL_EACH = 7
_LARGE_EACH = 8


def show(folder: str, gpus: int) -> int:
    """Open the page, print its link, and add jobs until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: stopped.set())
    _check(main(["daemon", "start", "--gpus", f"0-{gpus - 1}"]))
    try:
        with Client() as client:
            client.web(WebOrder(action="open"))
            _check(main(["web"]))
            _submit_sweep(folder)
            print("The queue is at work on fake GPUs. Ctrl-C ends it.", flush=True)
            for job in _jobs():
                while client.status().counts.get(State.WAITING, 0) >= _AHEAD:
                    if stopped.wait(_LOOK_EACH_S):
                        return 0
                client.add(job)
                if stopped.is_set():
                    return 0
    finally:
        main(["daemon", "stop", "--kill"])
    raise AssertionError("there is always another job")


def _check(code: int) -> None:
    if code:
        raise StokerError("the demo cannot continue: see the message above")


def _submit_sweep(folder: str) -> None:
    os.chdir(folder)
    with open("sweep.yaml", "w", encoding="utf-8") as file:
        file.write(_SWEEP.format(train=_train()))
    _check(main(["config", "brake", "0"]))  # its runs fail on purpose
    _check(main(["sweep", "-f", "sweep.yaml", "-p", str(_PRIORITY_OF_SWEEP)]))


def _train() -> str:
    return _TRAIN.format(python=os.path.basename(sys.executable))


def _jobs() -> Iterator[Submission]:
    """Yield jobs without end: most share a GPU, some need several, and some fail."""
    number = 0
    while True:
        number += 1
        memory, seconds = 3 + number % 5 * 2, 12 + number % 4 * 8
        failure = " --fail-at 25" if number % _FAIL_EACH == 0 else ""
        command = (
            f"{_train()} --mem {memory - 2}G --seconds {seconds} --steps 60 --grow 30M"
            f" --sm {15 + number % 3 * 10}{failure}"
        )
        is_large = number % _LARGE_EACH == 0
        yield Submission(
            request_id="",
            jobs=[NewJob(command=command, name=f"{_NAMES[number % len(_NAMES)]}-{number}")],
            cwd=os.getcwd(),
            env=dict(os.environ),
            project=_PROJECTS[number % len(_PROJECTS)],
            priority=number % 3,
            gpus=2 if is_large else 1,
            share=None if is_large else "auto",
            gpu_mem_bytes=None if is_large else memory << 30,
        )
