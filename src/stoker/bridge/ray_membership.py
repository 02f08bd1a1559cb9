"""Finds the nodes of the cluster through Ray, and keeps an agent on each."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from stoker import __version__
from stoker.bridge.agent import Agent
from stoker.bridge.agent_client import AgentClient, AgentLostError, wait_for_ray
from stoker.bridge.agent_messages import Introduce
from stoker.bridge.node_session import NodeLeftError, NodeSession
from stoker.cluster import ray_api
from stoker.cluster.protocol import PROTOCOL, is_understood
from stoker.cluster.ray_api import RayNode
from stoker.cluster.settings import split_address
from stoker.executors.node_reports import Introduction, NodeReport, Notice

_LOOK_S = 1.0
_LOOK_TIMEOUT_S = 10.0
_REACH_S = 2.0
_RETRY_S = 1.0
_INTRODUCTION_TIMEOUT_S = 30.0
_VERSION_RETRY_S = 30.0


class RayMembership:
    """Looks for nodes every second, and keeps a session with each that is not this machine.

    When Ray ends on this machine, the process must start again: Ray's drivers cannot reconnect.
    """

    def __init__(
        self,
        queue: str,
        address: str,
        session_for: Callable[[str, str], NodeSession],
        report: Callable[[NodeReport], None],
    ) -> None:
        self._queue = queue
        self._address = address
        self._session_for = session_for
        self._report = report
        self._notified: set[str] = set()
        self.has_joined = False
        self._sessions: dict[str, asyncio.Task[None]] = {}  # by Ray's ids
        self._left: set[str] = set()
        self._living: set[str] = set()
        self._thread = ThreadPoolExecutor(1)  # uploads use the other threads
        self._met: dict[str, RayNode] = {}  # by the nodes' own ids

    async def run(self) -> None:
        """Keep an agent on every node; raise AgentLostError once Ray has ended on this machine."""
        own = await self._join()
        self.has_joined = True
        while True:
            found = {node.id: node for node in await wait_for_ray(self._look, _LOOK_TIMEOUT_S)}
            self._living = set(found)
            if own not in found:
                raise AgentLostError("Ray has ended here, or begun anew")
            for node in found.values():
                session = self._sessions.get(node.id)
                if node.id not in {own, *self._left} and (session is None or session.done()):
                    self._sessions[node.id] = asyncio.ensure_future(self._mind(node))
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> list[RayNode]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, ray_api.list_live_nodes)

    async def _join(self) -> str:
        """Become a driver as soon as Ray runs here. Returns Ray's id of this machine."""
        while True:
            try:
                # Ray itself would try for minutes, and then end the process.
                await asyncio.to_thread(_reach, self._address)
                return await asyncio.to_thread(ray_api.connect_driver, self._address)
            except (OSError, RuntimeError, ValueError):
                await asyncio.sleep(_RETRY_S)

    async def _mind(self, node: RayNode) -> None:
        """Keep a session with a node until the node or its agent is gone."""
        session: NodeSession | None = None
        try:
            agent = AgentClient(await asyncio.to_thread(self._find_agent, node))
            introduction = await agent.call(Introduce(), _INTRODUCTION_TIMEOUT_S)
            if not (self._is_understood(introduction) and self._is_unique(introduction, node)):
                await asyncio.sleep(_VERSION_RETRY_S)
                return
            session = self._session_for(introduction.id, introduction.name)
            await session.mind(agent, introduction)
        except AgentLostError as error:
            # Ray's text is long: it goes to the bridge's log only.
            sys.stderr.write(f"{node.hostname}: {error}\n")
            if session is not None:
                session.lose("its agent is gone")
        except NodeLeftError:
            self._left.add(node.id)
        await asyncio.sleep(_RETRY_S)

    def _find_agent(self, node: RayNode) -> Callable[[bytes], Awaitable[bytes]]:
        return ray_api.get_actor(Agent, self._queue, node).call

    def forget(self, node: str) -> None:
        """End the session with a node; if the node is there, a new session begins."""
        met = self._met.pop(node, None)
        if met is not None:
            self._sessions[met.id].cancel()

    def _is_understood(self, found: Introduction) -> bool:
        """Whether the head understands a node's messages; if not, notify the user once."""
        if is_understood(found.protocol):
            return True
        versions = f"{found.name} has Stoker {found.version}, and the head {__version__}"
        if found.protocol < PROTOCOL:
            remedy = f"install Stoker {__version__} there, and run stoker cluster join again on it"
        else:
            remedy = f"install Stoker {found.version} on the head, and run stoker daemon restart"
        self._notify_once(
            f"{versions}, which do not understand each other: it gets no jobs; {remedy}"
        )
        return False

    def _is_unique(self, found: Introduction, node: RayNode) -> bool:
        """Whether no other live node has this node's id; if one has, notify the user once.

        The head would take both for one node, and jobs of the first for lost on the second.
        """
        first = self._met.get(found.id, node)
        if first.id in self._living and node.address != first.address:
            self._notify_once(
                f"the box at {node.address} has the id of {found.name}, at {first.address}, as a copy of"
                " its home would: it gets no jobs; stoker cluster leave and join, on it, give it an id of"
                " its own"
            )
            return False
        self._met[found.id] = node
        return True

    def _notify_once(self, text: str) -> None:
        if text not in self._notified:
            self._notified.add(text)
            self._report(Notice(text))


def _reach(address: str) -> None:
    """Raise OSError if no server listens at an address."""
    socket.create_connection(split_address(address), timeout=_REACH_S).close()
