"""`metrics`: the queue as Prometheus sees it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families as parse

from stoker.core.lifecycle import State
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.service.metrics import MAX_PROJECTS, OTHER_PROJECTS, bound_projects, metrics
from unit.engine.cluster_harness import Cluster
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

Series = dict[tuple[str, ...], float]


def read(harness: Harness) -> Series:
    """Return the value of each series: by its name and the values of its labels."""

    async def ask() -> bytes:
        return await metrics(harness.context)

    text = harness.run(ask()).decode()
    samples = [sample for family in parse(text) for sample in family.samples]
    found = {(each.name, *each.labels.values()): each.value for each in samples}
    assert len(found) == len(samples), "a series occurs twice"
    return found


def test_jobs_are_counted_by_state_and_project(harness: Harness) -> None:
    harness.add("train", "train", project='vi"sion\\n')
    harness.add("eval")
    harness.add("later", hold=True)
    found = read(harness)
    assert found["stoker_jobs", "running"] == 2, "one of them is claimed ahead"
    assert found["stoker_jobs", "waiting"] == 1
    assert found["stoker_jobs", "held"] == 1
    projects = {
        name[1:]: value for name, value in found.items() if name[0] == "stoker_project_jobs"
    }
    assert projects == {
        ('vi"sion\\n', "running"): 2,
        ("(none)", "waiting"): 1,
        ("(none)", "held"): 1,
    }


def test_ends_failures_retries_durations_and_waits_are_counted(harness: Harness) -> None:
    harness.add("train", retries=1)
    harness.end("1.1", FAILED)
    harness.end("1.2", FAILED)
    harness.add("good")
    harness.end("2.1")
    found = read(harness)
    assert found["stoker_jobs_ended_total", "failed"] == 1
    assert found["stoker_jobs_ended_total", "done"] == 1
    assert found["stoker_failures_total", "error"] == 2
    assert found["stoker_attempts_retried_total",] == 1
    assert found["stoker_attempt_duration_seconds_count", "failed"] == 2
    assert found["stoker_attempt_duration_seconds_count", "done"] == 1
    assert found["stoker_job_wait_seconds_count",] == 2, "of first attempts alone"


def test_gpus_hosts_and_the_daemon_are_described(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=(Slot(0, ("0",), ("GPU-0",)), Slot(1, ("1",), ("GPU-1",))))
    harness.add("train")
    harness.gpus("drain", "1")
    found = read(harness)
    assert (found["stoker_gpu_jobs", "0"], found["stoker_gpu_jobs", "1"]) == (1, 0)
    assert (found["stoker_gpu_usable", "0"], found["stoker_gpu_usable", "1"]) == (1, 0)
    assert ("stoker_gpu_memory_bytes", "0") not in found, "there is no driver that tells it"
    assert found["process_resident_memory_bytes",] > 1e6
    assert found["process_open_fds",] > 1
    assert found["stoker_database_bytes", "database"] > 0


def test_nodes_of_a_cluster_have_series_of_their_own(make_harness: MakeHarness) -> None:
    slots = tuple(Slot(n - 1, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in (1, 2))
    nodes = tuple(NodeFacts(f"h{n}") for n in range(3))
    harness = make_harness(gpus=slots, nodes=nodes)
    cluster = Cluster(harness)
    cluster.report(cluster.away())
    found = read(harness)
    assert (found["stoker_node_up", "h1"], found["stoker_node_up", "h2"]) == (0, 1)
    assert found["stoker_gpu_usable", "h2/0"] == 1


def test_projects_beyond_the_limit_share_one_series_whatever_they_are_called() -> None:
    names = [OTHER_PROJECTS, None, "(none)", *(f"p{number}" for number in range(200))]
    counts = {(name, State.WAITING): 1000 - number for number, name in enumerate(names)}
    found = bound_projects(counts)
    assert len(found) <= MAX_PROJECTS
    assert sum(found.values()) == sum(counts.values())
    assert found["(none)", State.WAITING] == 999 + 998
    assert found["p0", State.WAITING] == 997
