"""Session of the bridge with one node: heartbeats, the node's lease, and the daemon's stream to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.agent_messages import (
    CloseStream,
    Departure,
    Heartbeat,
    OpenStream,
    ReadReports,
    WriteOrders,
)
from stoker.bridge.checkpoint_proxy import HeadFiles
from stoker.bridge.file_writers import FileWriters
from stoker.bridge.log_forwarder import LogPiece, write_piece
from stoker.bridge.staging_proxy import StagingProxy
from stoker.engine.poll_driver import boot_clock_s
from stoker.executors.node_reports import (
    Away,
    ClockOffset,
    GpusSampled,
    Introduction,
    Joined,
    LeaseExpired,
    Leaving,
    Left,
    NodeReport,
    Notice,
)

_BEAT_S = 1.0
_PATIENCE_S = 3.0
_CALL_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_SETTLED_S = 10.0  # after a stream has lasted for so long, pauses are short again
_SLOWER_S = 0.05
# Clocks of two machines differ in speed, and a killed process tree takes a moment to end.
_MARGIN_S = 2.0


class NodeLeftError(Exception):
    """A node has left the cluster."""


class NodeSession:
    """Everything that the bridge knows about one node. Its agent may be replaced meanwhile."""

    def __init__(
        self,
        node: str,
        name: str,
        report: Callable[[NodeReport], None],
        lease_s: float,
        files: HeadFiles,
        leased_until_s: float = 0.0,
    ) -> None:
        self.node = node
        self.name = name
        self.lease_s = lease_s
        self.watch_gpus = False
        self._report = report
        self.files = files
        self._introduction: Introduction | None = None
        self._offset = ClockOffset()
        self._quickest_s = float("inf")
        self._agent: AgentClient | None = None
        self._away: str | None = "it has not answered yet"
        # The bridge before this one may just have granted a whole lease.
        self._granted_until_s = max(boot_clock_s() + lease_s, leased_until_s)
        self._is_expired = False
        self._is_leaving = False
        self._stream: asyncio.Task[bool] | None = None
        self._passing: asyncio.Future[None] | None = None
        self._short_streams = 0  # in a row that the node ended soon
        self._reopen_at = 0.0
        self._log_thread = ThreadPoolExecutor(1)
        self._writers = FileWriters()

    def report_state(self) -> None:
        """Report the state of the node to a new daemon."""
        if self._is_leaving:
            self._report(Leaving(self.node))
        elif self._introduction is not None and self._away is None:
            self._report(Joined(self._introduction, self._offset))
        elif self._is_expired:
            self._report(LeaseExpired(self.node, self._expiry_reason()))
        else:
            self._report(Away(self.node, self._away or ""))

    async def mind(self, agent: AgentClient, introduction: Introduction) -> None:
        """Exchange heartbeats with an agent; raise AgentLostError when it no longer answers."""
        self._agent = agent
        self._quickest_s = float("inf")
        self.name = introduction.name
        echo: float | None = None
        while True:
            if echo is not None:
                # A longer lease that was granted before still lasts.
                until_s = boot_clock_s() + self.lease_s
                self._granted_until_s = max(self._granted_until_s, until_s)
            asked_s, asked_at = boot_clock_s(), time.time()
            beat = Heartbeat(echo, self.lease_s, self.watch_gpus)
            call = asyncio.ensure_future(agent.call(beat, _CALL_S))
            done, _pending = await asyncio.wait((call,), timeout=_PATIENCE_S)
            if not done:
                self.lose("it does not answer")
            was_echoed = echo is not None
            reply = await call
            echo = reply.stamp_s
            self._compare(asked_s, asked_at, echo, reply.time_s)
            if reply.departure is not Departure.NONE:
                self._on_departure(reply.departure)
            elif was_echoed and self._may_rejoin():
                self._away, self._is_expired, self._is_leaving = None, False, False
                self._introduction = introduction
                self._report(Joined(introduction, self._offset))
            if reply.sample is not None or self.watch_gpus:
                self._report(GpusSampled(self.node, reply.sample))
            await asyncio.sleep(_BEAT_S if was_echoed else 0.0)

    def _may_rejoin(self) -> bool:
        """Whether to report the node, which answers, as joined again."""
        if self._away is None and not self._is_leaving:
            return False
        return time.monotonic() >= self._reopen_at

    def _compare(self, asked_s: float, asked_at: float, told_s: float, told_at: float) -> None:
        """Compare the clocks by a reply, unless an earlier reply was much quicker."""
        took_s = boot_clock_s() - asked_s
        if took_s > self._quickest_s + _SLOWER_S:
            return
        self._quickest_s = min(self._quickest_s, took_s)
        behind_s = (asked_at + time.time()) / 2 - told_at
        # A difference of about the duration of the call may be none.
        of_day_s = round(behind_s) if abs(behind_s) > took_s / 2 + 1.0 else 0
        self._offset = ClockOffset((asked_s + boot_clock_s()) / 2 - told_s, of_day_s)

    def _on_departure(self, departure: Departure) -> None:
        """Report once that the node is leaving; raise NodeLeftError when it has left."""
        if departure is Departure.LEFT:
            self._report(Left(self.node))
            raise NodeLeftError
        if not self._is_leaving:
            self._is_leaving = True
            self._report(Leaving(self.node))

    def lose(self, reason: str) -> None:
        """Report that the node does not answer."""
        if self._away is None:
            self._away = reason
            self._report(Away(self.node, reason))

    def check_lease(self) -> None:
        """Report once that the node's jobs cannot be running any more, and none of their files is written."""
        if self._away is None or self._is_expired:
            return
        if boot_clock_s() > self._granted_until_s + _MARGIN_S:
            self.close()
            if not self._writers.are_idle:
                return
            self._is_expired = True
            self._report(LeaseExpired(self.node, self._expiry_reason()))

    def _expiry_reason(self) -> str:
        return f"{self.name} was cut off for longer than its lease of {self.lease_s:g}s"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect the daemon with the node's supervisor until one of them ends the stream."""
        if self._passing is not None and not self._passing.done():
            # The daemon closed its last stream: the orders that it sent there still count.
            await asyncio.wait((self._passing,), timeout=_PATIENCE_S)
        if self._stream is not None:
            self._stream.cancel()
        task = self._stream = asyncio.ensure_future(self._run_stream(reader, writer))
        began = time.monotonic()
        with contextlib.suppress(asyncio.CancelledError):
            if not await task:
                await asyncio.sleep(self._pause_s(time.monotonic() - began))
        if self._stream is task:
            self._stream = None

    def _pause_s(self, lasted_s: float) -> float:
        """Return how long the daemon must wait for the next stream after one that the node has ended."""
        if lasted_s >= _SETTLED_S:
            self._short_streams = 0
        self._short_streams += 1
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._short_streams - 1, 16))

    async def _run_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Open a stream and pass on orders and reports. Returns whether it is the daemon that ended it."""
        agent, stream = self._agent, uuid.uuid4().hex
        if agent is None:
            return False
        try:
            problem = await agent.call(OpenStream(stream), _CALL_S)
            if problem is None:
                return await self._pass_both_ways(agent, stream, reader, writer)
            self._reopen_at = time.monotonic() + self._pause_s(0.0)
            self.lose(problem)
        except AgentLostError:
            pass  # the heartbeat reports it
        except OSError as error:
            self._notify(f"cannot connect to {self.name}: {error}")
        finally:
            with contextlib.suppress(AgentLostError):
                await agent.call(CloseStream(stream), _PATIENCE_S)
        return False

    async def _pass_both_ways(
        self,
        agent: AgentClient,
        stream: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Pass on orders and reports. Returns whether it is the daemon that ended the stream."""

        async def send(lines: list[bytes]) -> None:
            if not await agent.call(WriteOrders(stream, lines), _CALL_S):
                raise AgentLostError("the stream has ended")

        staging_proxy = StagingProxy(
            agent, send, writer.write, self._notify, self.files, self._writers
        )
        directions: list[asyncio.Future[None]] = []
        try:
            self._passing = asyncio.ensure_future(_pass_orders(staging_proxy, reader))
            reports = self._pass_reports(agent, stream, staging_proxy, writer)
            directions += (self._passing, asyncio.ensure_future(reports), staging_proxy.broken)
            done, _pending = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(each.exception(), OSError) for each in done):
                await asyncio.wait((self._passing,), timeout=_PATIENCE_S)  # the daemon hung up
            passing = self._passing
            return passing.done() and not passing.cancelled() and passing.exception() is None
        finally:
            staging_proxy.close()
            for direction in directions:
                direction.cancel()
            for direction in directions:
                with contextlib.suppress(asyncio.CancelledError, AgentLostError, OSError):
                    await direction

    def _notify(self, text: str) -> None:
        self._report(Notice(text))

    async def _pass_reports(
        self,
        agent: AgentClient,
        stream: str,
        staging_proxy: StagingProxy,
        writer: asyncio.StreamWriter,
    ) -> None:
        while (output := await agent.call(ReadReports(stream), _CALL_S)) is not None:
            if output.pieces:
                await self._write_logs(output.pieces)
            staging_proxy.bring(output.reports)
            await writer.drain()

    async def _write_logs(self, pieces: list[LogPiece]) -> None:
        """Write log pieces in a thread: a file system that hangs must not delay reports of other nodes."""
        written = self._writers.run(_write_pieces, pieces, executor=self._log_thread)
        for problem in await written:
            self._notify(f"cannot write a log of a job on {self.name}: {problem}")

    def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.cancel()


def _write_pieces(pieces: list[LogPiece]) -> list[str]:
    """Write as many pieces as possible. Returns the failures."""
    problems = []
    for piece in pieces:
        try:
            write_piece(piece)
        except OSError as error:
            problems.append(f"{error.strerror}: {piece.path}")
    return problems


async def _pass_orders(staging_proxy: StagingProxy, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(1 << 20):
        await staging_proxy.pass_on(data)
