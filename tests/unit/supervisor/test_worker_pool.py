"""Workers come when they are asked for, and go when nobody has asked for long."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_S
from stoker.supervisor.slot_queues import Attempt, AttemptContext, SlotQueue
from stoker.supervisor.warm_worker import NoWarmStartError
from stoker.supervisor.worker_pool import WorkerPool
from stoker.warm.messages import ForkRequest

COOKIE_BYTES = 64
A_WHILE_S = 600.0


class Harness:
    """A worker pool with a clock of its own."""

    def __init__(self, folder: Path, idle_s: float) -> None:
        self.now = 0.0
        self.poll = select.epoll()
        self.told: list[tuple[str, int]] = []
        self.resumed: list[str] = []
        self.context = AttemptContext({b"PATH": os.environb[b"PATH"]}, str(folder), "/bin/sh")
        self.place = SlotQueue({}, [])
        self.worker_pool = WorkerPool(
            self.poll,
            lambda report: self.told.append(tuple(json.loads(report)[:2])),
            lambda attempt: self.resumed.append(attempt.key),
            COOKIE_BYTES,
            idle_s=idle_s,
            clock=lambda: self.now,
        )

    def attempt(self, module: str) -> Attempt:
        words = [sys.executable, "-c", "pass"]
        warm = ForkRequest(words, 1, "", [module])
        return Attempt("1.1", self.context, self.place, words, None, None, warm)

    def ask(self, module: str) -> None:
        """Have a worker for a module, or the word that there will be none."""
        if self.worker_pool.must_wait(self.attempt(module)):
            before = len(self.resumed)
            self.hear(lambda: len(self.resumed) > before)

    def hear(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            events = self.poll.poll(PATIENCE_S)
            assert events, "no worker says anything"
            for fd, _event in events:
                self.worker_pool.receive(fd)

    def fork(self, module: str) -> None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            env = self.context.env
            self.worker_pool.fork(self.attempt(module), dict(env), devnull, [])
        finally:
            os.close(devnull)

    def pids(self, word: str) -> list[int]:
        return [pid for each, pid in self.told if each == word]


@pytest.fixture
def make_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Harness]]:
    monkeypatch.chdir(tmp_path)  # the pool leaves the folder in which it has started a worker
    harnesses: list[Harness] = []

    def make(idle_s: float = A_WHILE_S) -> Harness:
        harnesses.append(Harness(tmp_path, idle_s))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.worker_pool.close()
        harness.poll.close()
        for pid in harness.pids("warmed"):
            os.waitpid(pid, 0)


def test_an_idle_worker_ends(make_harness: Callable[..., Harness]) -> None:
    harness = make_harness(idle_s=0.0)
    harness.ask("csv")
    harness.hear(lambda: bool(harness.pids("cooled")))

    assert harness.pids("cooled") == harness.pids("warmed")
    assert harness.worker_pool.must_wait(harness.attempt("csv"))  # for a new one


def test_the_least_recently_used_worker_ends_first(
    make_harness: Callable[..., Harness],
) -> None:
    harness = make_harness()
    for module in ("csv", "json", "random", "uuid"):
        harness.now += 1
        harness.ask(module)
    harness.now += 1
    harness.fork("csv")
    harness.now += 1
    harness.ask("shlex")

    csv, json, *_others = harness.pids("warmed")
    assert harness.pids("cooled") == [json]
    assert not harness.worker_pool.must_wait(harness.attempt("csv"))
    assert csv not in harness.pids("cooled")


def test_a_failed_import_is_tried_again_after_a_while(
    make_harness: Callable[..., Harness], tmp_path: Path
) -> None:
    harness = make_harness()
    harness.ask("no_such_module")
    harness.now += A_WHILE_S - 1
    assert not harness.worker_pool.must_wait(harness.attempt("no_such_module"))
    with pytest.raises(NoWarmStartError, match="No module named 'no_such_module'"):
        harness.fork("no_such_module")

    (tmp_path / "no_such_module.py").write_text("")
    harness.now += 2
    harness.ask("no_such_module")
    harness.fork("no_such_module")
    assert len(harness.pids("warmed")) == 1
