"""Builds the daemon from its parts, runs it and stops it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stoker.api.app import Api
from stoker.api.server import bind
from stoker.core.job import Outcome
from stoker.core.slot import Slot
from stoker.daemon.identity import identify, settle_copy
from stoker.daemon.listening import listen_for_ever
from stoker.daemon.local_gpus import LocalGpus
from stoker.daemon.preload import preload
from stoker.engine.adoption import adopt
from stoker.engine.catch_up import catch_up
from stoker.engine.config import Config
from stoker.engine.context import QueueContext
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.host_resources import read_capacity
from stoker.engine.poll_driver import boot_clock_s
from stoker.engine.process_owners import ProcessOwners
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.failpoints import reach
from stoker.gpus.driver import Gpu
from stoker.gpus.topology import read_links
from stoker.gpus.turn_files import TurnBoard
from stoker.service.allocation_keeper import keep_allocations_for_ever
from stoker.service.cleanup import cap_logs_for_ever, prune_for_ever
from stoker.service.interactive import watch_for_ever
from stoker.service.queue_builder import QueueSources, assemble
from stoker.service.waste import review_for_ever
from stoker.store.database import Database
from stoker.store.named_values import NamedValues
from stoker.web.page_control import PageControl

if TYPE_CHECKING:
    from stoker.daemon.cluster import Cluster
    from stoker.executors.multi_node_executor import MultiNodeExecutor

_STOPPED = "the daemon was stopped with --kill"


class Daemon:
    """Everything from the database to the socket. Construct it in its event loop."""

    def __init__(self, home: str, gpus: str | None, *, gpus_with_others: bool = False) -> None:
        self.since = time.time()
        self._home = home
        self._database = Database(os.path.join(home, "stoker.db"))
        self._sick_gpus = NamedValues(self._database, "sick.")
        self._config = Config(self._database)
        identity = identify(self._database, home)
        if identity.original is not None and self._config.ray_address is not None:
            self._config.change("ray.address", "none")  # only the original is a cluster member
        self._cluster = _enter_cluster(home, self._config)
        self._gpus = LocalGpus(self._config, None if self._cluster is None else self._cluster.name)
        slots, no_gpu_reason = self._gpus.initial_slots(gpus)
        self._detects_gpus = self._config.gpus is None  # a later change counts after a restart
        if gpus_with_others:
            self._config.change("gpus-with-others", "yes")
        self._gpu_monitor: GpuMonitor | None = None
        own = self._make_executor(identity.name)
        self.context = self._build_queue(slots, no_gpu_reason)
        self.engine = self.context.engine
        self._page = self.context.page = PageControl(self.context)
        self._database.on_full = self._wait_for_space
        if self._cluster is not None:
            self._cluster.enter(self.context, self._gpus.models)
        settle_copy(self.context, identity)
        own.disown(catch_up(self.context, own.pending))
        adopt(self.engine, self.context.jobs, home, boot_clock_s())
        self._monitor_gpus()
        self.context.publisher.followers.append(self._on_end)

    def _make_executor(self, identity: str) -> DaemonExecutor:
        """Make the executor of this machine, and in a cluster the one of all nodes over it."""
        self._name = f"stoker-{identity}"
        # Named by the identity: a new database counts jobs from 1 again, and the jobs of the old
        # database keep their own supervisor.
        own = DaemonExecutor(
            name=self._name,
            socket=os.path.join(self._home, f"supervisor-{identity}.sock"),
            journal=os.path.join(self._home, f"supervisor-{identity}.journal"),
            log=os.path.join(self._home, "daemon.log"),
            cpus_of=self._gpus.near_cpus,
        )
        self._executor: DaemonExecutor | MultiNodeExecutor = own
        if self._cluster is not None:
            self._executor = self._cluster.extend(own, identity)
        return own

    def _build_queue(self, slots: tuple[Slot, ...], no_gpu_reason: str | None) -> QueueContext:
        sources = QueueSources(
            home=self._home,
            database=self._database,
            config=self._config,
            executor=self._executor,
            slots=slots,
            clock=boot_clock_s,
            capacity=read_capacity(),
            name=self._name,
            mps_folder=os.path.join(self._home, "mps"),
            board=TurnBoard(),
            on_node_report=None if self._cluster is None else self._cluster.on_report,
        )
        return assemble(
            sources,
            supervisor_pids=lambda: self._executor.pids,
            parse_slots=self._gpus.parse_slots,
            slots_changed=self._monitor_gpus,
            no_gpu_reason=no_gpu_reason,
            before_turn=self._rest_or_rouse,
        )

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until asked to stop; calls `on_ready` once the daemon accepts requests."""
        with bind(os.path.join(self._home, "stoker.sock")) as listener:
            reach("daemon-listening")
            self.context.driver.start()
            server = asyncio.ensure_future(
                listen_for_ever(Api(self.context), listener, self.context.publisher.on_notice)
            )
            tasks = [
                asyncio.ensure_future(prune_for_ever(self.context)),
                asyncio.ensure_future(cap_logs_for_ever(self.context)),
                asyncio.ensure_future(watch_for_ever(self.context)),
                asyncio.ensure_future(review_for_ever(self.context)),
                asyncio.ensure_future(keep_allocations_for_ever(self.context)),
            ]
            await self._page.reopen()
            self.context.searches.start()
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
            await self.context.searches.stop()
            self.context.events.close()
            await self._page.leave()
            for task in (*tasks, server, preloading):
                task.cancel()
            await asyncio.gather(*tasks, server, preloading, return_exceptions=True)
            for future in done - {self.context.stopping}:
                future.result()

    def ask_to_stop(self) -> None:
        """Stop serving; running jobs go on."""
        if not self.context.stopping.done():
            self.context.stopping.set_result(False)

    def close(self) -> None:
        """Close everything; jobs go on with their supervisor."""
        self.context.driver.stop()
        self.context.hooks.close()
        self.context.ranks.close()
        if self._gpu_monitor is not None:
            self._gpu_monitor.stop()
        if not self.engine.slot_table.running:
            self._retire_mps()
        self.engine.leave_turns()
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

    def _monitor_gpus(self) -> None:
        """Monitor the GPUs of all slots that exist now, and note their models."""
        slot_table, nvml = self.engine.slot_table, self._gpus.nvml
        slot_table.update_models({gpu.uuid: gpu.name for gpu in self._gpus.known() or ()})
        if nvml is not None:
            slot_table.links.gpus = read_links(nvml, self._home)
        if nvml is None or not slot_table.by_node.get(slot_table.head):
            return
        mind_others = self._detects_gpus and not self._config.gpus_with_others
        if self._gpu_monitor is not None:
            self._gpu_monitor.mind_others = mind_others
            self._gpu_monitor.look_again()
            return
        gpu_monitor = GpuMonitor(
            nvml,
            slot_table,
            self.context.publisher.on_notice,
            ProcessOwners(slot_table, self._name, lambda: self._executor.pids),
            mind_others=mind_others,
            appeared=self._on_new_gpus,
            sick={gpu: reason.decode() for gpu, reason in self._sick_gpus.all().items()},
            remember=self._record_sick_gpus,
        )

        def review() -> None:
            gpu_monitor.review()
            self.context.driver.poke()

        asyncio.get_running_loop().add_reader(gpu_monitor.fileno(), review)
        self._gpu_monitor = gpu_monitor
        if self._cluster is not None:
            self._cluster.gpus.local = gpu_monitor
        else:
            self.engine.gpus.watch(gpu_monitor, self._gpus.models)

    def _on_new_gpus(self, gpus: list[Gpu]) -> None:
        """Use GPUs that have appeared if GPUs are detected; else tell the user how to use them."""
        slot_table, notify = self.engine.slot_table, self.context.publisher.on_notice
        for gpu in gpus:
            text = f"GPU {gpu.label} has appeared"
            used = [
                state.slot.bare
                for state in slot_table.whole_slots()
                if slot_table.is_own(state.slot.node)
            ]
            if self._config.gpus is None and self._gpus.is_visible(gpu) and gpu.label not in used:
                cards = (str(gpu.index),) if gpu.is_mig else ()
                self.engine.add_slot((gpu.label,), (gpu.uuid,), slot_table.head, cards)
                notify(f"{text}: it is used from now on")
            else:
                notify(f"{text}: stoker gpus add {gpu.label} lets the queue use it")
        self._monitor_gpus()

    def _record_sick_gpus(self, sick: Mapping[str, str]) -> None:
        """Record which GPUs may have no jobs, so that a restart does not use them again."""
        with self._database.transaction(durable=True):
            self._sick_gpus.replace_all({gpu: sick[gpu].encode() for gpu in sick})

    def _on_end(self, _running: RunningAttempt, _outcome: Outcome) -> None:
        """Take one more turn after the last job: `_rest_or_rouse` stops monitoring before it."""
        if not (self.engine.slot_table.running or len(self.engine.queue)):
            self.context.driver.poke()

    def _rest_or_rouse(self) -> None:
        """Monitor GPUs and keep MPS running only while jobs exist or a client watches."""
        is_busy = self.engine.slot_table.running or len(self.engine.queue)
        wanted = bool(is_busy or self.context.viewers)
        if not is_busy:
            self._retire_mps()
        if self._cluster is not None:
            self._cluster.watch(wanted=wanted)
        if self._gpu_monitor is None:
            return
        if wanted:
            self._gpu_monitor.rouse()
        else:
            self._gpu_monitor.rest()

    def _retire_mps(self) -> None:
        if self.engine.gpus.mps is not None:
            self.engine.gpus.mps.retire()

    def _wait_for_space(self, message: str) -> None:
        self.engine.tell_once(f"{message}; waiting for space")
        time.sleep(1.0)


def _enter_cluster(home: str, config: Config) -> Cluster | None:
    """Return the cluster that the configuration names; None if it names none.

    The modules are imported here: most queues are in no cluster.
    """
    if config.ray_address is not None:
        from stoker.daemon.cluster import Cluster

        return Cluster.of(home, config.ray_address, config)
    if os.path.isdir(os.path.join(home, "cluster")):
        from stoker.executors.bridge_connection import stop_bridge

        stop_bridge(home)  # the bridge of a cluster that was left
    return None
