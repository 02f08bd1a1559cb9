"""CPUs and RAM that jobs declare: what starts, what waits and why, and how a job ends that uses too much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from stoker.core.node import NodeFacts
from stoker.core.planner import Busy, Candidate, Plan, Start
from stoker.core.slot import Slot
from stoker.engine.host_resources import HostCapacity
from stoker.engine.policy import CheckedPolicy
from stoker.errors import UsageError
from unit.engine.engine_harness import Harness, MakeHarness

GIB = 1 << 30
KILLED = 9


class Machine:
    """A machine with 16 CPUs and 64 GiB, of which 60.8 GiB can be set aside. `available` is what is free."""

    def __init__(self) -> None:
        self.available = 64 * GIB

    def capacity(self) -> HostCapacity:
        return HostCapacity(16, 64 * GIB, lambda: self.available)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr("stoker.engine.host_resources._READ_S", 0.0)
    return Machine()


@pytest.fixture
def harness(make_harness: MakeHarness, machine: Machine) -> Harness:
    return make_harness(capacity=machine.capacity())


def test_a_job_waits_until_the_ram_it_declares_is_not_set_aside(harness: Harness) -> None:
    harness.add("a", mem_bytes=40 * GIB)
    harness.add("b", mem_bytes=32 * GIB)
    harness.add("c")

    assert harness.started() == ["1.1", "3.1"]
    assert harness.why(2).startswith(
        "job 2 waits: it needs 32 GiB of RAM, and 20.8 GiB of 60.8 GiB are not set aside"
    )
    harness.end("1.1")
    assert harness.started() == ["1.1", "3.1", "2.1"]


def test_cpus_are_counted_for_jobs_with_and_without_gpu(harness: Harness) -> None:
    harness.add("a", cpus=12)
    harness.add("b", cpus=4, gpus=0)
    harness.add("c", cpus=1, gpus=0)

    assert harness.started() == ["1.1", "2.1"]
    assert "needs 1 CPU, and 0 of 16 are not set aside" in harness.why(3)


def test_a_job_behind_one_that_waits_for_ram_says_for_whom_it_is_kept(harness: Harness) -> None:
    harness.add("a", mem_bytes=40 * GIB)
    harness.add("b", mem_bytes=50 * GIB)
    harness.add("c", gpus=0, mem_bytes=5 * GIB)

    assert harness.started() == ["1.1"]
    assert "leaves CPUs and RAM to job 2, which is ahead" in harness.why(3)


def test_what_is_set_aside_survives_a_restart(harness: Harness) -> None:
    harness.add("a", mem_bytes=40 * GIB, cpus=10)
    harness.restart()
    harness.add("b", mem_bytes=32 * GIB)
    harness.add("c", cpus=8)

    assert harness.started() == ["1.1"]


def test_what_is_set_aside_is_given_back_when_a_job_fails_is_killed_or_was_never_started(
    harness: Harness,
) -> None:
    harness.add("a", mem_bytes=60 * GIB, retries=1)
    harness.end("1.1", 256)
    assert harness.started() == ["1.1", "1.2"]

    harness.kill("1")
    harness.executor.refuse_next(11, "Resource temporarily unavailable")
    harness.add("b", mem_bytes=60 * GIB)
    harness.wait(5.0)
    assert harness.started()[-1] == "2.1"
    assert harness.states()[2] == "running"


def test_ram_that_others_use_is_waited_for_although_no_event_tells_when_it_is_free(
    harness: Harness, machine: Machine
) -> None:
    machine.available = 10 * GIB
    harness.add("a", mem_bytes=32 * GIB)

    assert harness.started() == []
    assert "needs 32 GiB of RAM, and only 10 GiB are free on the machine" in harness.why(1)
    assert 0 < (harness.engine.patience_s() or 0) <= 2.0
    machine.available = 40 * GIB
    harness.wait(2.0)
    assert harness.started() == ["1.1"]
    assert harness.engine.patience_s() is None


def test_ram_is_awaited_also_by_an_engine_that_holds_no_gpu_meanwhile(
    make_harness: MakeHarness, machine: Machine
) -> None:
    harness = make_harness(gpus=1, cpu_places=0, capacity=machine.capacity())
    machine.available = 10 * GIB
    harness.add("a", mem_bytes=32 * GIB)
    harness.settle()
    assert harness.executor.leased == set()
    assert 0 < (harness.engine.patience_s() or 0) <= 2.0

    machine.available = 40 * GIB
    harness.wait(2.0)
    assert harness.started() == ["1.1"]


def test_gpus_that_jobs_cannot_use_for_lack_of_ram_are_left_to_others(
    make_harness: MakeHarness, machine: Machine
) -> None:
    harness = make_harness(gpus=4, capacity=machine.capacity())
    harness.add(*["a"] * 8, mem_bytes=25 * GIB)

    assert harness.started() == ["1.1", "2.1"]
    harness.end("1.1")
    assert harness.started() == ["1.1", "2.1", "3.1"]
    assert len(harness.executor.leased) == 2


def test_no_job_is_preempted_for_one_that_lacks_ram(
    make_harness: MakeHarness, machine: Machine
) -> None:
    harness = make_harness(gpus=1, capacity=machine.capacity())
    harness.add("small", preemptible=True)
    harness.add("cpu", gpus=0, mem_bytes=50 * GIB)
    harness.add("urgent", preempt=True, mem_bytes=20 * GIB)
    assert harness.executor.signals == []

    harness.end("2.1")
    assert harness.executor.signals == [("1.1", 15)]


@pytest.mark.parametrize(
    ("common", "message"),
    [
        ({"cpus": 17}, "the job asks for 17 CPUs, and this machine has 16: ask for fewer (--cpus)"),
        (
            {"mem_bytes": 61 * GIB},
            "the job asks for 61 GiB of RAM, and this machine has 60.8 GiB for jobs: ask for less (--mem)",
        ),
    ],
)
def test_what_can_never_be_had_is_refused(
    harness: Harness, common: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        harness.add("a", **common)
    assert str(caught.value) == message

    harness.add("a", hold=True)
    refused = harness.set("1", **common).refused
    assert [each.reason for each in refused] == [f"job 1: {message}"]


def test_a_waiting_job_can_be_given_less(harness: Harness) -> None:
    harness.add("a", mem_bytes=40 * GIB, cpus=8)
    harness.add("b", mem_bytes=40 * GIB, cpus=8)
    harness.set("2", mem_bytes=10 * GIB)
    assert harness.started() == ["1.1", "2.1"]

    assert harness.set("2", mem_bytes=None).refused != []  # it runs
    harness.add("c", cpus=8)
    harness.set("3", cpus=None)
    assert harness.states()[3] == "waiting"  # for a GPU
    assert "waits for 1 GPU" in harness.why(3)


def test_a_job_killed_for_its_ram_has_failed_for_that_reason(harness: Harness) -> None:
    harness.add("a", mem_bytes=32 * GIB)
    harness.end("1.1", KILLED, over_mem_bytes=int(33.1 * GIB))

    reason = "used 33.1 GiB of RAM, more than its --mem 32 GiB"
    assert harness.attempts(1) == [(1, "failed", reason)]
    assert harness.column("failure", 1) == "over_mem"
    assert harness.why(1) == f"job 1 is failed: {reason}"


def test_a_job_killed_for_its_ram_is_tried_again_only_as_often_as_its_user_says(
    harness: Harness,
) -> None:
    harness.add("a", mem_bytes=GIB, retries=1)
    harness.end("1.1", KILLED, over_mem_bytes=GIB + 1)
    harness.end("1.2", KILLED, over_mem_bytes=GIB + 1)

    reason = "used over 1 GiB of RAM, more than its --mem 1 GiB"
    assert harness.attempts(1) == [(1, "failed", reason), (2, "failed", reason)]


def test_a_user_who_kills_a_job_first_is_the_reason(harness: Harness) -> None:
    harness.add("a", mem_bytes=GIB)
    harness.executor.ignore_signals("1.1")
    harness.kill("1")
    harness.end("1.1", KILLED, over_mem_bytes=2 * GIB)

    assert harness.states() == {1: "killed"}


def test_the_limit_is_launched_with_the_job(harness: Harness) -> None:
    harness.add("a", mem_bytes=GIB)
    harness.add("b")
    assert [launch.mem_bytes for launch in harness.executor.launched] == [GIB, 0]


def test_a_suspended_job_has_no_limit_and_its_gpu_memory_is_set_aside_too(harness: Harness) -> None:
    harness.add("a", mem_bytes=20 * GIB, cpus=16)
    harness.helper.answer = type(harness.helper.answer)(held_bytes={"GPU-0": 30 * GIB})
    harness.suspend("1")
    assert harness.executor.limits == [("1.1", 0)]

    harness.add("b", mem_bytes=20 * GIB)
    harness.add("c", cpus=16)
    assert harness.started() == ["1.1", "3.1"]
    assert "10.8 GiB of 60.8 GiB are not set aside" in harness.why(2)

    harness.end("3.1")
    harness.resume("1")
    harness.let_helpers_answer()
    assert harness.executor.limits == [("1.1", 0), ("1.1", 20 * GIB)]
    assert harness.started() == ["1.1", "3.1", "2.1"]


def test_short_jobs_that_declare_cpus_are_not_claimed_ahead(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1, capacity=Machine().capacity())
    for _ in range(4):
        harness.add("a", cpus=1)
    harness.run_short_jobs("1.1", "2.1")

    assert harness.executor.queued == []
    assert harness.started() == ["1.1", "2.1", "3.1"]


def test_a_user_s_policy_that_gives_ram_twice_is_replaced(harness: Harness) -> None:
    def greedy(waiting: Sequence[Candidate], *, free: Sequence[int], **_known: object) -> Plan:
        pairs = zip(waiting, free, strict=False)
        return Plan(tuple(Start(job.id, (slot,)) for job, slot in pairs))

    notices: list[str] = []
    harness.engine.planner.policy = CheckedPolicy("greedy", greedy, notices.append)
    harness.add("a", "b", mem_bytes=40 * GIB)

    assert harness.started() == ["1.1"]
    assert "job 2 is planned where it has too few CPUs or too little RAM" in notices[0]


def test_a_policy_that_knows_nothing_of_ram_plans_jobs_that_declare_none(harness: Harness) -> None:
    def old(
        waiting: Sequence[Candidate],
        *,
        free: Sequence[int],
        busy: Sequence[Busy],
        room: Mapping[int, int],
        cpu_places: int,
        now: float,
    ) -> Plan:
        return Plan(tuple(Start(job.id, (slot,)) for job, slot in zip(waiting, free, strict=False)))

    harness.engine.planner.policy = CheckedPolicy("old", old, pytest.fail)  # type: ignore[arg-type]
    harness.add("a", "b")
    assert harness.started() == ["1.1", "2.1"]


class TestACluster:
    @pytest.fixture
    def make(self, make_harness: MakeHarness, machine: Machine) -> Callable[..., Harness]:
        def make(cpus: int | None = None, mem_bytes: int | None = None) -> Harness:
            places = [("h1", "0"), ("h2", "0"), ("h2", "1")]
            slots = tuple(
                Slot(n, (gpu,), (f"{node}/GPU-{gpu}",), node)
                for n, (node, gpu) in enumerate(places)
            )
            nodes = (NodeFacts("h1"), NodeFacts("h2", cpus=cpus, mem_bytes=mem_bytes))
            return make_harness(gpus=slots, nodes=nodes, capacity=machine.capacity())

        return make

    def test_a_job_starts_on_the_node_that_has_room_for_it(
        self, make: Callable[..., Harness]
    ) -> None:
        harness = make(cpus=64, mem_bytes=256 * GIB)
        harness.add("a", mem_bytes=200 * GIB)
        harness.add("b", mem_bytes=50 * GIB, cpus=8)
        harness.add("c", mem_bytes=50 * GIB)

        slots = [launch.slots for launch in harness.executor.launched]
        assert slots == [(1,), (0,)]
        assert harness.why(3).startswith(
            "job 3 waits: on h1 it needs 50 GiB of RAM, and 10.8 GiB of 60.8 GiB are not set aside,"
            " on h2 it needs 50 GiB of RAM, and 43.2 GiB of 243.2 GiB are not set aside"
        )

    def test_a_job_without_gpu_counts_on_its_node(self, make: Callable[..., Harness]) -> None:
        harness = make(cpus=64, mem_bytes=256 * GIB)
        harness.add("a", gpus=0, cpus=60, nodes=["h2"])
        harness.add("b", gpus=0, cpus=16)
        harness.add("c", gpus=0, cpus=5, nodes=["h2"])

        assert harness.started() == ["1.1", "2.1"]

    def test_more_than_any_node_has_is_refused(self, make: Callable[..., Harness]) -> None:
        harness = make(cpus=64, mem_bytes=256 * GIB)
        with pytest.raises(UsageError, match="100 CPUs, and no machine has more than 64"):
            harness.add("a", cpus=100)
        with pytest.raises(UsageError, match=r"100 GiB of RAM, and this machine has 60\.8 GiB"):
            harness.add("a", mem_bytes=100 * GIB, nodes=["h1"])

    def test_a_node_that_tells_no_figures_bounds_nothing(
        self, make: Callable[..., Harness]
    ) -> None:
        harness = make()
        harness.add("a", cpus=1000)
        assert [launch.slots for launch in harness.executor.launched] == [(1,)]
