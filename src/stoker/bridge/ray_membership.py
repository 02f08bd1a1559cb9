"""Who belongs to the cluster, as Ray tells, and an agent on each. The only module that imports Ray."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from stoker import __version__
from stoker.bridge.agent import Agent
from stoker.bridge.agent_calls import AgentLostError, NodeLeftError, patiently
from stoker.bridge.node_session import NodeSession
from stoker.cluster.settings import split_address
from stoker.executors.node_reports import Introduction, News, Told

_LOOK_S = 1.0
_LOOK_PATIENCE_S = 10.0
_REACH_S = 2.0
_RETRY_S = 1.0
_MEETING_S = 30.0
_NAMESPACE = "stoker"


class RayMembership:
    """Looks every second who is there; minds each node that is not this one.

    When Ray ends on this machine it is left for good: whoever is its driver has to start anew.
    """

    def __init__(
        self,
        queue: str,
        address: str,
        session_for: Callable[[str, str], NodeSession],
        tell: Callable[[News], None],
    ) -> None:
        self._queue = queue
        self._address = address
        self._session_for = session_for
        self._tell = tell
        self._told: set[str] = set()
        self.has_joined = False
        self._ray_supervisors: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        self._living: set[str] = set()
        self._eye = ThreadPoolExecutor(1)  # trees that are being shipped keep others busy
        self._met: dict[str, dict[str, Any]] = {}  # by a node's own id: whom Ray has under it

    async def run(self) -> None:
        """Keep an agent on every node while it is there; raises AgentLostError once Ray has ended here."""
        own = await self._join()
        self.has_joined = True
        while True:
            nodes = await patiently(self._look, _LOOK_PATIENCE_S)
            found = {node["NodeID"]: node for node in nodes}
            self._living = set(found)
            if own not in found:
                raise AgentLostError("Ray has ended here, or begun anew")
            for ray_id, node in found.items():
                ray_supervisor = self._ray_supervisors.get(ray_id)
                if ray_id in {own, *self._left} or (
                    ray_supervisor is not None and not ray_supervisor.done()
                ):
                    continue
                self._ray_supervisors[ray_id] = asyncio.ensure_future(self._mind(node))
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> list[dict[str, Any]]:
        return await asyncio.get_running_loop().run_in_executor(self._eye, _living_nodes)

    async def _join(self) -> str:
        """Become one of Ray's drivers, as soon as there is Ray; our own node there."""
        while True:
            try:
                # Ray itself would try for minutes, and end the process then.
                await asyncio.to_thread(_reach, self._address)
                return await asyncio.to_thread(self._become_driver)
            except (OSError, RuntimeError, ValueError):
                await asyncio.sleep(_RETRY_S)

    def _become_driver(self) -> str:
        import ray

        ray.init(
            address=self._address,
            namespace=_NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
        return str(ray.get_runtime_context().get_node_id())

    async def _mind(self, node: dict[str, Any]) -> None:
        """Be in touch with a node until it is gone, or its agent is."""
        session: NodeSession | None = None
        try:
            agent = await asyncio.to_thread(self._appoint, node)
            said = await patiently(lambda: agent.introduce.remote(), _MEETING_S)
            introduction = msgspec.json.decode(said, type=Introduction)
            if not (self._speaks_as_we_do(introduction) and self._is_itself(introduction, node)):
                await asyncio.sleep(_MEETING_S)
                return
            session = self._session_for(introduction.id, introduction.name)
            await session.mind(_Calls(agent), introduction)
        except AgentLostError as error:
            # What Ray says is long, and for those who look after the bridge.
            sys.stderr.write(f"{node['NodeManagerHostname']}: {error}\n")
            if session is not None:
                session.lose("its agent is gone")
        except NodeLeftError:
            self._left.add(node["NodeID"])
        await asyncio.sleep(_RETRY_S)

    def _appoint(self, node: dict[str, Any]) -> Any:
        """The agent on a node, which Ray starts again when it dies, and nobody else's GPUs."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray_id = node["NodeID"]
        return (
            ray.remote(Agent)
            .options(
                name=f"agent-{self._queue}-{ray_id}",
                namespace=_NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                num_gpus=node["Resources"].get("GPU", 0),
                max_restarts=-1,
                max_concurrency=100,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=ray_id, soft=False),
            )
            .remote(self._queue)
        )

    def forget(self, node: str) -> None:
        """Whoever knew a node has forgotten it: if it is there, it is met anew."""
        met = self._met.pop(node, None)
        if met is not None:
            self._ray_supervisors[met["NodeID"]].cancel()

    def _speaks_as_we_do(self, found: Introduction) -> bool:
        """Whether a node has our version; it is said once of every other."""
        if found.version == __version__:
            return True
        self._tell_once(
            f"{found.name} has Stoker {found.version} and the head {__version__}: it gets no jobs;"
            " install the same version on both, and run stoker cluster leave and join there"
        )
        return False

    def _is_itself(self, found: Introduction, node: dict[str, Any]) -> bool:
        """Whether no other box that lives has this one's id; it is said once of every other.

        Both would be spoken with as one, and what runs on the first taken for lost on the second.
        """
        first = self._met.get(found.id, node)
        where, there = node["NodeManagerAddress"], first["NodeManagerAddress"]
        if first["NodeID"] in self._living and where != there:
            self._tell_once(
                f"the box at {where} has the id of {found.name}, at {there}, as a copy of its home"
                " would: it gets no jobs; stoker cluster leave and join, on it, give it an id of its own"
            )
            return False
        self._met[found.id] = node
        return True

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(Told(text))


class _Calls:
    """An agent's methods as they are called from here."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actor, name).remote


def _reach(address: str) -> None:
    """Raise OSError where nobody listens."""
    socket.create_connection(split_address(address), timeout=_REACH_S).close()


def _living_nodes() -> list[dict[str, Any]]:
    import ray

    list_nodes: Any = ray.nodes
    found: list[dict[str, Any]] = list_nodes()
    return [node for node in found if node["Alive"]]
