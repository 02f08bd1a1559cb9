"""What the daemon's verbs work on: the queue's database, its engine, and whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.board import Running
from stoker.engine.brake import Brake
from stoker.engine.broadcast import Broadcast
from stoker.engine.config import Config
from stoker.engine.errand import Errands
from stoker.engine.eta import Eta
from stoker.engine.gate import Gate
from stoker.engine.hooks import Hooks
from stoker.engine.loop import Engine
from stoker.engine.publisher import Publisher
from stoker.engine.pulse import Pulse
from stoker.store.database import Database
from stoker.store.queued import QueuedJobs
from stoker.store.shelf import Shelf
from stoker.wire import WebPlace


class Page(Protocol):
    """The web page, which can be opened."""

    async def open(self, host: str | None, port: int | None, *, new_token: bool) -> WebPlace:
        """Open it, find it open, or move it."""

    async def close(self) -> None:
        """Close it, if it is open."""


class Hub:
    """Everything a service function needs. Belongs to one event loop."""

    def __init__(
        self,
        *,
        home: str,
        database: Database,
        jobs: QueuedJobs,
        engine: Engine,
        pulse: Pulse,
        events: Broadcast,
        publisher: Publisher,
        shelf: Shelf,
        gate: Gate,
        brake: Brake,
        hooks: Hooks,
        eta: Eta,
        config: Config,
        since: float,
        shepherd_pids: Callable[[], list[int]],
        parse_slots: Callable[[str], tuple[Slot, ...]],
        slots_changed: Callable[[], None],
        no_gpu_reason: str | None = None,
    ) -> None:
        self.home = home
        self.database = database
        self.jobs = jobs
        self.engine = engine
        self.pulse = pulse
        self.events = events
        self.publisher = publisher
        self.shelf = shelf
        self.gate = gate
        self.brake = brake
        self.hooks = hooks
        self.eta = eta
        self.config = config
        self.since = since
        self.shepherd_pids = shepherd_pids
        self.parse_slots = parse_slots
        self.slots_changed = slots_changed
        self.no_gpu_reason = no_gpu_reason
        self.errands = Errands(home)
        self.page: Page | None = None
        self.viewers = 0  # how many look at GPUs just now: somebody must be shown how they are
        self.stopping: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def look(self) -> Look | None:
        """What the sampler saw last; None where there is none to rely on."""
        watchman = self.engine.watchman
        return None if watchman is None else watchman.look()

    def running(self, job: int) -> Running | None:
        """The live attempt of a job, if it has one."""
        for running in self.engine.board.running.values():
            if running.attempt.job == job:
                return running
        return None
