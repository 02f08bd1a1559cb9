"""The controller of a sweep as a child process of the daemon.

It writes lines of JSON: notices, and once that it has begun. It ends when its sweep is over, or when its
input ends because the daemon has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable

import msgspec

from stoker.engine.worker_process import CODES
from stoker.errors import StokerError
from stoker.interpreter import module_command
from stoker.open_files import with_original_limit
from stoker.wire import SearchBegun

_LINE_BYTES = 1 << 20
_KEPT_LINES = 20
_END_WITHIN_S = 5.0


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line that a controller writes."""

    notice: str | None = None
    begun: SearchBegun | None = None
    detail: str | None = None  # why it gives up
    field: str | None = None


class ControllerProcess:
    """Runs one controller from its start to its end."""

    def __init__(self, home: str, order: bytes, on_line: Callable[[Line], None]) -> None:
        self._home = home
        self._order = order
        self._on_line = on_line
        self._error: Line | None = None

    async def run(self) -> None:
        """Return when the sweep is over; StokerError if the controller ended before. Kill it if cancelled."""
        try:
            process = await self._spawn()
        except OSError as error:
            raise StokerError(f"cannot start its controller: {error.strerror}") from error
        errors = asyncio.ensure_future(_last_lines(process.stderr))
        try:
            assert process.stdin is not None
            process.stdin.write(self._order + b"\n")  # and it stays open
            await self._read(process.stdout)
            code = await process.wait()
            last_lines = await errors
        finally:
            errors.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_WITHIN_S)
        if code:
            raise self._explain(code, last_lines)

    async def _spawn(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *with_original_limit(module_command("stoker.worker_tasks", "steer", self._home)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "STOKER_HOME": self._home},
            cwd="/",
            start_new_session=True,
            limit=_LINE_BYTES,
        )

    async def _read(self, lines: asyncio.StreamReader | None) -> None:
        assert lines is not None
        async for text in lines:
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.MsgspecError:
                continue  # a library has printed it
            if line.detail is not None:
                self._error = line
            else:
                self._on_line(line)

    def _explain(self, code: int, errors: list[str]) -> StokerError:
        if self._error is not None and self._error.detail is not None:
            kind = next((kind for kind, number in CODES if number == code), StokerError)
            return kind(self._error.detail, field=self._error.field)
        how = f"signal {-code}" if code < 0 else f"exit {code}"
        return StokerError(": ".join([f"its controller ended with {how}", *errors[-1:]]))


async def _last_lines(errors: asyncio.StreamReader | None) -> list[str]:
    assert errors is not None
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    with contextlib.suppress(ValueError):  # a line that is too long
        async for line in errors:
            kept.append(line.decode("utf-8", "replace").strip()[:200])
    return list(kept)
