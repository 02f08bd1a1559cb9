"""The context of the daemon's verbs: the queue's database, engine, listeners and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.admission import Admission
from stoker.engine.allocations import Allocations
from stoker.engine.asyncio_driver import AsyncioDriver
from stoker.engine.config import Config
from stoker.engine.engine import Engine
from stoker.engine.eta import Eta
from stoker.engine.event_broadcast import Broadcast
from stoker.engine.event_publisher import Publisher
from stoker.engine.failure_limit import FailureLimit
from stoker.engine.hooks import Hooks
from stoker.engine.meter import Meter
from stoker.engine.nodes import Nodes
from stoker.engine.queue_ranks import QueueRanks
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.searches import Searches
from stoker.engine.user_reservations import UserReservations
from stoker.engine.waste_monitor import WasteMonitor
from stoker.engine.worker_process import WorkerProcesses
from stoker.store.database import Database
from stoker.store.pending import PendingJobs
from stoker.store.queue_jobs import QueueJobs
from stoker.wire import WebPlace


class PageSwitch(Protocol):
    """Opens and closes the web page."""

    async def open(self, host: str | None, port: int | None, *, new_token: bool) -> WebPlace:
        """Open the page, or move it to another address."""

    async def close(self) -> None:
        """Close the page if it is open."""


class QueueContext(msgspec.Struct, kw_only=True, eq=False):
    """Everything that a service function needs. Belongs to one event loop."""

    home: str
    database: Database
    jobs: QueueJobs
    engine: Engine
    driver: AsyncioDriver
    events: Broadcast
    publisher: Publisher
    meter: Meter
    pending: PendingJobs
    admission: Admission
    reservations: UserReservations
    failure_limit: FailureLimit
    hooks: Hooks
    eta: Eta
    allocations: Allocations
    ranks: QueueRanks
    waste: WasteMonitor
    config: Config
    since: float
    supervisor_pids: Callable[[], list[int]]
    parse_slots: Callable[[str], tuple[Slot, ...]]
    slots_changed: Callable[[], None]
    no_gpu_reason: str | None = None
    worker_tasks: WorkerProcesses
    searches: Searches
    stopping: asyncio.Future[bool]  # done when the daemon is to stop; True kills all jobs
    page: PageSwitch | None = None
    nodes: Nodes | None = None  # of a cluster
    viewers: int = 0  # clients that watch the GPUs now

    def look(self) -> Look | None:
        """The last look at the GPUs; None if there is none that is recent."""
        gpu_monitor = self.engine.gpus.monitor
        return None if gpu_monitor is None else gpu_monitor.look()

    def running(self, job: int) -> RunningAttempt | None:
        """The live attempt of a job, if it has one."""
        for running in self.engine.slot_table.running.values():
            if running.attempt.job == job:
                return running
        return None
