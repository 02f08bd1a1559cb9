"""Functions that tests have called in fresh processes, which import this module."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import stoker


def visible(base: int, *, power: int = 1) -> tuple[int, str]:
    return base**power, os.environ["CUDA_VISIBLE_DEVICES"]


def fail(text: str) -> NoReturn:
    raise LookupError(text)


class Awkward(Exception):  # noqa: N818 - cannot be made from what it keeps
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_awkwardly() -> NoReturn:
    raise Awkward(1, 2)


def return_lock() -> object:
    return threading.Lock()


def wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def train(lr: float, opt: Mapping[str, str], seed: int) -> dict[str, float]:
    print("training with", opt["name"])
    if str(lr) == os.environ.get("FAIL_AT"):
        raise ValueError("too fast")
    for step in range(2):
        stoker.report(step, loss=lr / (step + 1))
    return {"acc": 1 - lr}


class Train(stoker.Task):
    def required_env(self) -> Mapping[str, str]:
        with open(os.path.join(self.work_dir, "asked"), "w") as file:
            file.write(str(self.config))
        if self.config["size"] == 2:
            raise KeyError("no such thing")
        self.asked_in = os.getpid()
        return {"SIZE": str(self.config["size"])}

    def main(self) -> Mapping[str, Any]:
        return {
            "asked_in": self.asked_in,
            "size": int(os.environ["SIZE"]),
            "gpu": os.environ["CUDA_VISIBLE_DEVICES"],
            "is_home": os.environ["STOKER_RUN_DIR"] == self.work_dir,
        }


def train_for_a_while(number: int) -> tuple[float, float]:
    """Train in 5 GiB of a fake GPU, and tell from when to when."""
    from stoker.testing.train import main

    began = time.time()
    main(["--mem", "5G", "--sm", "10", "--seconds", "1.5", "--steps", "3"])
    return began, time.time()


def hold_too_much_for_two(number: int) -> int:
    """Hold 13 GiB of a fake GPU until another process has tried the same in vain."""
    from stoker.testing import state
    from stoker.testing.train import Device, OutOfMemoryError

    device = Device(state.from_env(), 0)
    try:
        device.allocate(13 * state.GIB)
    except OutOfMemoryError:
        open("ran-out", "w").close()
        raise
    wait_for("ran-out")
    return number


def fail_beside_another(number: int) -> None:
    with open(f"made-{number}", "a") as file:
        file.write("once ")
    wait_for(f"made-{1 - number}")
    if number == 1:
        raise LookupError("by itself")


def report_training(number: int) -> dict[str, float]:
    began, ended = train_for_a_while(number)
    return {"began": began, "ended": ended}


def power(base: int, exponent: int) -> tuple[int, str]:
    print("on", os.environ["CUDA_VISIBLE_DEVICES"])
    return base**exponent, os.environ["CUDA_VISIBLE_DEVICES"]


class Waits:
    """Waits for a file; after a preemption it knows how often it was interrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.interrupted = 0

    def __call__(self) -> int:
        (self.folder / f"began-{self.interrupted}").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.01)
        return self.interrupted

    def checkpoint(self) -> Any:
        import submitit

        self.interrupted += 1
        return submitit.helpers.DelayedSubmission(self)
