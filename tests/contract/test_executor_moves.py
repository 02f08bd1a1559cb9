"""Suspended attempts leave their slots and their leases while their processes live."""

from __future__ import annotations

from contract.executor_harness import FOREVER, SLOTS, Harness
from stoker.executors.contract import Released, Started
from stoker.gpus import lease


def test_the_slot_of_an_attempt_that_left_it_is_free(kept: Harness) -> None:
    kept.sh("1.1", FOREVER, 0)
    kept.started("1.1")
    kept.executor.move("1.1", None)
    kept.sh("2.1", FOREVER, 0)
    kept.started("2.1")

    kept.executor.kill("1.1")
    kept.ended("1.1")
    kept.sh("3.1", "true", 0)
    kept.sh("4.1", "true", 1)
    kept.ended("4.1")
    # The end of the first must not free the slot of the second.
    assert "3.1" not in {report.key for report in kept.of(Started)}
    kept.executor.kill("2.1")
    kept.ended("3.1")


def test_an_attempt_that_came_back_occupies_its_slot(kept: Harness) -> None:
    kept.sh("1.1", FOREVER, 0)
    kept.started("1.1")
    kept.executor.move("1.1", None)
    kept.executor.move("1.1", (0,))
    kept.sh("2.1", "true", 0)
    kept.sh("3.1", "true", 1)
    kept.ended("3.1")

    assert "2.1" not in {report.key for report in kept.of(Started)}
    kept.executor.kill("1.1")
    kept.ended("2.1")


def test_others_can_lease_the_gpu_of_a_suspended_attempt_once_its_slot_is_released(
    kept: Harness,
) -> None:
    kept.sh("1.1", FOREVER, 0)
    kept.started("1.1")
    key = SLOTS[0].keys[0]
    kept.executor.move("1.1", None)
    assert lease.take(key, "another") is None
    kept.executor.release(0, SLOTS[0].keys)
    kept.until(lambda: kept.of(Released))

    taken = lease.take(key, "another")
    assert taken is not None
    taken.release()
