"""What marks an attempt, what ends it, and what is never held against it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.divergence import Value
from stoker.core.usage import Sample, computes
from stoker.core.waste import Output, Waste, WasteRules, WasteWatch

MIN = 60.0
GIB = 2**30
RULES = WasteRules(mark_stall_s=30 * MIN, mark_idle_s=15 * MIN)
NOTHING = Output(has_any=True)
SOME = Output(has_changed=True, has_any=True)


class Attempt:
    """An attempt that is looked at every ten seconds."""

    def __init__(self, rules: WasteRules = RULES) -> None:
        self.now = 1000.0
        self.rules = rules
        self.watch = WasteWatch(self.now)

    def go_on(
        self,
        minutes: float,
        output: Output | None = NOTHING,
        sm_pct: float | None = 0.0,
        mem_bytes: int | None = 12 * GIB,
        *,
        is_seen: bool = True,
        alone: bool = True,
    ) -> list[str]:
        """Let time pass; what the attempt wastes after it, with `!` if it is ended for it."""
        for _ in range(round(minutes * 6)):
            self.now += 10
            self.watch.see_output(output, self.now)
            samples: list[Sample] = [(self.now, mem_bytes, sm_pct)] if is_seen else []
            self.watch.see_gpu(samples, self.now, alone=alone)
        return self.found()

    def found(self) -> list[str]:
        verdicts = self.watch.judge(self.now, self.rules)
        return [each.mark.kind.value + "!" * each.ends for each in verdicts]

    def text(self) -> str:
        return self.watch.judge(self.now, self.rules)[0].mark.text


def test_an_attempt_that_holds_memory_and_computes_nothing_is_idle() -> None:
    attempt = Attempt()
    attempt.go_on(1, SOME, sm_pct=80.0)
    assert attempt.go_on(14.8, SOME) == []
    assert attempt.go_on(0.2, SOME) == ["idle"]
    assert attempt.text() == "15m without computing, holds 12.0 GiB"
    assert attempt.go_on(0.2, SOME, sm_pct=1.0) == []


def test_an_attempt_that_never_touches_its_gpu_is_idle_if_it_has_the_gpu_alone() -> None:
    attempt = Attempt()
    assert attempt.go_on(16, SOME, mem_bytes=0, alone=False) == []
    assert attempt.go_on(1, SOME, mem_bytes=0) == ["idle"]
    assert attempt.text() == "17m without computing"


def test_an_attempt_whose_load_is_unknown_is_never_idle() -> None:
    attempt = Attempt()
    assert attempt.go_on(600, SOME, sm_pct=None) == []
    assert attempt.go_on(600, SOME, is_seen=False) == []


@pytest.mark.parametrize("sm_pct", [0.0, 100.0])
def test_silence_with_unchanging_gpu_use_is_a_stall(sm_pct: float) -> None:
    attempt = Attempt(WasteRules(mark_stall_s=30 * MIN))
    attempt.go_on(5, SOME, sm_pct=70.0)
    assert attempt.go_on(30, sm_pct=sm_pct) == []  # the change itself was use
    assert attempt.go_on(0.2, sm_pct=sm_pct) == ["stalled"]
    assert attempt.text() == f"30m without output, metric or change of GPU use ({sm_pct:.0f} %)"


def test_output_a_metric_or_changing_gpu_use_end_a_stall() -> None:
    attempt = Attempt()
    attempt.go_on(1, SOME, sm_pct=100.0)
    assert attempt.go_on(31, sm_pct=100.0) == ["stalled"]
    assert attempt.go_on(0.2, SOME, sm_pct=100.0) == []
    assert attempt.go_on(31, sm_pct=100.0) == ["stalled"]
    assert attempt.go_on(0.2, sm_pct=90.0) == []
    assert attempt.go_on(31, sm_pct=90.0) == ["stalled"]
    assert attempt.go_on(0.2, sm_pct=90.0, mem_bytes=13 * GIB) == []


def test_training_that_writes_rarely_is_no_stall_while_its_load_varies() -> None:
    attempt = Attempt()
    attempt.go_on(1, SOME)
    for minute in range(120):
        assert attempt.go_on(0.5, sm_pct=95.0 + minute % 4) == []
        assert attempt.go_on(0.5, sm_pct=99.0) == []


def test_a_busy_attempt_that_never_wrote_anything_writes_elsewhere() -> None:
    mute = Output()
    attempt = Attempt(WasteRules(mark_stall_s=30 * MIN, end_stall_s=30 * MIN))
    assert attempt.go_on(600, mute, sm_pct=100.0) == []
    assert attempt.go_on(31, mute, sm_pct=0.0) == ["stalled!"]


def test_a_log_that_cannot_be_seen_proves_no_silence() -> None:
    attempt = Attempt(WasteRules(mark_stall_s=30 * MIN, end_stall_s=30 * MIN))
    attempt.go_on(1, SOME)
    assert attempt.go_on(600, None) == []
    assert attempt.go_on(29) == []
    assert attempt.go_on(2) == ["stalled!"]


def test_without_a_view_of_the_gpu_only_a_limit_of_the_user_counts_silence() -> None:
    attempt = Attempt()
    assert attempt.go_on(600, is_seen=False) == []
    attempt.rules = WasteRules(mark_stall_s=30 * MIN, end_stall_s=1000 * MIN)
    assert attempt.found() == []
    assert attempt.go_on(400, is_seen=False) == ["stalled!"]
    assert attempt.text() == "16h without output or metric"


def test_a_driver_that_stops_answering_starts_the_clocks_again() -> None:
    attempt = Attempt()
    attempt.go_on(14)
    attempt.go_on(5, is_seen=False)
    assert attempt.go_on(14) == []
    assert attempt.go_on(2) == ["idle"]


def test_time_without_a_look_at_the_output_is_no_silence() -> None:
    watch = WasteWatch(0.0)
    rules = WasteRules(end_stall_s=60.0)
    watch.see_output(SOME, 10.0)
    assert watch.judge(1000.0, rules) == []
    watch.see_output(NOTHING, 1000.0)
    assert [each.ends for each in watch.judge(1000.0, rules)] == [True]


def test_time_without_a_sample_is_not_idle_time() -> None:
    attempt = Attempt(WasteRules(mark_idle_s=20.0, mark_stall_s=20.0))
    attempt.go_on(1, SOME, sm_pct=70.0)
    assert attempt.go_on(0.4, is_seen=False) == []


def test_an_attempt_that_was_paused_begins_again() -> None:
    attempt = Attempt()
    assert attempt.go_on(31) == ["stalled", "idle"]
    attempt.watch.begin_again(attempt.now)
    assert attempt.found() == []
    assert attempt.go_on(14) == []


def test_a_limit_ends_and_a_shorter_default_marks_before() -> None:
    attempt = Attempt(WasteRules(mark_idle_s=15 * MIN, end_idle_s=60 * MIN))
    attempt.go_on(0.2, SOME, sm_pct=50.0)
    assert attempt.go_on(16, SOME) == ["idle"]
    assert attempt.go_on(45, SOME) == ["idle!"]
    attempt = Attempt(WasteRules(mark_idle_s=15 * MIN, end_idle_s=5 * MIN))
    assert attempt.go_on(6, SOME) == ["idle!"]


@pytest.mark.parametrize(("on_nan", "found"), [("mark", "diverged"), ("notify", "diverged")])
def test_values_that_are_not_finite_mark_or_end(on_nan: str, found: str) -> None:
    attempt = Attempt(WasteRules(on_nan=on_nan))  # type: ignore[arg-type]
    report = Output(has_changed=True, metrics=[Value("loss", math.nan, 120)])
    assert attempt.go_on(1, report) == [found]
    assert attempt.text() == "loss is nan since step 120"
    attempt.rules = WasteRules(on_nan="stop")
    assert attempt.found() == ["diverged!"]


def test_a_loss_in_the_log_counts_and_a_finite_one_takes_it_back() -> None:
    attempt = Attempt()
    shown = Output(has_changed=True, losses=[Value("loss", math.nan)] * 3)
    assert attempt.watch.needs_losses
    assert attempt.go_on(0.2, shown) == ["diverged"]
    assert attempt.watch.needs_losses
    assert attempt.text() == "loss is nan in its log"
    assert attempt.go_on(0.2, Output(has_changed=True, losses=[Value("loss", 0.5)])) == []
    assert not attempt.watch.needs_losses


Look = tuple[bool, "float | None"]  # whether the output changed, and the load
looks = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, 0.0, 0.0, 0.0, 50.0, 100.0, 100.0])),
    min_size=1,
    max_size=60,
)


@given(looks, st.sampled_from([20.0, 50.0, 100.0]))
def test_a_mark_means_that_nothing_else_was_seen_for_so_long(
    history: list[Look], limit_s: float
) -> None:
    """Against the whole history: who is marked was silent, and who was silent for long is marked."""
    rules = WasteRules(mark_stall_s=limit_s, mark_idle_s=limit_s)
    watch = WasteWatch(0.0)
    for number, (wrote, sm_pct) in enumerate(history, start=1):
        now = number * 10.0
        watch.see_output(Output(has_changed=wrote, has_any=True), now)
        watch.see_gpu([(now, GIB, sm_pct)], now, alone=True)
        found = {verdict.mark.kind for verdict in watch.judge(now, rules)}
        span = history[max(0, number - int(limit_s / 10)) : number]
        loads = {load for _wrote, load in span}
        is_long = number * 10 >= limit_s
        if Waste.IDLE in found:
            assert is_long
            assert not any(computes((now, GIB, load)) for load in loads)
        if Waste.STALLED in found:
            assert is_long
            assert not any(wrote for wrote, _load in span)
            assert len(loads - {None}) <= 1
        if is_long and loads == {0.0} and len(span) * 10 >= limit_s:
            assert Waste.IDLE in found
        quiet = history[max(0, number - int(limit_s / 10) - 1) : number]
        if len(quiet) * 10 > limit_s and set(quiet) == {(False, 0.0)}:
            assert Waste.STALLED in found


@given(looks)
def test_what_is_not_finite_is_all_that_marks_without_limits(history: list[Look]) -> None:
    watch = WasteWatch(0.0)
    for number, (wrote, sm_pct) in enumerate(history, start=1):
        watch.see_output(Output(has_changed=wrote, has_any=True), number * 1e6)
        watch.see_gpu([(number * 1e6, GIB, sm_pct)], number * 1e6, alone=True)
        assert watch.judge(number * 1e6, WasteRules()) == []
