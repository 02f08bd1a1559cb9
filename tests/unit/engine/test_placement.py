"""Jobs over the nodes of a cluster: where they may run, where they do, and what is said about it."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.core.lifecycle import State
from stoker.core.node import NodeFacts
from stoker.core.planner import Plan, Start
from stoker.core.slot import Slot
from stoker.engine.policy import CheckedPolicy
from stoker.errors import NotFoundError, UsageError
from stoker.service.ls import ls
from stoker.service.show import show
from stoker.service.status import status
from stoker.wire import JobQuery, LsQuery
from unit.engine.engine_harness import Harness, MakeHarness

MODELS = {"h1": "NVIDIA A100-SXM4-80GB", "h2": "NVIDIA H100 80GB HBM3"}
NODES = (NodeFacts("h1", {"disk": "fast"}), NodeFacts("h2"), NodeFacts("h3", away="link cut"))


def key(node: str, gpu: int) -> str:
    return f"{node}/GPU-{gpu}" if node != "h1" else f"GPU-{gpu}"


class Cluster(Harness):
    """A head `h1` and a node `h2` with two GPUs each, of different kinds; `h3` is known and away."""

    def __init__(self, home: Path, **more: Any) -> None:
        gpus = tuple(
            Slot(n, (str(n % 2),), (key(node, n % 2),), node)
            for n, node in enumerate(("h1", "h1", "h2", "h2"))
        )
        super().__init__(home, gpus=gpus, nodes=NODES, **more)

    def begin(self) -> None:
        """Be a daemon from now on, who is told of the kinds of GPUs."""
        super().begin()
        models = {key(node, gpu): model for node, model in MODELS.items() for gpu in (0, 1)}
        self.engine.slot_table.update_models(models)

    def note(self, name: str, **facts: Any) -> None:
        self.engine.slot_table.update_node(NodeFacts(name, **facts))
        self.settle()

    def places(self) -> dict[int, str]:
        """Where each job runs, by what is on record."""
        rows = self.database.execute("SELECT id, slots FROM job WHERE state = 'running'")
        return dict(rows.fetchall())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    harness = Cluster(tmp_path)
    yield harness
    harness.close()


@pytest.mark.parametrize(
    ("wish", "labels"),
    [
        ({"nodes": ["h2"]}, ["h2/0", "h2/1"]),
        ({"on": "h100"}, ["h2/0", "h2/1"]),
        ({"on": "A100"}, ["h1/0", "h1/1"]),
        ({"node_labels": {"disk": "fast"}}, ["h1/0", "h1/1"]),
        ({"nodes": ["h1", "h2"], "on": "h100"}, ["h2/0", "h2/1"]),
    ],
)
def test_jobs_run_only_where_their_placement_rule_allows(
    cluster: Cluster, wish: dict[str, Any], labels: list[str]
) -> None:
    cluster.add("a", "b", "c", **wish)

    assert sorted(cluster.places().values()) == labels
    assert cluster.jobs.state_of(3) is State.WAITING
    cluster.end("1.1")
    assert cluster.places()[3] in labels


def test_a_job_with_two_gpus_has_them_on_one_node(cluster: Cluster) -> None:
    cluster.add("small", nodes=["h1"])
    cluster.add("big", gpus=2)

    assert cluster.places() == {1: "h1/0", 2: "h2/0,h2/1"}


def test_a_waiting_job_with_two_gpus_keeps_one_node_and_the_other_goes_on(cluster: Cluster) -> None:
    cluster.add("a", "b", "c", "d")
    cluster.add("big", gpus=2)
    cluster.add("e")
    cluster.end("1.1")
    cluster.end("3.1")

    assert cluster.places() == {2: "h1/1", 4: "h2/1", 6: "h2/0"}
    cluster.end("2.1")
    assert cluster.places()[5] == "h1/0,h1/1"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"nodes": ["h9"]}, r"no node h9; there are: h1, h2, h3 \(away\)"),
        ({"on": "v100"}, r"no GPU is a 'v100'; there are: 2 × NVIDIA A100.*, 2 × NVIDIA H100"),
        (
            {"node_labels": {"disk": "slow"}},
            r"no node has the label disk=slow; there are: disk=fast",
        ),
        ({"nodes": ["h1"], "on": "h100"}, "no GPU fits --node h1 --on h100"),
        ({"gpus": 3}, "no node has more than 2: ask for fewer"),
        ({"gpus": 0, "on": "a100"}, "--on a100 is a kind of GPU: leave it out"),
    ],
)
def test_an_impossible_placement_is_refused_with_the_available_choices(
    cluster: Cluster, wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        cluster.add("train", **wish)

    assert cluster.jobs.tally() == {}


def test_a_queue_of_one_machine_has_no_nodes_but_may_have_kinds_of_gpus(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=2)
    harness.engine.slot_table.update_models({"GPU-0": "Tesla V100", "GPU-1": "NVIDIA A100"})

    harness.add("train", on="a100")

    assert harness.engine.slot_table.running["1.1"].label == "1"
    with pytest.raises(UsageError, match="no node h1; this queue has one machine"):
        harness.add("train", nodes=["h1"])


def test_a_node_that_is_away_is_waited_for_and_why_says_since_when(cluster: Cluster) -> None:
    cluster.note("h3", away="its link is cut", since=time.time() - 300)

    cluster.add("train", nodes=["h3"])

    text = cluster.why(1)
    assert "waits for 1 GPU that fit --node h3" in text
    assert "node h3 is away since 5m 00s (its link is cut)" in text
    place = cluster.engine.add_slot(("0",), ("h3/GPU-0",), "h3")
    cluster.settle()
    assert place.current is None
    cluster.note("h3")
    assert cluster.places() == {1: "h3/0"}


def test_slots_of_a_node_that_goes_away_get_no_jobs(cluster: Cluster) -> None:
    cluster.note("h2", away="its link is cut", since=time.time())

    cluster.add("a", "b", "c")

    assert sorted(cluster.places().values()) == ["h1/0", "h1/1"]
    assert {slot.label: slot.closed for slot in status(cluster.context).slots}["h2/0"] == (
        "its link is cut"
    )


def test_why_lists_only_gpus_that_the_job_may_use(cluster: Cluster) -> None:
    cluster.add("a", "b", "c", on="h100")

    text = cluster.why(3)

    assert "waits for 1 GPU that fit --on h100: GPU h2/0 held by job 1" in text
    assert "h1/" not in text


def test_a_job_without_gpu_runs_here_unless_another_node_is_named(cluster: Cluster) -> None:
    cluster.add("a", gpus=0)
    cluster.add("b", gpus=0, nodes=["h2"])
    cluster.add("c", gpus=0, nodes=["h1"])

    running = cluster.engine.slot_table.running
    assert [running[f"{job}.1"].node for job in (1, 2)] == ["", "h2"]
    assert cluster.places() == {1: "", 2: "h2/"}
    assert "is running without GPU on node h2" in cluster.why(2)
    cluster.end("1.1")
    assert cluster.places()[3] == ""


def test_a_job_without_gpu_waits_for_a_node_that_is_away(cluster: Cluster) -> None:
    cluster.add("a", gpus=0, nodes=["h3"])
    cluster.add("b", gpus=0)

    assert cluster.places() == {2: ""}
    assert "waits for a node that fits --node h3; node h3 is away" in cluster.why(1)
    cluster.note("h3")
    assert cluster.places()[1] == "h3/"


def test_jobs_on_other_nodes_are_adopted_after_a_restart(cluster: Cluster) -> None:
    cluster.add("a", nodes=["h2"])
    cluster.add("b", gpus=0, nodes=["h2"])

    cluster.restart()

    running = cluster.engine.slot_table.running
    assert [slot.label for slot in running["1.1"].slots] == ["h2/0"]
    assert (running["1.1"].node, running["2.1"].node) == ("h2", "h2")
    assert running["2.1"].label == "h2/"


def test_a_placement_rule_is_shown_listed_and_can_be_changed(cluster: Cluster) -> None:
    cluster.add("a", hold=True, nodes=["h2", "h1"], on="h100", node_labels={})
    detail = show(cluster.context, JobQuery("1"))
    listed = ls(cluster.context, LsQuery()).jobs[0]

    assert (detail.nodes, detail.on, detail.node_labels) == (["h1", "h2"], "h100", {})
    assert (listed.nodes, listed.on) == (["h1", "h2"], "h100")
    cluster.set("1", nodes=None, on="a100")
    assert (
        show(cluster.context, JobQuery("1")).nodes,
        show(cluster.context, JobQuery("1")).on,
    ) == ([], "a100")
    refused = cluster.set("1", nodes=["h9"]).refused
    assert "there is no node h9" in refused[0].reason


def test_a_retry_without_a_possible_node_is_refused_with_a_hint(
    cluster: Cluster,
) -> None:
    cluster.add("a", nodes=["h2"])
    cluster.end("1.1", 256)
    cluster.engine.slot_table.forget_node("h2")

    refused = cluster.retry("1").refused

    assert "there is no node h2" in refused[0].reason
    assert "stoker set 1 node=none" in refused[0].reason


def test_gpus_are_drained_removed_and_added_by_their_label(cluster: Cluster) -> None:
    assert cluster.gpus("drain", "h2/0").slots == ["h2/0"]
    assert cluster.gpus("remove", "1").slots == ["h1/1"]
    cluster.add("a", "b", "c")

    assert sorted(cluster.places().values()) == ["h1/0", "h2/1"]
    cluster.gpus("add", "h2/0")
    assert cluster.places()[3] == "h2/0"
    with pytest.raises(NotFoundError, match="no GPU h2/7 in this queue; there are: h1/0, "):
        cluster.gpus("add", "h2/7")


def test_drained_slots_of_all_nodes_stay_drained_after_a_restart(cluster: Cluster) -> None:
    cluster.gpus("drain", "h2/0")
    cluster.gpus("remove", "h1/1")

    cluster.restart()

    drained = {place.slot.label: place.drained for place in cluster.engine.slot_table.states}
    assert drained == {"h1/0": None, "h1/1": "removed", "h2/0": "drained", "h2/1": None}


def test_a_drained_slot_that_returns_later_is_still_drained(cluster: Cluster) -> None:
    cluster.gpus("drain", "h2/0")
    cluster.slots = cluster.slots[:2]
    cluster.restart()
    cluster.gpus("drain", "h1/0")

    place = cluster.engine.add_slot(("0",), (key("h2", 0),), "h2")

    assert place.drained == "drained"


def test_a_project_is_kept_to_gpus_of_nodes(cluster: Cluster) -> None:
    cluster.config("gpus.vision", "h2/1")
    cluster.add("a", "b", project="vision")

    assert cluster.places() == {1: "h2/1"}
    with pytest.raises(UsageError, match="has the GPUs 0, 1, h1/0"):
        cluster.config("gpus.vision", "h2/7")


def test_a_forced_job_keeps_its_placement_rule(cluster: Cluster) -> None:
    cluster.add("a", "b", "c", "d")
    cluster.add("late", nodes=["h2"])
    cluster.start("5")

    cluster.end("1.1")
    assert 5 not in cluster.places()
    cluster.end("3.1")
    assert cluster.places()[5] == "h2/0"


def test_jobs_start_beside_reserved_slots_beyond_the_first_candidates(cluster: Cluster) -> None:
    cluster.add("a", "b", timeout_s=100.0, nodes=["h1"])
    cluster.add("c", "d", timeout_s=200.0, nodes=["h2"])
    cluster.add("big", gpus=2)
    cluster.end("1.1")
    cluster.end("3.1")
    assert 5 not in cluster.places()

    cluster.add("e", "f", "g", timeout_s=50.0)

    assert sorted(cluster.places().values()) == ["h1/0", "h1/1", "h2/0", "h2/1"]


def test_a_policy_that_scatters_a_job_over_nodes_is_refused(cluster: Cluster) -> None:
    def scatter(waiting: Any, *, free: Any, **_known: Any) -> Plan:
        starts = [Start(job.id, (free[0], free[-1])) for job in waiting[:1] if len(free) > 3]
        return Plan(tuple(starts))

    cluster.engine.planner.policy = CheckedPolicy(
        "mine", scatter, cluster.context.publisher.on_notice
    )
    cluster.add("big", gpus=2)

    assert "on more than one node; the default policy plans from now on" in cluster.notices()
    assert cluster.places() == {1: "h1/0,h1/1"}


class TestANodeThatLacksWhatAJobNeeds:
    """A folder or a program that is on other boxes."""

    def refuse(self, cluster: Cluster, **wish: Any) -> dict[int, str]:
        """Have a job that its first node cannot start."""
        cluster.executor.refuse_next(errno.ENOENT, "h2 has no folder /data")
        cluster.add("a", **wish)
        cluster.settle()
        return cluster.places()

    def test_another_node_gets_the_job(self, cluster: Cluster) -> None:
        cluster.add("b", "b", nodes=["h1"])  # so that h2 comes first
        places = self.refuse(cluster)
        assert 3 not in places
        assert "GPU h2/0 will not do (h2 has no folder /data)" in cluster.why(3)
        cluster.end("1.1")
        assert cluster.places()[3] == "h1/0"

    @pytest.mark.parametrize(
        "wish", [{"nodes": ["h2"]}, {"on": "h100"}, {"nodes": ["h2"], "gpus": 0}]
    )
    def test_the_job_fails_if_no_other_node_may_run_it(
        self, cluster: Cluster, wish: dict[str, Any]
    ) -> None:
        self.refuse(cluster, **wish)
        job = show(cluster.context, JobQuery("1"))
        assert (job.state, job.reason) == (State.FAILED, "could not start: h2 has no folder /data")
