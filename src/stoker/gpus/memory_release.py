"""Waiting for the GPU memory of ended attempts to be released."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

PATIENCE_S = 30.0
_FIRST_PAUSE_S = 0.02


class MemoryRelease(msgspec.Struct):
    """Processes of an ended attempt whose memory on a GPU is not released yet."""

    pids: frozenset[int]
    until_s: float
    pause_s: float = _FIRST_PAUSE_S  # doubles with each check


class MemoryReleases:
    """Pending releases by GPU and attempt: several attempts may end on one GPU at different times.

    The engine's thread calls `begin`; the sampler's thread calls `settle`.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], MemoryRelease] = {}

    def begin(self, gpu_key: str, attempt: str, pids: Collection[int], now: float) -> None:
        """Wait for the memory of these processes."""
        self._pending[gpu_key, attempt] = MemoryRelease(frozenset(pids), now + PATIENCE_S)

    def is_pending(self, gpu_key: str, now: float) -> bool:
        """Whether memory of a GPU is still waited for. The time limit holds even if the sampler hangs."""
        return any(
            key == gpu_key and now < release.until_s
            for (key, _attempt), release in list(self._pending.items())
        )

    def wait_s(self, now: float) -> float | None:
        """Return how long until the next wait times out; None if nothing is waited for."""
        left = [release.until_s - now for release in list(self._pending.values())]
        return min((left_s for left_s in left if left_s > 0), default=None)

    def gpus(self) -> set[str]:
        """Return the GPUs with pending releases."""
        return {gpu_key for gpu_key, _attempt in list(self._pending)}

    def pause_s(self, longest_s: float) -> float:
        """Return how long to wait before the next check."""
        return min([longest_s, *(each.pause_s for each in list(self._pending.values()))])

    def settle(
        self, present: Mapping[str, frozenset[int]], now: float, longest_s: float
    ) -> list[tuple[str, str, bool]]:
        """End the waits that are over, given the pids on each GPU. The flag tells whether one timed out."""
        settled = []
        for (gpu_key, attempt), release in list(self._pending.items()):
            held = not release.pids.isdisjoint(present.get(gpu_key, frozenset()))
            release.pause_s = min(2 * release.pause_s, longest_s)
            if not held or now >= release.until_s:
                del self._pending[gpu_key, attempt]
                settled.append((gpu_key, attempt, held))
        return settled
