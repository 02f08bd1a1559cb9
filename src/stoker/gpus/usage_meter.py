"""Usage of GPUs by one attempt, accumulated from its first sample to its last."""

from __future__ import annotations

from collections import deque

from stoker.core.usage import AttemptUse, JobUse

_STEP_PCT = 5
_STEPS = 100 // _STEP_PCT + 1
_RISE = 1.01  # a smaller rise does not count as growth
_HISTORY = 300


class UsageMeter:
    """Accumulates samples in constant memory, however long the attempt runs."""

    def __init__(self, key: str, at_s: float) -> None:
        self.history: deque[tuple[float, int | None, float | None]] = deque(maxlen=_HISTORY)
        self._key = key
        self._begun_s = at_s
        self._last_s = at_s
        self._rose_s = at_s
        self._mem_bytes: dict[str, int] | None = None
        self._sm_pct: float | None = None
        self._peak_bytes: int | None = None
        self._mem_sum = self._mem_count = 0
        self._sm_sum = 0.0
        self._sm_steps = [0] * _STEPS
        self.samples = 0
        self._alone = True

    def add(
        self, at_s: float, mem_bytes: dict[str, int] | None, sm_pct: float | None, *, alone: bool
    ) -> None:
        """Add one sample: memory by GPU and the share of a GPU's time; None where unknown."""
        self._last_s = at_s
        self.samples += 1
        self._alone = self._alone and alone
        self._mem_bytes, self._sm_pct = mem_bytes, sm_pct
        most = None if mem_bytes is None else max(mem_bytes.values(), default=0)
        if most is not None:
            self.note_peak(at_s, most)
            self._mem_sum += most
            self._mem_count += 1
        if sm_pct is not None:
            self._sm_sum += sm_pct
            self._sm_steps[min(_STEPS - 1, round(sm_pct / _STEP_PCT))] += 1
        self.history.append((at_s, most, sm_pct))

    def note_peak(self, at_s: float, mem_bytes: int) -> None:
        """Note memory that was seen on one GPU, also between two samples."""
        if self._peak_bytes is None or mem_bytes > self._peak_bytes * _RISE:
            self._rose_s = at_s
        self._peak_bytes = max(mem_bytes, self._peak_bytes or 0)

    def note_company(self) -> None:
        """Note that another attempt has started on its GPUs, also between two samples."""
        self._alone = False

    @property
    def watched_s(self) -> float:
        """Seconds between the first sample and the last."""
        return self._last_s - self._begun_s

    @property
    def mem_bytes(self) -> dict[str, int]:
        """The memory in the last sample, by GPU."""
        return self._mem_bytes or {}

    def now(self) -> JobUse:
        """Return the attempt as it is now."""
        return JobUse(
            key=self._key,
            mem_bytes=self._mem_bytes,
            sm_pct=self._sm_pct,
            watched_s=self._last_s - self._begun_s,
            flat_s=self._last_s - self._rose_s,
            so_far=self.sum_up(),
        )

    def sum_up(self) -> AttemptUse:
        """Return the attempt's usage so far."""
        sm_count = sum(self._sm_steps)
        return AttemptUse(
            mem_peak_bytes=self._peak_bytes,
            mem_mean_bytes=self._mem_sum // self._mem_count if self._mem_count else None,
            sm_mean_pct=round(self._sm_sum / sm_count, 1) if sm_count else None,
            sm_p50_pct=self._quantile(0.5) if sm_count else None,
            sm_p90_pct=self._quantile(0.9) if sm_count else None,
            samples=self.samples,
            alone=self._alone,
        )

    def _quantile(self, share: float) -> float:
        wanted = share * sum(self._sm_steps)
        seen = 0
        for step, count in enumerate(self._sm_steps):
            seen += count
            if seen >= wanted:
                return float(step * _STEP_PCT)
        return 100.0
