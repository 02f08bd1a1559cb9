"""Agent of a head on a node: connects to the supervisor there, reports GPUs, forwards logs, keeps trees.

It runs as an actor of Ray but does not import Ray. All its state can be found again on the node: if it dies,
jobs and supervisor go on, and the next agent takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from stoker import __version__
from stoker.bridge import agent_messages as messages
from stoker.bridge.agent_messages import CacheRequest, Departure, decode_request, encode
from stoker.bridge.log_forwarder import LogForwarders
from stoker.bridge.node_gpu_monitor import NodeGpuMonitor
from stoker.bridge.protocol_proxy import ProtocolProxy
from stoker.cluster.node_environment import own_environment
from stoker.cluster.protocol import PROTOCOL
from stoker.cluster.ray_supervisor_control import ray_supervisor_pid
from stoker.cluster.settings import (
    ClusterNode,
    ClusterSettings,
    ending_path,
    leaving_path,
    load_node,
    load_settings,
)
from stoker.core.gpu_links import GpuLinks
from stoker.core.slot import Slot
from stoker.engine.poll_driver import boot_clock_s
from stoker.errors import StokerError
from stoker.executors.contract import ExecutorLostError
from stoker.executors.node_reports import GpuSample, Introduction, NodeGpu, NodeSlot
from stoker.executors.supervisor_launcher import SupervisorLauncher, wait_for
from stoker.gpus.driver import GpuDriver
from stoker.gpus.drivers import open_driver
from stoker.gpus.slot_grammar import default_slots, parse_slots
from stoker.gpus.topology import read_links
from stoker.home import find_home
from stoker.machine import count_cpus, read_memory
from stoker.staging.node_cache import NodeCache
from stoker.staging.node_checkpoints import NodeCheckpoints
from stoker.supervisor import lease_file
from stoker.supervisor.messages import CutAttempt

_PATIENCE_S = 10.0
_READ_S = 2.0
_SAMPLE_TIMEOUT_S = 1.0
_STREAM_S = 5.0  # in which a head opens a stream to a node that it knows
_CACHE_THREADS = 4
_KEEP_BYTES = 4 << 30  # contents that the cache keeps for the next trees
_PRUNE_PERIOD_S = 3600.0
_UNUSED_CHECKPOINTS_S = 7 * 86400.0  # those that have not travelled are kept for so long
_RAY_PREFIX = "RAY_"  # of the variables that Ray adds to the environment of its workers
CACHE_METHODS: dict[type[CacheRequest[Any]], Callable[..., Any]] = {
    messages.FindMissing: NodeCache.missing,
    messages.PutPieces: NodeCache.put,
    messages.LayOut: NodeCache.lay_out,
    messages.Collect: NodeCache.collect,
    messages.Fetch: NodeCache.fetch,
    messages.DeleteCopy: NodeCache.done,
    messages.LayOutCheckpoints: NodeCheckpoints.lay_out,
    messages.CollectCheckpoints: NodeCheckpoints.collect,
    messages.FetchCheckpoints: NodeCheckpoints.fetch,
    messages.DeleteCheckpoints: NodeCheckpoints.delete,
}


def _introduce(
    node: ClusterNode,
    settings: ClusterSettings | None,
    slots: Iterable[Slot],
    nvml: GpuDriver | None,
    links: GpuLinks,
) -> Introduction:
    """Describe this node to the head."""
    return Introduction(
        id=node.id,
        name=node.name,
        version=__version__,
        protocol=PROTOCOL,
        address="" if settings is None else settings.own_address,
        labels={} if settings is None else settings.labels,
        slots=tuple(NodeSlot(slot.gpus, slot.keys) for slot in slots),
        gpus={
            gpu.uuid: NodeGpu(gpu.name, gpu.mem_total_bytes)
            for gpu in (() if nvml is None else nvml.gpus())
        },
        links=tuple((min(pair), max(pair), link) for pair, link in links.items()),
        cpus=count_cpus(),
        mem_bytes=read_memory().total_bytes or None,
        is_pilot=settings is not None and settings.is_pilot,
    )


class Agent:
    """Serves the requests of one head; `queue` is the id of the head's queue."""

    def __init__(self, queue: str) -> None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray's own
        home = find_home()
        node, settings = load_node(home), load_settings(home)
        gpus = None if settings is None else settings.gpus
        recorded = {} if settings is None else settings.env
        # The head, and a box whose Ray was not started by Stoker, have recorded none.
        self._env = recorded or own_environment(home, os.environ, {}, None)
        self._folder = os.path.join(home, "cluster", "queues", queue)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._lease_file = os.path.join(self._folder, "lease_file")
        self._home = home
        self._ray_supervisor = ray_supervisor_pid(home)  # None if Stoker did not start this Ray
        self._leaving = leaving_path(home)
        self._ending = ending_path(home) if settings is not None and settings.is_pilot else None
        self._leaving_since: float | None = None  # when the head was told that this node leaves
        self._nvml = open_driver()
        self._slots = self._find_slots(gpus)
        self._log_forwarders = LogForwarders(os.path.join(self._folder, "logs"))
        cookie = f"stoker-{queue}-{node.id[:8]}"
        self._launcher = SupervisorLauncher(
            name=cookie,
            socket=os.path.join(self._folder, "supervisor.sock"),
            journal=os.path.join(self._folder, "supervisor.journal"),
            log=os.path.join(self._folder, "supervisor.log"),
            lease_file=self._lease_file,
            without=_RAY_PREFIX,
        )
        self._node_cache = NodeCache(os.path.join(self._folder, "node_cache"))
        self._checkpoints = NodeCheckpoints(
            os.path.join(self._folder, "checkpoints"), self._node_cache.blobs
        )
        self._pruned_at_s = -_PRUNE_PERIOD_S
        self._pruning: asyncio.Task[None] | None = None
        self._proxy: ProtocolProxy | None = None
        self._guard: asyncio.Task[None] | None = None
        self._monitor_thread = ThreadPoolExecutor(1)
        self._cache_threads = ThreadPoolExecutor(_CACHE_THREADS)
        self._sampling: asyncio.Future[GpuSample | None] | None = None
        self._stream = ""
        self._node_gpu_monitor = NodeGpuMonitor(
            self._nvml, self._slots, cookie, list, mind_others=gpus is None
        )
        links = {} if self._nvml is None else read_links(self._nvml, home)
        self._introduction = _introduce(node, settings, self._slots, self._nvml, links)

    async def call(self, data: bytes) -> bytes:
        """Serve an encoded request. The bridge calls this method through Ray."""
        request = decode_request(data)
        reply: object = None
        match request:
            case messages.Introduce():
                reply = self._introduction
            case messages.Heartbeat():
                reply = await self.beat(request)
            case messages.OpenStream():
                reply = await self.open_stream(request.stream)
            case messages.WriteOrders():
                reply = await self.write_orders(request)
            case messages.ReadReports():
                reply = await self.read_reports(request)
            case messages.CloseStream():
                await self.close_stream(request)
            case CacheRequest():
                reply = await self.call_cache(request)
        return encode(reply)

    async def beat(self, beat: messages.Heartbeat) -> messages.HeartbeatReply:
        """Renew the lease, and report the GPUs and whether this node leaves the cluster.

        An echoed stamp shows that the head has heard from this agent after that moment. Jobs may run for
        the length of the lease, counted from then.
        """
        ray = self._ray_supervisor
        if ray is not None and ray != ray_supervisor_pid(self._home):
            # This agent's Ray is ending and waits for it. A new Ray starts its own agent.
            os._exit(0)
        if beat.echo_s is not None:
            lease_file.write(self._lease_file, beat.echo_s + beat.lease_s)
        proxy = self._proxy
        if os.path.exists(self._leaving):
            # The head would restart jobs here that end before it knows why.
            since = self._leaving_since
            is_over = since is not None and await self._take_leave(proxy, since)
            self._leaving_since = time.monotonic() if since is None else since
            departure = Departure.LEFT if is_over else Departure.LEAVING
            return messages.HeartbeatReply(boot_clock_s(), time.time(), departure=departure)
        self._leaving_since = None
        sample = await self._sample_gpus(proxy, wanted=beat.watch_gpus)
        return messages.HeartbeatReply(boot_clock_s(), time.time(), sample)

    async def _sample_gpus(self, proxy: ProtocolProxy | None, *, wanted: bool) -> GpuSample | None:
        """Return the state of the GPUs; None while the driver hangs, which must not delay a heartbeat."""
        if self._sampling is None or self._sampling.done():
            if proxy is not None:
                self._node_gpu_monitor.follow(proxy.running, proxy.gpus_of)
            sample = partial(self._node_gpu_monitor.sample, wanted=wanted)
            loop = asyncio.get_running_loop()
            self._sampling = loop.run_in_executor(self._monitor_thread, sample)
        done, _pending = await asyncio.wait({self._sampling}, timeout=_SAMPLE_TIMEOUT_S)
        return self._sampling.result() if done else None

    async def _take_leave(self, proxy: ProtocolProxy | None, since: float) -> bool:
        """Kill all jobs. Returns True once the head has their ends; then `stoker cluster leave` can go on.

        It also goes on if the head has opened no stream, so that it waits for nothing of this node: it may
        open none to a node that leaves. What the supervisor runs is then ended by `stoker cluster leave`.
        """
        if proxy is None:
            if time.monotonic() >= since + _STREAM_S:
                self._let_leave()
            return False
        if proxy.running:
            await proxy.send([CutAttempt(key, lease_file.LEFT) for key in proxy.running])
        is_idle = not (proxy.running or proxy.unconfirmed)
        if is_idle:
            self._let_leave()
        return is_idle

    def _let_leave(self) -> None:
        """Let `stoker cluster leave` go on."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._leaving)

    async def open_stream(self, stream: str) -> str | None:
        """Connect to the supervisor, which is started if there is none. The stream before this one ends.

        Returns the reason if no supervisor can be started, as on a full disk.
        """
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self._stream = stream
        deadline = time.monotonic() + _PATIENCE_S
        try:
            connection = await asyncio.to_thread(self._connect, deadline)
        except (StokerError, OSError) as error:
            return str(error)
        finally:
            self._launcher.reap()
        if self._stream != stream:  # a newer stream was opened meanwhile
            connection.close()
            return None
        self._proxy = ProtocolProxy(
            connection,
            self._folder,
            self._introduction.name,
            self._log_forwarders,
            self._checkpoints,
            self._env,
            self._ending,
        )
        self._guard = asyncio.ensure_future(self._replace_supervisor(self._proxy))
        return None

    async def _replace_supervisor(self, proxy: ProtocolProxy) -> None:
        """Start another supervisor if this one was killed: jobs must end in time while the head is away."""
        await proxy.gone()
        if self._proxy is proxy and proxy.running:
            deadline = time.monotonic() + _PATIENCE_S
            with contextlib.suppress(StokerError):
                (await asyncio.to_thread(self._connect, deadline)).close()

    def _connect(self, deadline: float) -> socket.socket:
        """Return a connection to a supervisor that has sent its greeting: an idle one may be ending."""
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

    def _proxy_of(self, stream: str) -> ProtocolProxy | None:
        return self._proxy if stream == self._stream else None

    async def write_orders(self, request: messages.WriteOrders) -> bool:
        """Pass orders on to the supervisor. Returns False if the stream has ended."""
        proxy = self._proxy_of(request.stream)
        if proxy is None:
            return False
        try:
            await proxy.write(request.lines)
        except OSError:
            return False
        return True

    async def read_reports(self, request: messages.ReadReports) -> messages.StreamOutput | None:
        """Wait for output of a stream; None if the stream has ended."""
        proxy = self._proxy_of(request.stream)
        return None if proxy is None else await proxy.read(_READ_S)

    async def close_stream(self, request: messages.CloseStream) -> None:
        """End a stream; jobs go on."""
        if (proxy := self._proxy_of(request.stream)) is not None:
            proxy.close()
            self._proxy = None

    async def call_cache(self, request: CacheRequest[Any]) -> Any:
        """Call the node cache. A failure is a reply: an exception would look like an agent that is gone."""
        if boot_clock_s() >= self._pruned_at_s + _PRUNE_PERIOD_S:
            self._pruned_at_s = boot_clock_s()
            self._pruning = asyncio.ensure_future(self._prune())
        method = CACHE_METHODS[type(request)]
        is_checkpoint = isinstance(request, messages.CheckpointRequest)
        target = self._checkpoints if is_checkpoint else self._node_cache
        work = partial(method, target, *msgspec.structs.astuple(request))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._cache_threads, work)
        except (StokerError, OSError) as error:
            return messages.CacheFailure(str(error), getattr(error, "errno", None) or 0)

    async def _prune(self) -> None:
        with contextlib.suppress(StokerError, OSError):  # it is tried again in an hour
            await asyncio.to_thread(self._node_cache.prune, _KEEP_BYTES)
            keep = set() if self._proxy is None else self._proxy.jobs
            await asyncio.to_thread(self._checkpoints.prune, keep, _UNUSED_CHECKPOINTS_S)

    def _find_slots(self, named: str | None) -> tuple[Slot, ...]:
        known = None if self._nvml is None else self._nvml.gpus()
        try:
            if named is None:
                return default_slots(known, None)
            return parse_slots(named, known, None)
        except StokerError:
            return ()  # a node without GPUs can run jobs that need none
