"""A daemon without processes: the real service over a fake executor, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from patience import PATIENCE_S
from stoker.api.app import Api
from stoker.api.connection import ServerConnection
from stoker.api.server import bind, serve
from stoker.client.client import Client
from stoker.core.job import Attempt
from stoker.core.slot import Slot
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.config import Config
from stoker.engine.gpu_users import Board
from stoker.engine.launch_spec import log_path
from stoker.engine.queue import QueueEntry
from stoker.executors.contract import Launch
from stoker.service.queue_builder import QueueSources, assemble
from stoker.store.database import Database
from stoker.testing.executor import FakeExecutor, run_until_ended
from stoker.wire import NewJob, Submission

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


class ApiServer:
    """Serves a home from a thread of its own until it is closed."""

    def __init__(
        self,
        home: Path,
        script: Callable[[Launch], int | None] = run_until_ended,
        connection: type[ServerConnection] = ServerConnection,
        board: Board | None = None,
    ) -> None:
        self.home = str(home)
        self._script = script
        self._connection = connection
        self._board = board
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self._ready.result(10)

    def call(self, function: Callable[[], T]) -> T:
        """Call something in the daemon's thread."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return answer.result(PATIENCE_S)

    def end(self, job: int, status: int = 0, attempt: int = 1) -> None:
        """Let a job's process end."""
        self.until(lambda: f"{job}.{attempt}" in self.executor.running)
        self.call(lambda: self.executor.end(f"{job}.{attempt}", status))

    def until(self, fact: Callable[[], object], deadline_s: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + deadline_s
        while not self.call(fact):
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.002)

    def add(self, *commands: str, **common: object) -> int:
        """Add jobs that need no GPU; the id of the first."""
        submission = Submission(
            request_id="",
            jobs=[NewJob(command=command) for command in commands],
            cwd="/",
            **{"gpus": 0, **common},  # type: ignore[arg-type]
        )
        with Client(self.home) as client:
            return client.add(submission)[0].first

    @contextlib.contextmanager
    def raw(self) -> Iterator[socket.socket]:
        """Connect without a client."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(f"{self.home}/stoker.sock")
            yield sock

    def close(self) -> None:
        """Stop in an orderly way."""
        with contextlib.suppress(RuntimeError):  # its test has ended it
            self.loop.call_soon_threadsafe(self.server.cancel)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        database = Database(f"{self.home}/stoker.db")
        self.executor = FakeExecutor(script=self._script)

        def prepare(attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
            assert entry.facts is not None
            return LaunchSpec(["true"], log_path(self.home, entry.facts, attempt.number))

        sources = QueueSources(
            home=self.home,
            database=database,
            config=Config(database),
            executor=self.executor,
            slots=tuple(Slot(n, (str(n),), (f"uuid{n}",)) for n in range(2)),
            board=self._board,
            clock=time.monotonic,
            prepare=prepare,
        )
        self.context = assemble(sources)
        self.context.engine.slot_table.cpu_places = 2
        driver = self.context.driver
        try:
            with bind(f"{self.home}/stoker.sock") as listener:
                driver.start()
                app = Api(self.context)
                self.server = asyncio.ensure_future(serve(app, listener, self._connection))
                self._ready.set_result(None)
                with contextlib.suppress(asyncio.CancelledError):
                    await self.server
        finally:
            driver.stop()
            self.executor.close()
            database.close()
