"""Calls, runs and commands from Python that share a fake GPU: who was there beside whom."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import stoker
from integration.calls import (
    fail_beside_another,
    hold_too_much_for_two,
    report_training,
    train_for_a_while,
)
from stoker.errors import UsageError
from stoker.testing.state import GIB

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeMachine

Span = tuple[float, float]
RUNS = 5


@pytest.fixture(autouse=True)
def one_gpu(tmp_path: Path, fake_gpus: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one fake GPU of 24 GiB, and a home of one's own."""
    for name, value in fake_gpus(1, 24 * GIB).env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.chdir(tmp_path)


def were_together(spans: list[Span]) -> bool:
    """Tell whether any two overlap; those of one GPU to themselves never do."""
    ordered = sorted(spans)
    return any(after[0] < before[1] for before, after in itertools.pairwise(ordered))


def first_was_alone(spans: list[Span]) -> bool:
    first, *others = sorted(spans)
    return all(began >= first[1] for began, _ended in others)


def test_calls_of_a_map_share_when_the_first_has_shown_what_it_needs() -> None:
    with stoker.Executor(gpus="0") as executor:
        spans = list(executor.map(train_for_a_while, range(RUNS)))

    assert first_was_alone(spans)
    assert were_together(spans)


def test_what_is_declared_need_not_be_tried_first() -> None:
    with stoker.Executor(gpus="0", gpu_mem="5G") as executor:
        spans = list(executor.map(train_for_a_while, range(3)))

    assert not first_was_alone(spans)


def test_numbers_that_no_call_has_confuse_nobody() -> None:
    with stoker.Executor(gpus="0", share="auto", gpu_mem="5G") as executor:
        with pytest.raises(TypeError):
            executor.submit(train_for_a_while, threading.Lock())  # type: ignore[arg-type]
        spans = list(executor.map(train_for_a_while, range(2)))

    assert were_together(spans)


def test_a_call_that_ran_out_of_memory_beside_another_is_made_again() -> None:
    with stoker.Executor(gpus="0", share="always:2") as executor:
        assert list(executor.map(hold_too_much_for_two, range(2))) == [0, 1]


def test_a_call_that_failed_by_itself_beside_another_is_not_made_again(tmp_path: Path) -> None:
    with stoker.Executor(gpus="0", share="always:2") as executor:
        first, second = [executor.submit(fail_beside_another, number) for number in range(2)]
        assert first.exception() is None
        assert isinstance(second.exception(), LookupError)
    assert (tmp_path / "made-1").read_text() == "once "


def test_single_calls_share_only_if_their_executor_says_so() -> None:
    with stoker.Executor(gpus="0") as executor:
        spans = [
            future.result() for future in [executor.submit(train_for_a_while, n) for n in range(2)]
        ]
        assert not were_together(spans)
    with stoker.Executor(gpus="0", share="always:2") as executor:
        spans = [
            future.result() for future in [executor.submit(train_for_a_while, n) for n in range(2)]
        ]
        assert were_together(spans)


def test_a_map_that_does_not_share_has_a_gpu_for_each_call() -> None:
    with stoker.Executor(gpus="0", share="never") as executor:
        assert not were_together(list(executor.map(train_for_a_while, range(2))))


def test_a_sweep_over_a_function_shares() -> None:
    found = stoker.sweep(report_training, {"number": list(range(RUNS))}, gpus="0")

    spans = [(run.metrics["began"], run.metrics["ended"]) for run in found]
    assert len(spans) == RUNS
    assert first_was_alone(spans)
    assert were_together(spans)


def test_commands_share_if_they_are_asked_to() -> None:
    words = [sys.executable, "-m", "stoker.testing.train", "--mem", "5G", "--sm", "10"]
    commands = [[*words, "--seconds", "1.5", "--steps", "3"]] * 2

    def spans(share: str) -> list[Span]:
        jobs = stoker.run(commands, gpus="0", share=share, gpu_mem="5G")
        return [(job.started_at or 0.0, job.ended_at or 0.0) for job in jobs]

    assert were_together(spans("auto"))
    assert not were_together(spans("never"))


def test_what_cannot_be_is_refused_before_anything_starts() -> None:
    for share, gpu_mem, says in (
        ("maybe", None, "share: 'maybe' is not a sharing mode"),
        ("auto", "lots", "gpu_mem: 'lots' is not an amount of memory"),
        ("auto", "30G", "30.0 GiB of GPU memory, and the largest GPU here has 24.0 GiB"),
    ):
        with pytest.raises(UsageError, match=says):
            stoker.run(["true"], gpus="0", share=share, gpu_mem=gpu_mem)
