"""Workers come when they are asked for, and go when nobody has asked for long."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_S
from stoker.executors.shepherd.hearth import ColdError, Hearth
from stoker.executors.shepherd.places import Attempt, Context, Place
from stoker.executors.warm.order import Warm

COOKIE_BYTES = 64
A_WHILE_S = 600.0


class Rig:
    """A hearth with a clock of its own."""

    def __init__(self, folder: Path, idle_s: float) -> None:
        self.now = 0.0
        self.poll = select.epoll()
        self.told: list[tuple[str, int]] = []
        self.resumed: list[str] = []
        self.context = Context({b"PATH": os.environb[b"PATH"]}, str(folder), "/bin/sh")
        self.place = Place({}, [])
        self.hearth = Hearth(
            self.poll,
            lambda word, pid, *_more: self.told.append((word, pid)),
            lambda attempt: self.resumed.append(attempt.key),
            COOKIE_BYTES,
            idle_s=idle_s,
            clock=lambda: self.now,
        )

    def attempt(self, module: str) -> Attempt:
        words = [sys.executable, "-c", "pass"]
        warm = Warm(words, 1, "", [module])
        return Attempt("1.1", self.context, self.place, words, None, None, warm)

    def ask(self, module: str) -> None:
        """Have a worker for a module, or the word that there will be none."""
        if self.hearth.must_wait(self.attempt(module)):
            before = len(self.resumed)
            self.hear(lambda: len(self.resumed) > before)

    def hear(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            events = self.poll.poll(PATIENCE_S)
            assert events, "no worker says anything"
            for fd, _event in events:
                self.hearth.hear(fd)

    def fork(self, module: str) -> None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            env = self.context.env
            self.hearth.fork(self.attempt(module), dict(env), devnull, [])
        finally:
            os.close(devnull)

    def pids(self, word: str) -> list[int]:
        return [pid for each, pid in self.told if each == word]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(idle_s: float = A_WHILE_S) -> Rig:
        rigs.append(Rig(tmp_path, idle_s))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.hearth.close()
        rig.poll.close()
        for pid in rig.pids("warmed"):
            os.waitpid(pid, 0)


def test_a_worker_that_has_nothing_to_do_ends(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(idle_s=0.0)
    rig.ask("csv")
    rig.hear(lambda: bool(rig.pids("cooled")))

    assert rig.pids("cooled") == rig.pids("warmed")
    assert rig.hearth.must_wait(rig.attempt("csv"))  # for a new one


def test_the_worker_that_was_used_longest_ago_makes_room(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    for module in ("csv", "json", "random", "uuid"):
        rig.now += 1
        rig.ask(module)
    rig.now += 1
    rig.fork("csv")
    rig.now += 1
    rig.ask("shlex")

    csv, json, *_others = rig.pids("warmed")
    assert rig.pids("cooled") == [json]
    assert not rig.hearth.must_wait(rig.attempt("csv"))
    assert csv not in rig.pids("cooled")


def test_what_could_not_be_imported_is_tried_again_after_a_while(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make_rig()
    rig.ask("no_such_module")
    rig.now += A_WHILE_S - 1
    assert not rig.hearth.must_wait(rig.attempt("no_such_module"))
    with pytest.raises(ColdError, match="No module named 'no_such_module'"):
        rig.fork("no_such_module")

    (tmp_path / "no_such_module.py").write_text("")
    rig.now += 2
    rig.ask("no_such_module")
    rig.fork("no_such_module")
    assert len(rig.pids("warmed")) == 1
