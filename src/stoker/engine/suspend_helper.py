"""Runs the driver's checkpoint calls for a job, in a helper process that can be given up."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from stoker.core.suspension import time_limit_s
from stoker.engine.worker_process import ask
from stoker.errors import ConflictError, StokerError

_LIMIT_VARIABLE = "STOKER_SUSPEND_TIMEOUT_S"


class HelperOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a job, and the memory that it holds or needs on each GPU.

    `others_bytes` is the memory of jobs that are being suspended at the same time.
    """

    job: int
    root_pid: int
    cookie: str
    held_bytes: Mapping[str, int]
    others_bytes: int = 0


class HelperAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order.

    `refusal` is None if all of it was done. `try_again`: nothing was done, and a later try may succeed.
    `held_bytes` is the memory that the job held.
    """

    refusal: str | None = None
    try_again: bool = False
    held_bytes: Mapping[str, int] = {}


class SuspendHelper:
    """Starts a helper for each order. A helper over its time limit is killed, and told about."""

    def __init__(self, home: str) -> None:
        self._home = home

    async def suspend(self, order: HelperOrder) -> HelperAnswer:
        """Move the GPU memory of a job to host RAM; if that fails, let the job run on."""
        limit_s = self._limit_s(order)
        try:
            return await self._ask("suspend", order, limit_s)
        except ConflictError as error:  # nothing is changed
            return HelperAnswer(refusal=str(error))
        except TimeoutError:
            why = f"the NVIDIA driver did not suspend job {order.job} within {limit_s:g}s"
        except StokerError as error:
            why = str(error)
        return HelperAnswer(refusal=f"{why}; {await self._undo(order, limit_s)}")

    async def check(self, order: HelperOrder) -> HelperAnswer:
        """Make sure that the memory of a suspended job is in host RAM."""
        limit_s = self._limit_s(order)
        try:
            return await self._ask("check", order, limit_s)
        except TimeoutError:
            told = await self._tell_states(order)
            return HelperAnswer(
                refusal=f"the NVIDIA driver did not answer within {limit_s:g}s; {told}"
            )
        except StokerError as error:
            return HelperAnswer(refusal=str(error))

    async def resume(self, order: HelperOrder) -> HelperAnswer:
        """Move the memory of a job back to its GPUs, and let it go on."""
        limit_s = self._limit_s(order)
        try:
            return await self._ask("restore", order, limit_s)
        except ConflictError as error:
            return HelperAnswer(refusal=str(error))
        except TimeoutError:
            told = await self._tell_states(order)
            return HelperAnswer(
                refusal=f"the NVIDIA driver did not resume it within {limit_s:g}s; {told}"
            )
        except StokerError as error:  # the helper died: another one finishes its work
            return HelperAnswer(refusal=str(error), try_again=True)

    async def _undo(self, order: HelperOrder, limit_s: float) -> str:
        """Let a job run on whose suspension hangs. Returns what became of it."""
        try:
            answer = await self._ask("restore", order, limit_s)
        except (TimeoutError, StokerError):
            return await self._tell_states(order)
        return "it runs on" if answer.refusal is None else answer.refusal

    async def _tell_states(self, order: HelperOrder) -> str:
        """Ask another process for the states of the job's processes, and describe them."""
        try:
            answer = await self._ask("states", order, self._limit_s(order))
        except (TimeoutError, StokerError):
            return f"the driver does not answer at all: stoker kill {order.job} ends the job"
        return answer.refusal or ""

    async def _ask(self, name: str, order: HelperOrder, limit_s: float) -> HelperAnswer:
        data = await ask(self._home, name, order, limit_s)
        return msgspec.json.decode(data, type=HelperAnswer)

    @staticmethod
    def _limit_s(order: HelperOrder) -> float:
        text = os.environ.get(_LIMIT_VARIABLE, "")
        return float(text) if text else time_limit_s(order.held_bytes)
