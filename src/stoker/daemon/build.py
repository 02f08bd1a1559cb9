"""The daemon's parts, joined: store, executor, engine, GPU watch, API."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stoker.api.app import make_app
from stoker.api.server import bind
from stoker.core.job import Outcome
from stoker.core.slot import Slot
from stoker.daemon.cluster import Cluster
from stoker.daemon.identity import identify, settle_copy
from stoker.daemon.listening import listen_for_ever
from stoker.daemon.preload import preload
from stoker.engine.adoption import adopt
from stoker.engine.catch_up import catch_up
from stoker.engine.config import Config
from stoker.engine.gpu_models import Model, models_of
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.poll_driver import boot_clock_s
from stoker.engine.process_owners import ProcessOwners
from stoker.engine.running_attempt import RunningAttempt
from stoker.errors import StokerError
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.failpoints import reach
from stoker.gpus.gpu_discovery import look_anew_within
from stoker.gpus.nvml import Gpu, Nvml
from stoker.gpus.slot_grammar import default_slots, parse_slots, visible_gpus
from stoker.service.cleanup import cap_logs_for_ever, prune_for_ever
from stoker.service.queue_builder import QueueSources, assemble
from stoker.store.database import Database
from stoker.store.named_values import NamedValues
from stoker.web.page_control import PageControl

_ALL_REMOVED = "every GPU was removed from this queue"
_PATIENCE_S = 2.0  # for a driver that hangs
_STOPPED = "the daemon was stopped with --kill"


class Daemon:
    """Everything from the database to the socket; made inside its event loop."""

    def __init__(self, home: str, gpus: str | None, *, gpus_with_others: bool = False) -> None:
        self.since = time.time()
        self._home = home
        self._database = Database(os.path.join(home, "stoker.db"))
        self._faulty_gpus = NamedValues(self._database, "sick.")
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
        # A database made anew counts its jobs anew: what ran for the old one keeps its own supervisor.
        self._own = DaemonExecutor(
            name=self._name,
            socket=os.path.join(home, f"supervisor-{identity.name}.sock"),
            journal=os.path.join(home, f"supervisor-{identity.name}.journal"),
            log=os.path.join(home, "daemon.log"),
        )
        self._executor: DaemonExecutor | MultiNodeExecutor = self._own
        if self._cluster is not None:
            self._executor = self._cluster.extend(self._own, identity.name)
        sources = QueueSources(
            home=home,
            database=self._database,
            config=self._config,
            executor=self._executor,
            slots=slots,
            clock=boot_clock_s,
            mps_folder=os.path.join(home, "mps"),
            on_node_news=None if self._cluster is None else self._cluster.on_news,
        )
        self.context = assemble(
            sources,
            supervisor_pids=lambda: self._executor.pids,
            parse_slots=self._parse_slots,
            slots_changed=self._watch_all,
            no_gpu_reason=no_gpu_reason,
            before_turn=self._mind_watch,
        )
        self.engine = self.context.engine
        self._page = self.context.page = PageControl(self.context)
        self._database.on_full = self._wait_for_space
        if self._cluster is not None:
            self._cluster.enter(self.context, self._models)
        settle_copy(self.context, identity)
        self._own.disown(catch_up(self.context, self._own.told))
        adopt(self.engine, self.context.jobs, home, boot_clock_s())
        self._gpu_monitor: GpuMonitor | None = None
        self._watch_all()
        self.context.publisher.followers.append(self._on_end)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until asked to stop; `on_ready` is called once requests are heard."""
        with bind(os.path.join(self._home, "stoker.sock")) as listener:
            reach("daemon-listening")
            self.context.driver.start()
            server = asyncio.ensure_future(
                listen_for_ever(make_app(self.context), listener, self.context.publisher.on_notice)
            )
            tasks = [
                asyncio.ensure_future(prune_for_ever(self.context)),
                asyncio.ensure_future(cap_logs_for_ever(self.context)),
            ]
            await self._page.reopen()
            on_ready()
            preloading = asyncio.ensure_future(preload())
            wanted: set[asyncio.Future[Any]] = {
                self.context.stopping,
                self.context.driver.stopped,
                server,
                *tasks,
            }
            done, _pending = await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
            if self.context.stopping in done and self.context.stopping.result():
                await self._kill_everything()
            reach("daemon-stopping")
            self.context.events.close()
            await self._page.leave()
            for task in (*tasks, server, preloading):
                task.cancel()
            await asyncio.gather(*tasks, server, preloading, return_exceptions=True)
            for future in done - {self.context.stopping}:
                future.result()

    def ask_to_stop(self) -> None:
        """Go; what runs goes on."""
        if not self.context.stopping.done():
            self.context.stopping.set_result(False)

    def close(self) -> None:
        """Let go of everything; jobs go on with their supervisor."""
        self.context.driver.stop()
        self.context.hooks.close()
        if self._gpu_monitor is not None:
            self._gpu_monitor.stop()
        if not self.engine.slot_table.running:
            self._retire_mps()
        self._executor.close()
        if self._cluster is not None:
            self._cluster.close(self.engine.slot_table)
        self._database.close()

    async def _kill_everything(self) -> None:
        self.engine.kill_all(_STOPPED)
        self.context.driver.poke()
        while self.engine.slot_table.running and not (
            self.context.driver.stopped.done() or self.engine.recorder.is_held_up
        ):
            await self.context.events.changed_since(self.context.events.version)
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
        slot_table = self.engine.slot_table
        slot_table.update_models({gpu.uuid: gpu.name for gpu in self._gpus() or ()})
        if self._nvml is None or not slot_table.by_node.get(slot_table.head):
            return
        mind_others = self._finds_gpus and not self._config.gpus_with_others
        if self._gpu_monitor is not None:
            self._gpu_monitor.mind_others = mind_others
            self._gpu_monitor.look_again()
            return
        gpu_monitor = GpuMonitor(
            self._nvml,
            self.engine.slot_table,
            self.context.publisher,
            ProcessOwners(self.engine.slot_table, self._name, lambda: self._executor.pids),
            mind_others=mind_others,
            appeared=self._welcome,
            sick=self._sick_gpus(),
            remember=self._remember_sick,
        )

        def review() -> None:
            gpu_monitor.review()
            self.context.driver.poke()

        asyncio.get_running_loop().add_reader(gpu_monitor.fileno(), review)
        self._gpu_monitor = gpu_monitor
        if self._cluster is not None:
            self._cluster.gpu_sources.local = gpu_monitor
        else:
            self.engine.gpus.watch(gpu_monitor, self._models)

    def _welcome(self, gpus: list[Gpu]) -> None:
        """GPUs have come while we live: by default they are used, else it is said how they can be."""
        for gpu in gpus:
            text = f"GPU {gpu.label} has appeared"
            slot_table = self.engine.slot_table
            known = [
                place.slot.bare
                for place in slot_table.whole_slots()
                if slot_table.is_own(place.slot.node)
            ]
            visible = visible_gpus(self._gpus() or (), os.environ.get("CUDA_VISIBLE_DEVICES"))
            if self._config.gpus is None and gpu in visible and gpu.label not in known:
                self.engine.add_slot((gpu.label,), (gpu.uuid,), self.engine.slot_table.head)
                self.context.publisher.on_notice(f"{text}: it is used from now on")
            else:
                how = f"stoker gpus add {gpu.label} lets the queue use it"
                self.context.publisher.on_notice(f"{text}: {how}")
        self._watch_all()

    def _sick_gpus(self) -> dict[str, str]:
        return {gpu: reason.decode() for gpu, reason in self._faulty_gpus.all().items()}

    def _remember_sick(self, sick: Mapping[str, str]) -> None:
        """Keep over a restart which GPUs are to have no jobs."""
        with self._database.transaction(durable=True):
            self._faulty_gpus.replace_all({gpu: sick[gpu].encode() for gpu in sick})

    def _gpus(self) -> tuple[Gpu, ...] | None:
        return None if self._nvml is None else self._nvml.gpus()

    def _on_end(self, _running: RunningAttempt, _outcome: Outcome) -> None:
        """With the last job's end take one more turn, before which all can come to rest."""
        if not (self.engine.slot_table.running or len(self.engine.queue)):
            self.context.driver.poke()

    def _models(self) -> dict[str, Model]:
        return models_of(self._gpus() or ())

    def _mind_watch(self) -> None:
        """Watch the GPUs and keep MPS while something runs or waits, or somebody looks on, and only then."""
        is_busy = self.engine.slot_table.running or len(self.engine.queue)
        if not is_busy:
            self._retire_mps()
        if self._cluster is not None:
            self._cluster.watch(wanted=bool(is_busy or self.context.viewers))
        if self._gpu_monitor is None:
            return
        if is_busy or self.context.viewers:
            self._gpu_monitor.rouse()
        else:
            self._gpu_monitor.rest()

    def _retire_mps(self) -> None:
        if self.engine.gpus.mps is not None:
            self.engine.gpus.mps.retire()

    def _wait_for_space(self, message: str) -> None:
        self.engine.tell_once(f"{message}; waiting for space")
        time.sleep(1.0)
