"""The memory of attempts that have ended, until it is back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

PATIENCE_S = 30.0
_FIRST_PAUSE_S = 0.02


class MemoryRelease(msgspec.Struct):
    """Processes of an attempt that has ended, whose memory is to come back on a GPU."""

    pids: frozenset[int]
    until_s: float
    pause_s: float = _FIRST_PAUSE_S  # doubled from look to look


class MemoryReleases:
    """Whose memory is waited for, by GPU and attempt: several may end on one GPU, each in its own time.

    Begun in the engine's thread, settled in the sampler's.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], MemoryRelease] = {}

    def begin(self, gpu_key: str, attempt: str, pids: Collection[int], now: float) -> None:
        """Wait for the memory of these processes."""
        self._pending[gpu_key, attempt] = MemoryRelease(frozenset(pids), now + PATIENCE_S)

    def is_pending(self, gpu_key: str, now: float) -> bool:
        """Whether memory of a GPU is still waited for, also where nobody looks whether it is back."""
        return any(
            key == gpu_key and now < release.until_s
            for (key, _attempt), release in list(self._pending.items())
        )

    def wait_s(self, now: float) -> float | None:
        """How long until the next one is waited for no more; None if there is none."""
        left = [release.until_s - now for release in list(self._pending.values())]
        return min((left_s for left_s in left if left_s > 0), default=None)

    def gpus(self) -> set[str]:
        """The GPUs whose memory is not all back yet."""
        return {gpu_key for gpu_key, _attempt in list(self._pending)}

    def pause_s(self, longest_s: float) -> float:
        """How long to wait for the next look."""
        return min([longest_s, *(each.pause_s for each in list(self._pending.values()))])

    def settle(
        self, present: Mapping[str, frozenset[int]], now: float, longest_s: float
    ) -> list[tuple[str, str, bool]]:
        """What need not be waited for any more, by who is on which GPU; and whether it is only overdue."""
        settled = []
        for (gpu_key, attempt), release in list(self._pending.items()):
            held = not release.pids.isdisjoint(present.get(gpu_key, frozenset()))
            release.pause_s = min(2 * release.pause_s, longest_s)
            if not held or now >= release.until_s:
                del self._pending[gpu_key, attempt]
                settled.append((gpu_key, attempt, held))
        return settled
