"""How many threads a job beside others may start."""

from __future__ import annotations

import pytest

from stoker.core.job import JobClass
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.host_resources import HostCapacity
from stoker.engine.thread_share import fair_threads
from unit.engine.engine_harness import Harness, MakeHarness

GIB = 1 << 30
MACHINE = HostCapacity(64, 256 * GIB, lambda: 256 * GIB)


@pytest.mark.parametrize(
    ("job", "places", "threads"),
    [
        (JobClass(), 1, None),
        (JobClass(), 8, 8),
        (JobClass(slots=2), 8, 8),  # each of its two processes
        (JobClass(slots=0), 8, 8),
        (JobClass(), 100, 1),
        (JobClass(share="auto"), 1, 16),
        (JobClass(share="auto"), 8, 2),
        (JobClass(share="free"), 8, 2),
        (JobClass(share="always:2"), 8, 4),
        (JobClass(share="always:1"), 1, None),
        (JobClass(cpus=5), 8, 5),
        (JobClass(cpus=5, share="auto"), 1, 5),
        (JobClass(), 0, None),
    ],
)
def test_the_part_of_64_cpus(job: JobClass, places: int, threads: int | None) -> None:
    assert fair_threads(job, 64, places) == threads


def threads_of(harness: Harness) -> list[str | None]:
    """The threads of each launch, in their order."""
    contexts = harness.executor.contexts
    return [
        contexts[launch.context].env.get("OMP_NUM_THREADS") for launch in harness.executor.launched
    ]


def test_jobs_get_the_part_of_a_slot_or_the_cpus_that_they_declare(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=4, capacity=MACHINE)
    harness.add("a")
    harness.add("b", cpus=3)
    harness.add("c", env={"OMP_NUM_THREADS": "7"})
    harness.add("d", gpus=0)

    assert threads_of(harness) == ["16", "3", "7", "16"]


def test_all_jobs_of_a_submission_have_one_context(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=4, capacity=MACHINE)
    harness.add("a", "b", "c", share="auto")
    assert len({launch.context for launch in harness.executor.launched}) == 1
    assert threads_of(harness) == ["4"] * 3


def test_a_job_alone_on_its_machine_is_left_alone(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1, capacity=MACHINE)
    harness.add("a")
    assert threads_of(harness) == [None]


def test_the_setting_never_leaves_all_jobs_alone(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=4, capacity=MACHINE)
    harness.config("threads", "never")
    harness.add("a", cpus=3)
    harness.config("threads", "auto")
    harness.add("b", cpus=3)
    assert threads_of(harness) == [None, "3"]


def test_new_slots_make_the_part_smaller(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2, capacity=MACHINE)
    harness.add("a")
    harness.gpus("add", "7")
    harness.gpus("add", "8")
    harness.add("b")
    assert threads_of(harness) == ["32", "16"]


def test_each_node_of_a_cluster_has_its_own_part(make_harness: MakeHarness) -> None:
    places = [
        ("h1", "0"),
        ("h1", "1"),
        ("h2", "0"),
        ("h2", "1"),
        ("h2", "2"),
        ("h2", "3"),
        ("h3", "0"),
    ]
    slots = tuple(
        Slot(n, (gpu,), (f"{node}/GPU-{gpu}",), node) for n, (node, gpu) in enumerate(places)
    )
    nodes = (NodeFacts("h1"), NodeFacts("h2", cpus=32), NodeFacts("h3"))
    harness = make_harness(gpus=slots, nodes=nodes, capacity=MACHINE)
    for node in ("h1", "h2", "h3"):  # h3 does not tell how many CPUs it has
        harness.add("a", nodes=[node])

    assert threads_of(harness) == ["32", "8", None]
