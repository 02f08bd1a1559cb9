"""Sends processes on worker tasks, a few at a time: what they take their time for holds nobody up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import msgspec

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit

PATIENCE_S = 120.0
_AT_ONCE = 2

# How an worker task went: the first kind that fits, by its exit code.
CODES: tuple[tuple[type[StokerError], int], ...] = (
    (UsageError, 3),
    (NotFoundError, 4),
    (ConflictError, 5),
    (StokerError, 6),
)


class _Refusal(msgspec.Struct):
    detail: str
    field: str | None


class WorkerProcesses:
    """Runs `python -m stoker.worker_tasks` for whoever asks. Belongs to one event loop."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def send(self, name: str, order: object) -> bytes:
        """What an worker task brings back; the StokerError that it met."""
        async with self._few:
            process = await asyncio.create_subprocess_exec(
                *with_original_limit(module_command("stoker.worker_tasks", name, self._home)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "STOKER_HOME": self._home},
                cwd="/",
                start_new_session=True,
            )
            try:
                talk = process.communicate(msgspec.json.encode(order))
                answer, said = await asyncio.wait_for(talk, PATIENCE_S)
            except (TimeoutError, asyncio.TimeoutError):
                raise ConflictError(
                    f"this took longer than {PATIENCE_S:g} s and was given up: ask for less"
                ) from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
        if process.returncode == 0:
            return answer
        kind = next((kind for kind, code in CODES if code == process.returncode), None)
        if kind is None:
            last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise StokerError(f"the worker task failed with exit {process.returncode}: {last}")
        refusal = msgspec.json.decode(answer, type=_Refusal)
        raise kind(refusal.detail, field=refusal.field)
