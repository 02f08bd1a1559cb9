"""The daemon's parts, joined: store, executor, engine, GPU watch, API."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stoker.api.app import make_app
from stoker.api.listen import bind
from stoker.core.job import Outcome
from stoker.core.slot import Slot
from stoker.daemon.cluster import Cluster
from stoker.daemon.identity import identify, settle_copy
from stoker.daemon.listening import listen_for_ever
from stoker.daemon.preload import preload
from stoker.engine.adopt import adopt
from stoker.engine.assembly import assemble
from stoker.engine.board import Running
from stoker.engine.catch_up import catch_up
from stoker.engine.config import Config
from stoker.engine.mps import Mps
from stoker.engine.owners import Owners
from stoker.engine.sharing import Model, models_of
from stoker.engine.upkeep import cap_logs_for_ever, prune_for_ever
from stoker.engine.watchman import Watchman
from stoker.engine.wheel import boot_clock_s
from stoker.errors import StokerError
from stoker.executors.fleet import FleetExecutor
from stoker.executors.kept import KeptExecutor
from stoker.failpoints import reach
from stoker.gpus.nvml import Gpu, Nvml
from stoker.gpus.renewal import look_anew_within
from stoker.gpus.slots import default_slots, parse_slots, visible_gpus
from stoker.store.database import Database
from stoker.web.page import Page

_ALL_REMOVED = "every GPU was removed from this queue"
_PATIENCE_S = 2.0  # for a driver that hangs
_SICK = "sick."
_STOPPED = "the daemon was stopped with --kill"


class Daemon:
    """Everything from the database to the socket; made inside its event loop."""

    def __init__(self, home: str, gpus: str | None, *, gpus_with_others: bool = False) -> None:
        self.since = time.time()
        self._home = home
        self._database = Database(os.path.join(home, "stoker.db"))
        self._config = Config(self._database)
        identity = identify(self._database, home)
        if identity.original is not None and self._config.ray_address is not None:
            self._config.change("ray.address", "none")  # the original is a member, not its copy
        self._nvml = Nvml.open()
        self._cluster = Cluster.of(home, self._config)
        slots, no_gpu_reason = self._slots(gpus)
        self._finds_gpus = self._config.gpus is None  # a later change counts after a restart
        if gpus_with_others:
            self._config.change("gpus-with-others", "yes")
        self._name = f"stoker-{identity.name}"
        # A database made anew counts its jobs anew: what ran for the old one keeps its own shepherd.
        self._own = KeptExecutor(
            name=self._name,
            socket=os.path.join(home, f"shepherd-{identity.name}.sock"),
            journal=os.path.join(home, f"shepherd-{identity.name}.journal"),
            log=os.path.join(home, "daemon.log"),
        )
        self._executor: KeptExecutor | FleetExecutor = self._own
        if self._cluster is not None:
            self._executor = self._cluster.extend(self._own, identity.name)
        self.hub = assemble(
            home=home,
            database=self._database,
            config=self._config,
            executor=self._executor,
            slots=slots,
            clock=boot_clock_s,
            shepherd_pids=lambda: self._executor.pids,
            parse_slots=self._parse_slots,
            slots_changed=self._watch_all,
            no_gpu_reason=no_gpu_reason,
            before_turn=self._mind_watch,
        )
        self.engine = self.hub.engine
        self._page = self.hub.page = Page(self.hub)
        self._database.on_full = self._wait_for_space
        self._mps = Mps(os.path.join(home, "mps"), self.hub.publisher.on_notice)
        self._mps.find()
        self.engine.use(self._mps)
        if self._cluster is not None:
            self._cluster.enter(self.hub, self._models)
        settle_copy(self.hub, identity)
        self._own.disown(catch_up(self.hub, self._own.told))
        adopt(self.engine, self.hub.jobs, home, boot_clock_s())
        self._watchman: Watchman | None = None
        self._watch_all()
        self.hub.publisher.followers.append(self._on_end)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until asked to stop; `on_ready` is called once requests are heard."""
        with bind(os.path.join(self._home, "stoker.sock")) as listener:
            reach("daemon-listening")
            self.hub.pulse.start()
            server = asyncio.ensure_future(
                listen_for_ever(make_app(self.hub), listener, self.hub.publisher.on_notice)
            )
            tasks = [
                asyncio.ensure_future(prune_for_ever(self.hub)),
                asyncio.ensure_future(cap_logs_for_ever(self.hub)),
            ]
            await self._page.reopen()
            on_ready()
            preloading = asyncio.ensure_future(preload())
            wanted: set[asyncio.Future[Any]] = {
                self.hub.stopping,
                self.hub.pulse.stopped,
                server,
                *tasks,
            }
            done, _pending = await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
            if self.hub.stopping in done and self.hub.stopping.result():
                await self._kill_everything()
            reach("daemon-stopping")
            self.hub.events.close()
            await self._page.leave()
            for task in (*tasks, server, preloading):
                task.cancel()
            await asyncio.gather(*tasks, server, preloading, return_exceptions=True)
            for future in done - {self.hub.stopping}:
                future.result()

    def ask_to_stop(self) -> None:
        """Go; what runs goes on."""
        if not self.hub.stopping.done():
            self.hub.stopping.set_result(False)

    def close(self) -> None:
        """Let go of everything; jobs go on with their shepherd."""
        self.hub.pulse.stop()
        self.hub.hooks.close()
        if self._watchman is not None:
            self._watchman.stop()
        if not self.engine.board.running:
            self._mps.retire()
        self._executor.close()
        if self._cluster is not None:
            self._cluster.close(self.engine.board)
        self._database.close()

    async def _kill_everything(self) -> None:
        for running in self.engine.board.running.values():
            running.killed_because = running.killed_because or _STOPPED
        self.engine.kill_all(_STOPPED)
        self.hub.pulse.poke()
        while self.engine.board.running and not (
            self.hub.pulse.stopped.done() or self.engine.recorder.is_held_up
        ):
            await self.hub.events.changed_since(self.hub.events.version)
        self._executor.stop(kill=True)

    def _parse_slots(self, text: str) -> tuple[Slot, ...]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            found = parse_slots(text, self._gpus(), visible)
        except StokerError:
            # It may be one that was added to the machine since.
            if self._nvml is None or not look_anew_within(self._nvml, _PATIENCE_S):
                raise
            found = parse_slots(text, self._gpus(), visible)
        return self._place(found)

    def _slots(self, gpus: str | None) -> tuple[tuple[Slot, ...], str | None]:
        """The slots to use, remembered if they were named now; none is an answer, with a reason."""
        known = self._gpus()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        named = gpus or self._config.gpus
        if named == "none":
            return (), _ALL_REMOVED
        try:
            if named is None or named == "default":
                slots = self._without_removed(default_slots(known, visible))
            else:
                slots = parse_slots(named, known, visible)
        except StokerError as error:
            if gpus is not None and named != "default":
                raise
            return (), str(error).partition(";")[0]
        if not slots:
            return (), _ALL_REMOVED
        if gpus is not None:
            self._config.change("gpus", gpus)
        return self._place(slots), None

    def _place(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Say whose they are, where there is more than one machine."""
        if self._cluster is None:
            return slots
        return tuple(msgspec.structs.replace(slot, node=self._cluster.name) for slot in slots)

    def _without_removed(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        removed = self._config.words("gpus-removed")
        kept = [slot for slot in slots if slot.bare not in removed]
        return tuple(msgspec.structs.replace(slot, index=n) for n, slot in enumerate(kept))

    def _watch_all(self) -> None:
        """Watch the GPUs of all slots that there are by now, and know their kinds."""
        board = self.engine.board
        board.note_models({gpu.uuid: gpu.name for gpu in self._gpus() or ()})
        if self._nvml is None or not board.of_node.get(board.head):
            return
        mind_others = self._finds_gpus and not self._config.gpus_with_others
        if self._watchman is not None:
            self._watchman.mind_others = mind_others
            self._watchman.look_again()
            return
        watchman = Watchman(
            self._nvml,
            self.engine.board,
            self.hub.publisher,
            Owners(self.engine.board, self._name, lambda: self._executor.pids),
            mind_others=mind_others,
            appeared=self._welcome,
            sick=self._sick_gpus(),
            remember=self._remember_sick,
        )

        def review() -> None:
            watchman.review()
            self.hub.pulse.poke()

        asyncio.get_running_loop().add_reader(watchman.fileno(), review)
        self._watchman = watchman
        if self._cluster is not None:
            self._cluster.lookout.near = watchman
        else:
            self.engine.follow(watchman)
            assert self.engine.sharing is not None
            self.engine.sharing.watch(watchman.look, self._models)

    def _welcome(self, gpus: list[Gpu]) -> None:
        """GPUs have come while we live: by default they are used, else it is said how they can be."""
        for gpu in gpus:
            text = f"GPU {gpu.label} has appeared"
            board = self.engine.board
            known = [place.slot.bare for place in board.whole() if board.is_own(place.slot.node)]
            visible = visible_gpus(self._gpus() or (), os.environ.get("CUDA_VISIBLE_DEVICES"))
            if self._config.gpus is None and gpu in visible and gpu.label not in known:
                self.engine.add_slot((gpu.label,), (gpu.uuid,), self.engine.board.head)
                self.hub.publisher.on_notice(f"{text}: it is used from now on")
            else:
                how = f"stoker gpus add {gpu.label} lets the queue use it"
                self.hub.publisher.on_notice(f"{text}: {how}")
        self._watch_all()

    def _sick_gpus(self) -> dict[str, str]:
        rows = self._database.execute(
            "SELECT name, value FROM meta WHERE name GLOB ?", (f"{_SICK}*",)
        )
        return {name.removeprefix(_SICK): bytes(reason).decode() for name, reason in rows}

    def _remember_sick(self, sick: Mapping[str, str]) -> None:
        """Keep over a restart which GPUs are to have no jobs."""
        with self._database.transaction(durable=True):
            self._database.write("DELETE FROM meta WHERE name GLOB ?", (f"{_SICK}*",))
            for key, reason in sick.items():
                self._database.write(
                    "INSERT INTO meta VALUES (?, ?)", (f"{_SICK}{key}", reason.encode())
                )

    def _gpus(self) -> tuple[Gpu, ...] | None:
        return None if self._nvml is None else self._nvml.gpus()

    def _on_end(self, _running: Running, _outcome: Outcome) -> None:
        """With the last job's end take one more turn, before which all can come to rest."""
        if not (self.engine.board.running or len(self.engine.queue)):
            self.hub.pulse.poke()

    def _models(self) -> dict[str, Model]:
        return models_of(self._gpus() or ())

    def _mind_watch(self) -> None:
        """Watch the GPUs and keep MPS while something runs or waits, or somebody looks on, and only then."""
        is_busy = self.engine.board.running or len(self.engine.queue)
        if not is_busy:
            self._mps.retire()
        if self._cluster is not None:
            self._cluster.watch(wanted=bool(is_busy or self.hub.viewers))
        if self._watchman is None:
            return
        if is_busy or self.hub.viewers:
            self._watchman.rouse()
        else:
            self._watchman.rest()

    def _wait_for_space(self, message: str) -> None:
        self.engine.tell_once(f"{message}; waiting for space")
        time.sleep(1.0)
