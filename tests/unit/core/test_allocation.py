"""When to ask for an allocation, when to give it back, and which jobs fit in its time."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.allocation import (
    GRACE_S,
    JOIN_S,
    LEAVE_S,
    MOST_FAILURES,
    START_S,
    USEFUL_S,
    Allocation,
    Need,
    NodeUse,
    Rule,
    Stage,
    count_wanted,
    find_stops,
    needed_s,
    should_ask,
    why_give_back,
    why_unfit,
    why_withdraw,
)

RULE = Rule(id=1, time_s=3600.0, gpus=4, most=3, idle_s=60.0)
SHORT = Need(gpus=1, timeout_s=600.0)


def allocation(number: int = 1, stage: Stage = Stage.UP, rule: int = 1) -> Allocation:
    return Allocation(id=number, rule=rule, stage=stage)


def change(rule: Rule = RULE, **changes: object) -> Rule:
    return msgspec.structs.replace(rule, **changes)


def test_a_job_fits_by_its_time_limit_or_by_what_its_kind_takes() -> None:
    assert needed_s(Need(1, timeout_s=600.0), may_cut=False) == 600.0
    assert needed_s(Need(1, expected_s=100.0), may_cut=False) == 150.0 + GRACE_S
    both = Need(1, timeout_s=86400.0, expected_s=100.0)
    assert needed_s(both, may_cut=False) == 150.0 + GRACE_S
    assert needed_s(Need(1), may_cut=False) is None


def test_a_job_that_may_be_cut_needs_little_time() -> None:
    assert needed_s(Need(1, timeout_s=86400.0, may_be_cut=True), may_cut=False) == USEFUL_S
    assert needed_s(Need(1), may_cut=True) == USEFUL_S


def test_the_reason_tells_why_no_allocation_is_asked_for() -> None:
    assert why_unfit(RULE, SHORT) is None
    assert why_unfit(RULE, Need(8, 60.0)) == "the job needs 8 GPUs, and an allocation has 4"
    assert "is not known" in (why_unfit(RULE, Need(1)) or "")
    longest = RULE.time_s - LEAVE_S - START_S
    assert why_unfit(RULE, Need(1, timeout_s=longest)) is None
    assert "longer than" in (why_unfit(RULE, Need(1, timeout_s=longest + 1)) or "")
    assert why_unfit(RULE, SHORT._replace(elsewhere=True)) == "the job wants another node"


def test_a_kind_of_gpu_counts_once_it_is_known() -> None:
    wants = SHORT._replace(model="A100")
    assert why_unfit(RULE, wants) is None
    assert why_unfit(RULE.after_success(["NVIDIA a100-SXM"]), wants) is None
    assert why_unfit(RULE.after_success(["Tesla T4"]), wants) == "its GPUs are Tesla T4"


def test_only_jobs_that_fit_are_counted() -> None:
    assert count_wanted(RULE, [SHORT, Need(2, 60.0), Need(8, 60.0), Need(1)]) == 3


def test_nothing_is_asked_for_while_one_is_queued_or_enough_is_coming() -> None:
    assert should_ask(RULE, [], 1)
    assert not should_ask(RULE, [], 0)
    assert not should_ask(RULE, [allocation(stage=Stage.QUEUED)], 99)
    assert not should_ask(RULE, [allocation(stage=Stage.STARTING)], 4)
    assert should_ask(RULE, [allocation(stage=Stage.STARTING)], 5)
    assert should_ask(RULE, [allocation(stage=Stage.QUEUED, rule=2)], 1)


def test_a_rule_that_is_paused_or_removed_asks_for_nothing() -> None:
    assert not should_ask(change(paused="by request"), [], 4)
    assert not should_ask(change(is_removed=True), [], 4)


def test_three_failures_in_a_row_pause_a_rule_with_the_last_reason() -> None:
    rule = RULE
    for number in range(MOST_FAILURES):
        assert rule.paused is None
        rule = rule.after_failure(f"reason {number}")
    assert rule.paused == "3 starts in a row failed, the last one: reason 2"
    assert rule.resumed() == RULE


def test_a_success_forgets_the_failures_before() -> None:
    rule = RULE.after_failure("a").after_failure("b").after_success([])
    assert rule.after_failure("c").paused is None


def test_a_node_is_given_back_when_it_was_idle_for_long_or_its_time_is_over() -> None:
    up = allocation()
    assert why_give_back(RULE, up, NodeUse(idle_s=59.0)) is None
    assert why_give_back(RULE, up, NodeUse(idle_s=60.0)) == "it was idle"
    assert why_give_back(RULE, up, NodeUse(left_s=LEAVE_S)) == "its time is over"
    assert why_give_back(None, up, NodeUse()) == "its rule was removed"
    assert why_give_back(RULE, allocation(stage=Stage.ENDING), NodeUse(idle_s=99.0)) is None


def test_a_queued_allocation_is_withdrawn_when_no_job_wants_it() -> None:
    queued, starting = allocation(stage=Stage.QUEUED), allocation(stage=Stage.STARTING)
    assert why_withdraw(RULE, queued, None, None) is None
    assert why_withdraw(RULE, queued, 60.0, None) == "no job waits for it any more"
    assert why_withdraw(RULE, starting, 60.0, 5.0) is None
    assert why_withdraw(RULE, starting, None, JOIN_S + 1) == "its node did not join"
    assert why_withdraw(None, queued, None, None) == "its rule was removed"
    assert why_withdraw(RULE, allocation(), 99.0, 9999.0) is None


def test_jobs_are_stopped_early_enough_for_their_grace() -> None:
    graces = {"1.1": 10.0, "2.1": 300.0}
    assert find_stops(graces, LEAVE_S + 301.0) == []
    assert find_stops(graces, LEAVE_S + 300.0) == ["2.1"]
    assert find_stops(graces, LEAVE_S) == ["1.1", "2.1"]
    assert find_stops(graces, None) == []


class _Cluster:
    """Slurm and the queue, in a few lines: what is asked for is queued, starts, and fails or comes up."""

    def __init__(self) -> None:
        self.rule = RULE
        self.allocations: dict[int, Allocation] = {}
        self.asked = 0

    def ask(self, wanted: int) -> None:
        if should_ask(self.rule, self.allocations.values(), wanted):
            self.asked += 1
            self.allocations[self.asked] = allocation(self.asked, Stage.QUEUED)

    def advance(self, fails: bool) -> None:
        for number, each in [*self.allocations.items()]:
            if each.is_coming and fails:
                del self.allocations[number]
                self.rule = self.rule.after_failure("no node")
            elif each.stage is Stage.QUEUED:
                self.allocations[number] = msgspec.structs.replace(each, stage=Stage.STARTING)
            elif each.stage is Stage.STARTING:
                self.allocations[number] = msgspec.structs.replace(each, stage=Stage.UP)
                self.rule = self.rule.after_success([])


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60))
def test_whatever_happens_no_more_is_asked_for_than_the_rule_and_the_jobs_allow(
    steps: list[tuple[int, bool]],
) -> None:
    cluster = _Cluster()
    for wanted, fails in steps:
        before = [*cluster.allocations.values()]
        cluster.ask(wanted)
        now = [*cluster.allocations.values()]
        if len(now) > len(before):
            coming = cluster.rule.gpus * sum(each.is_coming for each in before)
            assert wanted > coming
            assert cluster.rule.paused is None
        assert len(now) <= cluster.rule.most
        assert sum(each.stage is Stage.QUEUED for each in now) <= 1
        cluster.advance(fails)
        assert (cluster.rule.paused is not None) == (cluster.rule.failures >= MOST_FAILURES)
