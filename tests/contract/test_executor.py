"""What every executor promises the engine, over all executors."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter

import pytest

from contract.rig import FOREVER, Rig
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
def test_an_exit_code_is_told_exactly(rig: Rig, code: int) -> None:
    rig.sh("1.1", f"exit {code}")

    assert rig.ended("1.1").status == code << 8
    assert rig.started("1.1").pid > 0


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_by_signal_is_told_exactly(rig: Rig, signum: int) -> None:
    rig.sh("1.1", f"kill -{int(signum)} $$")

    status = rig.ended("1.1").status
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signum


def test_a_start_is_told_before_its_end_and_the_times_are_in_order(rig: Rig) -> None:
    before = time.time_ns() // 1000
    rig.sh("1.1", "exit 0")
    ended = rig.ended("1.1")
    started = rig.started("1.1")

    assert rig.reports.index(started) < rig.reports.index(ended)
    assert before <= started.at_us <= ended.at_us <= time.time_ns() // 1000 + 1


def test_attempts_of_one_slot_run_one_after_the_other_in_order(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 30)]
    rig.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 0"]) for key in keys])
    rig.ended(keys[-1])

    assert [report.key for report in rig.of(Started)] == keys
    assert [report.key for report in rig.of(Ended)] == keys


def test_what_waits_behind_another_starts_only_when_that_has_ended(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.sh("2.1", FOREVER)
    rig.sh("3.1", "exit 3", 1)
    rig.ended("3.1")
    rig.started("1.1")
    rig.reach()
    assert [report.key for report in rig.of(Started) if report.key == "2.1"] == []

    rig.executor.kill("1.1")
    rig.ended("1.1")
    rig.started("2.1")


def test_a_launch_on_several_slots_takes_them_all(rig: Rig) -> None:
    rig.sh("1.1", FOREVER, 0, 1)
    rig.sh("2.1", FOREVER, 0)
    rig.sh("3.1", FOREVER, 1)
    rig.started("1.1")
    rig.reach()
    assert [report.key for report in rig.of(Started)] == ["1.1"]

    rig.executor.kill("1.1")
    rig.started("2.1")
    rig.started("3.1")
    rig.executor.kill("2.1")
    rig.ended("2.1")
    rig.sh("4.1", "exit 0", 0)
    rig.ended("4.1")
    rig.executor.kill("3.1")
    rig.ended("3.1")
    rig.sh("5.1", "exit 5", 1, 0)
    assert rig.ended("5.1").status == 5 << 8


def test_launches_on_no_slot_wait_for_nothing(rig: Rig) -> None:
    rig.sh("9.1", FOREVER, 0)
    keys = [f"{number}.1" for number in range(1, 6)]
    rig.executor.launch([Launch(key, (), ["/bin/sh", "-c", FOREVER]) for key in keys])
    for key in keys:
        rig.started(key)
    assert rig.of(Ended) == []

    for key in [*keys, "9.1"]:
        rig.executor.kill(key)
        assert rig.ended(key).status == signal.SIGKILL


def test_a_start_is_told_with_the_time_since_boot(rig: Rig) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    rig.sh("1.1", FOREVER)
    started = rig.started("1.1")
    if isinstance(rig.executor, FakeExecutor):
        assert started.at_s == pytest.approx(started.at_us / 1e6)
    else:
        assert before - 0.02 <= started.at_s <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_every_launch_ends_in_exactly_one_way(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 41)]
    for number, key in enumerate(keys):
        rig.sh(key, FOREVER if number % 8 == 0 else f"exit {number % 3}", number % 2)
    for key in keys[10:20]:
        rig.executor.revoke(key)
    over: Counter[str] = Counter()

    def count() -> bool:
        over.clear()
        over.update(
            report.key
            for report in rig.reports
            if isinstance(report, (Ended, Refused, Revoked, Lost))
        )
        for report in rig.of(Started):
            if not over[report.key]:
                rig.executor.kill(report.key)
        return len(over) == len(keys)

    rig.until(count)
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert Counter(keys) == over
    assert {report.key for report in rig.of(Revoked)} <= set(keys[10:20])


def test_an_attempt_that_waits_can_be_taken_back_and_never_runs(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.sh("2.1", "exit 0")
    rig.sh("3.1", "exit 0")
    rig.executor.revoke("2.1")
    rig.until(lambda: bool(rig.of(Revoked)))
    rig.executor.kill("1.1")
    rig.ended("3.1")

    assert rig.of(Revoked) == [Revoked("2.1")]
    assert [report.key for report in rig.of(Started)] == ["1.1", "3.1"]


def test_an_attempt_that_runs_is_not_taken_back(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.executor.revoke("1.1")
    rig.executor.revoke("9.9")
    rig.reach()
    assert rig.of(Revoked) == []

    rig.executor.kill("1.1")
    assert rig.ended("1.1").status == signal.SIGKILL


def test_a_signal_reaches_the_job(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.executor.signal("1.1", signal.SIGTERM)

    assert rig.ended("1.1").status == signal.SIGTERM


def test_signals_and_kills_of_what_does_not_run_do_nothing(rig: Rig) -> None:
    rig.sh("1.1", "exit 0")
    rig.ended("1.1")
    for key in ("1.1", "9.9"):
        rig.executor.kill(key)
        rig.executor.signal(key, signal.SIGTERM)
    rig.sh("2.1", "exit 0")

    assert rig.ended("2.1").status == 0


def test_a_gpu_that_somebody_else_holds_is_told_and_none_of_the_slot_is_kept(rig: Rig) -> None:
    rig.executor.release(1, ["GPU-2", "GPU-3"])
    rig.until(lambda: rig.of(Released) == [Released(1)])
    let_go = rig.occupy("GPU-3")
    rig.executor.hold(1)
    rig.until(lambda: bool(rig.of(Unheld)))
    assert rig.of(Unheld) == [Unheld(1, "GPU-3", None)]

    let_go()
    held = len(rig.of(Held))
    rig.executor.hold(1)
    rig.until(lambda: len(rig.of(Held)) > held)


def test_the_descriptor_is_readable_when_there_is_news_and_not_before(rig: Rig) -> None:
    rig.sh("1.1", FOREVER)
    rig.started("1.1")
    rig.reach()
    assert select.select([rig.executor], [], [], 0)[0] == []

    rig.executor.kill("1.1")
    assert select.select([rig.executor], [], [], 10)[0] == [rig.executor]
    assert rig.executor.observe()
    assert rig.executor.observe() == []


def test_finish_is_answered_when_nothing_is_left(rig: Rig) -> None:
    rig.sh("1.1", "exit 0")
    rig.ended("1.1")
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert rig.of(Finished) == [Finished()]


def test_finish_comes_after_all_that_was_launched_before_it(rig: Rig) -> None:
    keys = [f"{number}.1" for number in range(1, 8)]
    rig.executor.launch([Launch(key, (0,), ["/bin/sh", "-c", "exit 7"]) for key in keys])
    rig.executor.finish()
    rig.until(lambda: bool(rig.of(Finished)))

    assert [report.key for report in rig.of(Ended)] == keys
    assert rig.reports[-1] == Finished()
