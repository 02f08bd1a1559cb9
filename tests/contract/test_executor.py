"""What every executor promises the engine, over all executors."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter

import pytest

from contract.executor_harness import FOREVER, Harness
from stoker.executors.contract import (
    Ended,
    Finished,
    Held,
    Launch,
    Lost,
    Refused,
    Released,
    Revoked,
    Started,
    Unheld,
)
from stoker.testing.executor import FakeExecutor


@pytest.mark.parametrize("code", [0, 1, 7, 127, 255])
def test_an_exit_code_is_reported_exactly(harness: Harness, code: int) -> None:
    harness.sh("1.1", f"exit {code}")

    assert harness.ended("1.1").status == code << 8
    assert harness.started("1.1").pid > 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_by_signal_is_reported_exactly(harness: Harness, signum: int) -> None:
    harness.sh("1.1", f"kill -{int(signum)} $$")

    status = harness.ended("1.1").status
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signum


def test_a_start_is_reported_before_its_end_with_ordered_times(harness: Harness) -> None:
    before = time.time_ns() // 1000
    harness.sh("1.1", "exit 0")
    ended = harness.ended("1.1")
    started = harness.started("1.1")

    assert harness.reports.index(started) < harness.reports.index(ended)
    assert before <= started.at_us <= ended.at_us <= time.time_ns() // 1000 + 1


def test_attempts_of_one_slot_run_one_after_the_other_in_order(harness: Harness) -> None:
    keys = [f"{number}.1" for number in range(1, 30)]
    harness.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 0"]) for key in keys])
    harness.ended(keys[-1])

    assert [report.key for report in harness.of(Started)] == keys
    assert [report.key for report in harness.of(Ended)] == keys


def test_an_attempt_starts_only_when_the_one_before_it_has_ended(harness: Harness) -> None:
    harness.sh("1.1", FOREVER)
    harness.sh("2.1", FOREVER)
    harness.sh("3.1", "exit 3", 1)
    harness.ended("3.1")
    harness.started("1.1")
    harness.reach()
    assert [report.key for report in harness.of(Started) if report.key == "2.1"] == []

    harness.executor.kill("1.1")
    harness.ended("1.1")
    harness.started("2.1")


def test_a_launch_on_several_slots_takes_them_all(harness: Harness) -> None:
    harness.sh("1.1", FOREVER, 0, 1)
    harness.sh("2.1", FOREVER, 0)
    harness.sh("3.1", FOREVER, 1)
    harness.started("1.1")
    harness.reach()
    assert [report.key for report in harness.of(Started)] == ["1.1"]

    harness.executor.kill("1.1")
    harness.started("2.1")
    harness.started("3.1")
    harness.executor.kill("2.1")
    harness.ended("2.1")
    harness.sh("4.1", "exit 0", 0)
    harness.ended("4.1")
    harness.executor.kill("3.1")
    harness.ended("3.1")
    harness.sh("5.1", "exit 5", 1, 0)
    assert harness.ended("5.1").status == 5 << 8


def test_launches_without_a_slot_start_at_once(harness: Harness) -> None:
    harness.sh("9.1", FOREVER, 0)
    keys = [f"{number}.1" for number in range(1, 6)]
    harness.executor.launch([Launch(key, (), ["/bin/sh", "-c", FOREVER]) for key in keys])
    for key in keys:
        harness.started(key)
    assert harness.of(Ended) == []

    for key in [*keys, "9.1"]:
        harness.executor.kill(key)
        assert harness.ended(key).status == signal.SIGKILL


def test_a_start_is_reported_with_the_time_since_boot(harness: Harness) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    harness.sh("1.1", FOREVER)
    started = harness.started("1.1")
    if isinstance(harness.executor, FakeExecutor):
        assert started.at_s == pytest.approx(started.at_us / 1e6)
    else:
        assert before - 0.02 <= started.at_s <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_every_launch_ends_in_exactly_one_way(harness: Harness) -> None:
    keys = [f"{number}.1" for number in range(1, 41)]
    for number, key in enumerate(keys):
        harness.sh(key, FOREVER if number % 8 == 0 else f"exit {number % 3}", number % 2)
    for key in keys[10:20]:
        harness.executor.revoke(key)
    over: Counter[str] = Counter()

    def count() -> bool:
        over.clear()
        over.update(
            report.key
            for report in harness.reports
            if isinstance(report, (Ended, Refused, Revoked, Lost))
        )
        for report in harness.of(Started):
            if not over[report.key]:
                harness.executor.kill(report.key)
        return len(over) == len(keys)

    harness.until(count)
    harness.executor.finish()
    harness.until(lambda: bool(harness.of(Finished)))

    assert Counter(keys) == over
    assert {report.key for report in harness.of(Revoked)} <= set(keys[10:20])


def test_a_revoked_attempt_never_runs(harness: Harness) -> None:
    harness.sh("1.1", FOREVER)
    harness.sh("2.1", "exit 0")
    harness.sh("3.1", "exit 0")
    harness.executor.revoke("2.1")
    harness.until(lambda: bool(harness.of(Revoked)))
    harness.executor.kill("1.1")
    harness.ended("3.1")

    assert harness.of(Revoked) == [Revoked("2.1")]
    assert [report.key for report in harness.of(Started)] == ["1.1", "3.1"]


def test_a_running_attempt_is_not_revoked(harness: Harness) -> None:
    harness.sh("1.1", FOREVER)
    harness.started("1.1")
    harness.executor.revoke("1.1")
    harness.executor.revoke("9.9")
    harness.reach()
    assert harness.of(Revoked) == []

    harness.executor.kill("1.1")
    assert harness.ended("1.1").status == signal.SIGKILL


def test_a_signal_reaches_the_job(harness: Harness) -> None:
    harness.sh("1.1", FOREVER)
    harness.started("1.1")
    harness.executor.signal("1.1", signal.SIGTERM)

    assert harness.ended("1.1").status == signal.SIGTERM


def test_signals_and_kills_of_unknown_attempts_do_nothing(harness: Harness) -> None:
    harness.sh("1.1", "exit 0")
    harness.ended("1.1")
    for key in ("1.1", "9.9"):
        harness.executor.kill(key)
        harness.executor.signal(key, signal.SIGTERM)
    harness.sh("2.1", "exit 0")

    assert harness.ended("2.1").status == 0


def test_a_slot_with_a_gpu_of_another_process_is_not_held_at_all(
    harness: Harness,
) -> None:
    harness.executor.release(1, ["GPU-2", "GPU-3"])
    harness.until(lambda: harness.of(Released) == [Released(1)])
    let_go = harness.occupy("GPU-3")
    harness.executor.hold(1)
    harness.until(lambda: bool(harness.of(Unheld)))
    assert harness.of(Unheld) == [Unheld(1, "GPU-3", None)]

    let_go()
    held = len(harness.of(Held))
    harness.executor.hold(1)
    harness.until(lambda: len(harness.of(Held)) > held)


def test_the_gpus_of_a_slot_are_gathered_one_by_one(harness: Harness) -> None:
    harness.executor.release(1, ["GPU-2", "GPU-3"])
    harness.until(lambda: harness.of(Released) == [Released(1)])
    let_go = harness.occupy("GPU-2")
    harness.executor.hold(1, gather=True)
    harness.until(lambda: len(harness.of(Unheld)) == 1)
    harness.executor.hold(1)  # what is gathered is given back
    harness.until(lambda: len(harness.of(Unheld)) == 2)
    harness.occupy("GPU-3")()
    harness.executor.hold(1, gather=True)
    harness.until(lambda: len(harness.of(Unheld)) == 3)
    harness.executor.release(1, ["GPU-3"])
    harness.until(lambda: len(harness.of(Released)) == 2)
    harness.occupy("GPU-3")()
    harness.executor.hold(1, gather=True)
    harness.until(lambda: len(harness.of(Unheld)) == 4)
    assert [report.gathered for report in harness.of(Unheld)] == [
        ("GPU-3",),
        (),
        ("GPU-3",),
        ("GPU-3",),
    ]

    let_go()
    held = len(harness.of(Held))
    harness.executor.hold(1, gather=True)
    harness.until(lambda: len(harness.of(Held)) > held)


def test_the_descriptor_is_readable_only_when_there_are_reports(harness: Harness) -> None:
    harness.sh("1.1", FOREVER)
    harness.started("1.1")
    harness.reach()
    assert select.select([harness.executor], [], [], 0)[0] == []

    harness.executor.kill("1.1")
    assert select.select([harness.executor], [], [], 10)[0] == [harness.executor]
    assert harness.executor.observe()
    assert harness.executor.observe() == []


def test_finish_is_answered_when_nothing_is_left(harness: Harness) -> None:
    harness.sh("1.1", "exit 0")
    harness.ended("1.1")
    harness.executor.finish()
    harness.until(lambda: bool(harness.of(Finished)))

    assert harness.of(Finished) == [Finished()]


def test_finish_comes_after_all_that_was_launched_before_it(harness: Harness) -> None:
    keys = [f"{number}.1" for number in range(1, 8)]
    harness.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 7"]) for key in keys])
    harness.executor.finish()
    harness.until(lambda: bool(harness.of(Finished)))

    assert [report.key for report in harness.of(Ended)] == keys
    assert harness.reports[-1] == Finished()
