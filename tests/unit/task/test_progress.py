"""The progress of an executor's calls."""

from __future__ import annotations

import pytest

from stoker.task.progress import Counts, Progress


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Screen:
    """A view that remembers what was drawn."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_closed = False

    def draw(self, counts: Counts, text: str) -> None:
        self.texts.append(text)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_calls_are_counted_and_the_rest_is_estimated(clock: Clock, screen: Screen) -> None:
    progress = Progress(lambda: screen, clock)
    for number in range(4):
        progress.on_submit()
        progress.on_start(number)
    clock.now_s = 10.0
    progress.on_end(0, is_good=True, retried=False)
    assert screen.texts[-1] == "1/4, 3 running, 10s, about 30s left"
    progress.on_end(1, is_good=False, retried=True)
    progress.on_start(1)
    for number in (1, 2):
        progress.on_end(number, is_good=False, retried=False)
    clock.now_s = 20.0
    progress.on_end(3, is_good=True, retried=False)
    assert screen.texts[-1] == "4/4, 2 failed, 20s"
    progress.close()
    assert screen.is_closed


def test_many_ends_are_drawn_a_few_times_a_second_and_the_last_one_always(
    clock: Clock, screen: Screen
) -> None:
    progress = Progress(lambda: screen, clock)
    for _number in range(1000):
        progress.on_submit()
    for number in range(1000):
        clock.now_s += 0.001
        progress.on_end(number, is_good=True, retried=False)
    assert len(screen.texts) < 20
    assert screen.texts[-1].startswith("1,000/1,000")


def test_a_terminal_that_has_gone_does_not_end_the_calls(clock: Clock) -> None:
    class Gone(Screen):
        def draw(self, counts: Counts, text: str) -> None:
            raise OSError(5, "Input/output error")

    progress = Progress(Gone, clock)
    progress.on_submit()
    progress.on_end(1, is_good=True, retried=False)
    progress.close()


def test_without_a_call_nothing_is_drawn(clock: Clock, screen: Screen) -> None:
    Progress(lambda: screen, clock).close()
    assert screen.texts == []
