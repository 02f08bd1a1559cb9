"""Child processes of the daemon with a time limit, and the worker tasks that run in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit

TIMEOUT_S = 120.0
_AT_ONCE = 2
_END_WITHIN_S = 5.0

# Exit codes of worker tasks. The first class that fits is used.
CODES: tuple[tuple[type[StokerError], int], ...] = (
    (UsageError, 3),
    (NotFoundError, 4),
    (ConflictError, 5),
    (StokerError, 6),
)


class ChildResult(NamedTuple):
    """How a child process ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def last_error(self) -> str:
        """The last line of its standard error, shortened."""
        return self.err.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]


async def run_child(
    argv: list[str],
    data: bytes,
    env: Mapping[str, str],
    timeout_s: float,
    *,
    stdout: int = asyncio.subprocess.PIPE,
) -> ChildResult:
    """Run a command in its own session, with additional variables and `data` as its input.

    Kills its process group after `timeout_s` (TimeoutError), or if the caller is cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        *with_original_limit(argv),
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
        cwd="/",
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(data), timeout_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):  # a process can hang in a driver
            await asyncio.wait_for(process.wait(), _END_WITHIN_S)
        if isinstance(error, asyncio.TimeoutError):  # before Python 3.11 a class of its own
            raise TimeoutError from None
        raise
    assert process.returncode is not None
    return ChildResult(process.returncode, out or b"", err)


class _Refusal(msgspec.Struct):
    detail: str
    field: str | None


async def ask(home: str, name: str, order: object, timeout_s: float) -> bytes:
    """Run one worker task. Returns its answer, or raises its StokerError, or TimeoutError."""
    argv = module_command("stoker.worker_tasks", name, home)
    child = await run_child(argv, msgspec.json.encode(order), {"STOKER_HOME": home}, timeout_s)
    if child.code == 0:
        return child.out
    kind = next((kind for kind, code in CODES if code == child.code), None)
    if kind is None:
        raise StokerError(f"the worker task failed with exit {child.code}: {child.last_error}")
    refusal = msgspec.json.decode(child.out, type=_Refusal)
    raise kind(refusal.detail, field=refusal.field)


class WorkerProcesses:
    """Runs `python -m stoker.worker_tasks`, a few at a time. Belongs to one event loop."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def send(self, name: str, order: object) -> bytes:
        """Run a worker task. Returns its answer, or raises its StokerError."""
        async with self._few:
            try:
                return await ask(self._home, name, order, TIMEOUT_S)
            except TimeoutError:
                raise ConflictError(
                    f"this took longer than {TIMEOUT_S:g}s and was given up: ask for less"
                ) from None
