"""Judgement of attempts that waste a GPU: diverged, stalled or idle. Time is an argument.

- Diverged: a value that the run reports stays not finite.
- Stalled: no output, no metric and no change of GPU use. A collective operation that hangs keeps a GPU
  100 % busy, so unchanging use counts, and not only none.
- Idle: it has a GPU, and computes nothing there.

What cannot be seen is never held against an attempt: its clocks begin again when it can be seen.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from stoker.core.divergence import ReportedValues, Value
from stoker.core.durations import format_roughly
from stoker.core.job import OnNan
from stoker.core.size import format_bytes
from stoker.core.usage import Sample, computes

_BLIND_S = 30.0  # without a sample for so long, the use of a GPU is unknown
_SM_TOLERANCE_PCT = 2.0
_MEM_TOLERANCE = 0.01
_OF_LOG = " in its log"


class Waste(str, enum.Enum):
    """How an attempt wastes its GPU. The first that applies is shown."""

    DIVERGED = "diverged"
    STALLED = "stalled"
    IDLE = "idle"


class Mark(msgspec.Struct, frozen=True):
    """A waste, since when by the engine's clock, and the evidence in words."""

    kind: Waste
    since: float
    text: str


class WasteRules(msgspec.Struct, frozen=True, kw_only=True):
    """After how long an attempt is marked, and after how long it is ended; None: never.

    A time after which it is ended marks it too.
    """

    on_nan: OnNan = "mark"
    mark_stall_s: float | None = None
    mark_idle_s: float | None = None
    end_stall_s: float | None = None
    end_idle_s: float | None = None

    @property
    def shortest_s(self) -> float:
        """The shortest of the times."""
        times = (self.mark_stall_s, self.mark_idle_s, self.end_stall_s, self.end_idle_s)
        return min((each for each in times if each is not None), default=float("inf"))


class Verdict(msgspec.Struct, frozen=True):
    """A mark, and whether the rules end the attempt for it."""

    mark: Mark
    ends: bool


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt has written since the last look.

    `has_changed`: its log or its metrics have. `has_any`: there was output or a metric at any time.
    """

    has_changed: bool = False
    has_any: bool = False
    metrics: Sequence[Value] = ()
    losses: Sequence[Value] = ()  # that its log shows


class _Band:
    """The range in which a figure has stayed."""

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self._is_empty = True

    def leave(self, value: float, tolerance: float) -> bool:
        """Add a figure; True if it lies outside of the range, which then begins again with it."""
        low, high = min(self.low, value), max(self.high, value)
        has_left = self._is_empty or high - low > tolerance
        self.low, self.high = (value, value) if has_left else (low, high)
        self._is_empty = False
        return has_left


class WasteWatch:
    """What is known of one running attempt."""

    def __init__(self, now: float) -> None:
        self._metrics = ReportedValues()
        self._losses = ReportedValues(_OF_LOG)
        self._wrote_at = self._gpu_changed_at = self._computed_at = now
        self._seen_output_at = now
        self._can_see_output = False
        self._has_written = False
        self._seen_gpu_at: float | None = None
        self._sm_pct, self._mem_bytes = _Band(), _Band()
        self._held_bytes: int | None = None
        self._alone = False

    @property
    def needs_losses(self) -> bool:
        """Whether finite losses in the log matter now, and not only those that are not finite."""
        return self._losses.needs_finite

    def begin_again(self, now: float) -> None:
        """Start the clocks again: the attempt was paused, or could not be observed."""
        self._wrote_at = self._gpu_changed_at = self._computed_at = now

    def see_output(self, output: Output | None, now: float) -> None:
        """Note what the attempt wrote since the last look; None if that is unknown."""
        self._can_see_output = output is not None
        self._seen_output_at = now
        if output is None or output.has_changed:
            self._wrote_at = now
        if output is None:
            return
        self._has_written = self._has_written or output.has_any
        for value in output.metrics:
            self._metrics.note(value, now)
        for value in output.losses:
            self._losses.note(value, now)

    def see_gpu(self, samples: Sequence[Sample], now: float, *, alone: bool) -> None:
        """Note the new samples of its GPU use. `alone`: no other attempt was on its GPUs."""
        self._alone = alone
        if any(map(computes, samples)):
            self._computed_at = now
        for _at, mem_bytes, sm_pct in samples:
            if sm_pct is None:
                continue
            self._seen_gpu_at = now
            self._held_bytes = mem_bytes
            has_left = self._sm_pct.leave(sm_pct, _SM_TOLERANCE_PCT)
            held = mem_bytes or 0
            if self._mem_bytes.leave(held, _MEM_TOLERANCE * held) or has_left:
                self._gpu_changed_at = now
        if self._seen_gpu_at is not None and now - self._seen_gpu_at > _BLIND_S:
            self._gpu_changed_at = self._computed_at = now

    def judge(self, now: float, rules: WasteRules) -> list[Verdict]:
        """All that the attempt wastes now, the first that is to be shown first."""
        found = (self._judge_values(now, rules), self._judge_stall(rules))
        verdicts = [*found, self._judge_idle(rules)]
        return [verdict for verdict in verdicts if verdict is not None]

    def _judge_values(self, now: float, rules: WasteRules) -> Verdict | None:
        found = self._metrics.divergence(now) or self._losses.divergence(now)
        if found is None:
            return None
        mark = Mark(Waste.DIVERGED, found.since, found.text)
        return Verdict(mark, rules.on_nan == "stop")

    def _judge_stall(self, rules: WasteRules) -> Verdict | None:
        if not self._can_see_output:
            return None
        if self._seen_gpu_at is None:
            # Its output alone is evidence only for the user who knows how often the job writes.
            since, until = self._wrote_at, self._seen_output_at
            mark_after_s = rules.end_stall_s
            what = "output or metric"
        else:
            if self._sm_pct.high > 0 and not self._has_written:
                return None  # it computes, and its output may go elsewhere
            since = max(self._wrote_at, self._gpu_changed_at)
            until = min(self._seen_output_at, self._seen_gpu_at)
            mark_after_s = rules.mark_stall_s
            what = f"output, metric or change of GPU use ({self._sm_pct.high:.0f} %)"
        mark = Mark(Waste.STALLED, since, f"{format_roughly(until - since)} without {what}")
        return _judge_time(mark, until - since, mark_after_s, rules.end_stall_s)

    def _judge_idle(self, rules: WasteRules) -> Verdict | None:
        if self._seen_gpu_at is None or not (self._held_bytes or self._alone):
            return None  # beside others, a job without memory there takes nothing from them
        idle_s = self._seen_gpu_at - self._computed_at
        held = f", holds {format_bytes(self._held_bytes)}" if self._held_bytes else ""
        text = f"{format_roughly(idle_s)} without computing{held}"
        mark = Mark(Waste.IDLE, self._computed_at, text)
        return _judge_time(mark, idle_s, rules.mark_idle_s, rules.end_idle_s)


def _judge_time(
    mark: Mark, passed_s: float, mark_after_s: float | None, end_after_s: float | None
) -> Verdict | None:
    ends = end_after_s is not None and passed_s >= end_after_s
    is_marked = mark_after_s is not None and passed_s >= mark_after_s
    return Verdict(mark, ends) if ends or is_marked else None
