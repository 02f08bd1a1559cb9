"""The one that speaks for a head on a node: drives the supervisor there, tells how GPUs are, ships logs.

It is an actor of Ray's, but knows nothing of Ray. It keeps nothing that cannot be found again: when it
dies, jobs and supervisor go on, and its successor takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from stoker import __version__
from stoker.bridge.agent_calls import LEAVING, LEFT
from stoker.bridge.clock import boot_s
from stoker.bridge.log_forwarder import LogForwarders
from stoker.bridge.node_gpu_monitor import NodeGpuMonitor
from stoker.bridge.protocol_proxy import ProtocolProxy
from stoker.cluster.ray_supervisor_control import ray_supervisor_pid
from stoker.cluster.settings import leaving_path, load_node, load_settings
from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.contract import ExecutorLostError
from stoker.executors.node_reports import Introduction, NodeGpu, NodeSlot, Sight
from stoker.executors.supervisor_launcher import SupervisorLauncher, wait_for
from stoker.gpus.nvml import Nvml
from stoker.gpus.slot_grammar import default_slots, parse_slots
from stoker.home import find_home
from stoker.staging.node_cache import NodeCache
from stoker.supervisor import lease_file
from stoker.supervisor.messages import CutAttempt

_PATIENCE_S = 10.0
_READ_S = 2.0
_LOOK_S = 1.0
_HANDS = 4
_KEEP_BYTES = 4 << 30  # of trees that came, for those that come again
_PRUNE_PERIOD_S = 3600.0
# What Ray puts into the environment of its workers; the word begins all their names.
_RAY = "RAY_"


class Agent:
    """What a head can ask of a node; `queue` is the identity of the head's queue."""

    def __init__(self, queue: str) -> None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray's own
        home = find_home()
        node, settings = load_node(home), load_settings(home)
        gpus = None if settings is None else settings.gpus
        self._folder = os.path.join(home, "cluster", "queues", queue)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._lease_file = os.path.join(self._folder, "lease_file")
        self._home = home
        self._ray_supervisor = ray_supervisor_pid(home)  # None in a cluster that others started
        self._leaving = leaving_path(home)
        self._has_said_so = False
        self._nvml = Nvml.open()
        self._slots = self._find_slots(gpus)
        self._trails = LogForwarders(os.path.join(self._folder, "logs"))
        cookie = f"stoker-{queue}-{node.id[:8]}"
        self._launcher = SupervisorLauncher(
            name=cookie,
            socket=os.path.join(self._folder, "supervisor.sock"),
            journal=os.path.join(self._folder, "supervisor.journal"),
            log=os.path.join(self._folder, "supervisor.log"),
            lease_file=self._lease_file,
            without=_RAY,
        )
        self._node_cache = NodeCache(os.path.join(self._folder, "node_cache"))
        self._pruned_at_s = -_PRUNE_PERIOD_S
        self._pruning: asyncio.Task[None] | None = None
        self._proxy: ProtocolProxy | None = None
        self._guard: asyncio.Task[None] | None = None
        self._eyes = ThreadPoolExecutor(1)
        self._hands = ThreadPoolExecutor(_HANDS)
        self._looking: asyncio.Future[Sight | None] | None = None
        self._conversation = ""
        self._node_gpu_monitor = NodeGpuMonitor(
            self._nvml, self._slots, cookie, list, mind_others=gpus is None
        )
        self._introduction = Introduction(
            id=node.id,
            name=node.name,
            version=__version__,
            address="" if settings is None else settings.own_address,
            labels={} if settings is None else settings.labels,
            slots=tuple(NodeSlot(slot.gpus, slot.keys) for slot in self._slots),
            gpus={
                gpu.uuid: NodeGpu(gpu.name, gpu.mem_total_bytes)
                for gpu in (() if self._nvml is None else self._nvml.gpus())
            },
        )

    async def introduce(self) -> bytes:
        """Who this is, as JSON: versions may differ, and then that has to be said."""
        return msgspec.json.encode(self._introduction)

    async def beat(
        self, echo: float | None, lease_s: float, wanted: bool
    ) -> tuple[float, float, bytes, str]:
        """Answer with a stamp, the time, what is to be seen, and whether this node is leaving, or has left.

        The stamp that comes back with the next call shows that the head has heard from us after that
        moment: counted from then, jobs may run for as long as the lease.
        """
        if (
            self._ray_supervisor is not None
            and ray_supervisor_pid(self._home) != self._ray_supervisor
        ):
            os._exit(
                0
            )  # our Ray ends with its Ray supervisor, and waits for us; another one has its own
        if echo is not None:
            lease_file.put_off(self._lease_file, echo + lease_s)
        proxy = self._proxy
        if os.path.exists(self._leaving):
            # What is ended before the head has heard why is started here again.
            is_over = self._has_said_so and await self._take_leave(proxy)
            self._has_said_so = True
            return boot_s(), time.time(), b"null", LEFT if is_over else LEAVING
        self._has_said_so = False
        sight = await self._look(proxy, wanted=wanted)
        return boot_s(), time.time(), msgspec.json.encode(sight), ""

    async def _look(self, proxy: ProtocolProxy | None, *, wanted: bool) -> Sight | None:
        """What is to be seen; nothing while a driver keeps us waiting, for that must not hold up a beat."""
        if self._looking is None or self._looking.done():
            if proxy is not None:
                self._node_gpu_monitor.follow(
                    proxy.running, lambda key: proxy.places.get(proxy.place_of.get(key, -1), ())
                )
            see = partial(self._node_gpu_monitor.see, wanted=wanted)
            self._looking = asyncio.get_running_loop().run_in_executor(self._eyes, see)
        done, _pending = await asyncio.wait({self._looking}, timeout=_LOOK_S)
        return self._looking.result() if done else None

    async def _take_leave(self, proxy: ProtocolProxy | None) -> bool:
        """End what runs; True once nothing does, and whoever waits for that may go on."""
        is_idle = proxy is not None and not proxy.running
        if proxy is not None and not is_idle:
            await proxy.send([CutAttempt(key, lease_file.LEFT) for key in proxy.running])
        if is_idle:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._leaving)
        return is_idle

    async def open(self, conversation: str) -> None:
        """Begin to speak with the supervisor, which is found or started; whoever spoke before is cut off."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self._conversation = conversation
        deadline = time.monotonic() + _PATIENCE_S
        connection = await asyncio.to_thread(self._meet, deadline)
        self._launcher.reap()
        if self._conversation != conversation:  # somebody else came meanwhile
            connection.close()
            return
        self._proxy = ProtocolProxy(connection, self._folder, self._introduction.name, self._trails)
        self._guard = asyncio.ensure_future(self._stand_in(self._proxy))

    async def _stand_in(self, proxy: ProtocolProxy) -> None:
        """Start another supervisor where one was killed: jobs must end in time also while we are cut off."""
        await proxy.gone()
        if self._proxy is proxy and proxy.running:
            deadline = time.monotonic() + _PATIENCE_S
            with contextlib.suppress(StokerError):
                (await asyncio.to_thread(self._meet, deadline)).close()

    def _meet(self, deadline: float) -> socket.socket:
        """A connection to a supervisor that has greeted: one without work may be just about to go."""
        while True:
            connection = self._launcher.connect(deadline)
            try:
                if wait_for(connection.fileno(), deadline) and connection.recv(1, socket.MSG_PEEK):
                    return connection
            except ConnectionError:
                pass
            connection.close()
            if time.monotonic() > deadline:
                raise ExecutorLostError(f"no supervisor answers: see {self._launcher.log}")

    async def write(self, conversation: str, data: bytes) -> bool:
        """Pass on to the supervisor; False if this conversation is over."""
        if self._proxy is None or conversation != self._conversation:
            return False
        try:
            await self._proxy.write(data)
        except OSError:
            return False
        return True

    async def read(self, conversation: str) -> Any:
        """What has come from the supervisor, and of logs; None if this conversation is over.

        What was read before counts as heard.
        """
        if self._proxy is None or conversation != self._conversation:
            return None
        reply = await self._proxy.read(_READ_S)
        return None if reply is None else ([tuple(piece) for piece in reply.pieces], reply.reports)

    async def close(self, conversation: str) -> None:
        """End a conversation; jobs go on."""
        if self._proxy is not None and conversation == self._conversation:
            self._proxy.close()
            self._proxy = None

    async def node_cache(self, verb: str, *words: Any) -> tuple[bool, Any]:
        """Have the node cache of trees do something: its answer, or (False) the reason why it cannot."""
        if boot_s() >= self._pruned_at_s + _PRUNE_PERIOD_S:
            self._pruned_at_s = boot_s()
            self._pruning = asyncio.ensure_future(self._prune())
        try:
            work = partial(getattr(self._node_cache, verb), *words)
            return True, await asyncio.get_running_loop().run_in_executor(self._hands, work)
        except (StokerError, OSError) as error:
            return False, str(error)  # raised, it would look as if we could not be reached

    async def _prune(self) -> None:
        with contextlib.suppress(StokerError, OSError):  # then in an hour
            await asyncio.to_thread(self._node_cache.prune, _KEEP_BYTES)

    def _find_slots(self, named: str | None) -> tuple[Slot, ...]:
        known = None if self._nvml is None else self._nvml.gpus()
        try:
            if named is None:
                return default_slots(known, None)
            return parse_slots(named, known, None)
        except StokerError:
            return ()  # it has none, and may still run jobs without
