"""Attempts on a node that is cut off: what they have finished counts, and nothing runs twice."""

from __future__ import annotations

import msgspec
import pytest

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.running_attempt import STARTING
from stoker.executors.contract import Ended, Lost, Started
from stoker.executors.node_reports import (
    Away,
    Joined,
    LeaseExpired,
)
from stoker.supervisor.adoption import RESTARTED, UNWATCHED
from stoker.supervisor.lease_file import CUT_OFF
from unit.engine.cluster_harness import OUT, Cluster
from unit.engine.engine_harness import MakeHarness


@pytest.fixture
def cluster(make_harness: MakeHarness) -> Cluster:
    slots = tuple(Slot(n - 1, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in (1, 2))
    harness = make_harness(gpus=slots, nodes=tuple(NodeFacts(f"h{n}") for n in range(3)))
    return Cluster(harness)


@pytest.mark.parametrize("status", [0, 7 << 8])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_end_counts_if_no_newer_attempt_has_started(
    cluster: Cluster, status: int, restarts: bool
) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"])
    started_at_us = harness.column("started_at_us", 1)
    cluster.cut()
    assert harness.states() == {1: "waiting"}
    if restarts:
        harness.executor.observe()
        harness.restart()
        cluster.begin()
    assert cluster.come_back() == ["1.1"]
    assert harness.states() == {1: "running"}
    harness.end("1.1", status)

    assert harness.states() == {1: "failed" if status else "done"}
    assert [number for number, _state, _reason in harness.attempts(1)] == [1]
    assert harness.column("started_at_us", 1) == started_at_us
    assert harness.column("slots", 1) == "h1/0"
    assert "1.1" in harness.executor.acknowledged
    assert harness.started() == ["1.1"]


def test_a_late_failure_has_the_retries_that_the_job_had(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"], retries=1)
    cluster.cut()
    cluster.come_back()
    cluster.report(Joined(cluster.nodes.known["h1"]))
    harness.end("1.1", 1 << 8)
    assert cluster.running() == {"1.2": "h1"}
    harness.end("1.2", 1 << 8)
    assert harness.states() == {1: "failed"}


def test_a_late_end_is_ignored_if_a_newer_attempt_has_started(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train")
    assert cluster.running() == {"1.1": "h1"}
    cluster.cut()
    assert cluster.running() == {"1.2": "h2"}
    assert cluster.come_back() == []
    harness.end("1.1")
    assert harness.states() == {1: "running"}
    harness.end("1.2", 1 << 8)
    assert harness.states() == {1: "failed"}


@pytest.mark.parametrize("verb", ["kill", "hold"])
def test_a_job_that_its_user_has_steered_meanwhile_stays_as_it_is(
    cluster: Cluster, verb: str
) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"])
    cluster.cut()
    getattr(harness, verb)("1")
    state = harness.states()
    assert cluster.come_back() == []
    harness.end("1.1")
    assert harness.states() == state


def test_an_attempt_that_its_node_has_ended_runs_again(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"])
    cluster.cut()
    assert cluster.come_back() == ["1.1"]
    harness.executor.report(Lost("1.1", CUT_OFF, cut_off=True))
    cluster.sync("1.1")
    cluster.report(Joined(cluster.nodes.known["h1"]))
    assert cluster.running() == {"1.2": "h1"}
    assert harness.attempts(1) == [(1, "lost", CUT_OFF)]


@pytest.mark.parametrize("is_known", [True, False])
def test_an_attempt_whose_status_its_node_does_not_know_runs_again(
    cluster: Cluster, is_known: bool
) -> None:
    harness = cluster.harness
    harness.add("train")
    harness.add("train")
    cluster.cut()
    cluster.come_back()
    if is_known:
        harness.executor.report(Lost("1.1", UNWATCHED))
    cluster.sync(*(["1.1"] if is_known else []))
    assert harness.states() == {1: "waiting", 2: "running"}


def test_a_revived_attempt_is_given_up_again_if_its_node_is_cut_off_again(
    cluster: Cluster,
) -> None:
    cluster.harness.add("train", nodes=["h1"])
    for _ in range(2):
        cluster.cut()
        assert cluster.harness.states() == {1: "waiting"}
        assert cluster.come_back() == ["1.1"]
    cluster.harness.end("1.1")
    assert cluster.harness.states() == {1: "done"}


def test_an_attempt_whose_start_was_not_reported_before_the_cut_is_revived_too(
    cluster: Cluster,
) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"])
    (running,) = harness.engine.slot_table.running.values()
    harness.database.execute("UPDATE job SET state = 'starting', pid = NULL, started_at_us = NULL")
    running.phase = STARTING
    cluster.cut()
    assert cluster.come_back() == ["1.1"]
    assert harness.states() == {1: "starting"}
    harness.executor.report(Started("1.1", 5, 6, 7.0), Ended("1.1", 0, 9, 0, 0))
    harness.settle()
    assert harness.states() == {1: "done"}


def test_an_attempt_that_finishes_alone_is_not_started_elsewhere(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train", on_cut="finish")
    cluster.cut()
    harness.wait(86400)
    assert cluster.running() == {"1.1": "h1"}
    assert "node h1 is away since " in harness.why(1)
    assert "it runs to its end there (--on-cut finish)" in harness.why(1)
    assert cluster.come_back() == ["1.1"]
    harness.end("1.1")
    assert harness.states() == {1: "done"}
    assert harness.started() == ["1.1"]


def test_a_node_that_is_declared_gone_has_nothing_to_finish(cluster: Cluster) -> None:
    cluster.harness.add("train", on_cut="finish")
    cluster.cut()
    with cluster.harness.database.transaction():
        cluster.nodes.forget("h1")
    cluster.harness.settle()
    assert cluster.running() == {"1.2": "h2"}


@pytest.mark.parametrize("node", ["h0", "h1"])
def test_a_job_runs_again_after_a_reboot_of_its_machine_also_of_the_head(
    make_harness: MakeHarness, node: str
) -> None:
    slots = tuple(Slot(n, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in range(2))
    harness = make_harness(gpus=slots, nodes=(NodeFacts("h0"), NodeFacts("h1")))
    harness.add("train", nodes=[node])
    harness.executor.lose("1.1", RESTARTED)
    harness.settle()
    assert harness.started() == ["1.1", "1.2"]


def test_a_job_of_a_machine_without_a_cluster_does_not_run_again_after_a_reboot(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness()
    harness.add("train")
    harness.executor.lose("1.1", RESTARTED)
    harness.settle()
    assert harness.states() == {1: "lost"}


def test_why_says_that_an_attempt_may_still_run_until_its_end_is_seen(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train")
    may_run = "attempt 1 may still run on h1: its end was not seen since h1 was cut off"
    cluster.cut()
    assert may_run in harness.why(1)
    harness.restart()
    harness.executor.observe()  # the fake executor reports also what runs on nodes that are away
    cluster.begin()
    assert may_run in harness.why(1)
    cluster.come_back()
    assert may_run in harness.why(1)
    harness.executor.report(Lost("1.1", CUT_OFF, cut_off=True))
    harness.settle()
    assert "may still run" not in harness.why(1)


@pytest.mark.parametrize("how", ["synced", "forgotten"])
def test_an_attempt_that_its_node_does_not_know_does_not_run_there(
    cluster: Cluster, how: str
) -> None:
    cluster.harness.add("train")
    cluster.cut()
    if how == "synced":
        cluster.come_back()
        cluster.sync()
    else:
        with cluster.harness.database.transaction():
            cluster.nodes.forget("h1")
    assert "may still run" not in cluster.harness.why(1)


def test_a_node_may_join_and_leave_in_a_turn_in_which_jobs_end(cluster: Cluster) -> None:
    """Both write to the database: neither may open a transaction of its own."""
    harness = cluster.harness
    harness.add("a", "b")
    facts = cluster.nodes.known["h1"]
    for report in (
        Joined(msgspec.structs.replace(facts, labels={"disk": "nvme"})),
        Away("h1", "x"),
        LeaseExpired("h1", OUT),
    ):
        harness.executor.end(next(iter(harness.executor.running)))
        harness.engine.reports.apply(harness.executor.observe(), harness.now)
        cluster.nodes.apply(report)
        harness.settle()
        harness.add("c")
    harness.executor.end(next(iter(harness.executor.running)))
    harness.engine.reports.apply(harness.executor.observe(), harness.now)
    cluster.nodes.forget("h1")
    harness.settle()
