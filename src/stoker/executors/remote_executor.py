"""Runs attempts on another machine, through a stream to its supervisor that may break at any time."""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import Ended, Launch, Report, Revoked, Started, Synced, Unheld
from stoker.executors.node_orders import (
    NODE_ORDERS,
    KeepAttempts,
    NodeOrder,
    SendCheckpoints,
    SendScript,
    SendTree,
)
from stoker.executors.node_reports import ClockOffset, Notice
from stoker.executors.protocol_client import ProtocolClient
from stoker.executors.supervisor_launcher import check_protocol
from stoker.supervisor.messages import Order, StopSupervisor, Sync

# If a start differs by so much between a node's time of day and its boot clock, the former has been set.
_CLOCK_WAS_SET_US = 5_000_000


class RemoteExecutor(ProtocolClient):
    """Implements the executor contract for one node.

    Without a stream, launches are revoked, leases are refused and other orders are dropped. On each new
    stream the supervisor first reports all it knows, as after a restart.
    """

    def __init__(self, node: str, scripts: str) -> None:
        super().__init__()
        self.node = node
        self.offset = ClockOffset()
        self._scripts = scripts
        self._slots: dict[int, Slot] = {}
        self._is_open = False
        self._socket: socket.socket | None = None
        self._wanted: Sequence[str] | None = None
        self._pending: list[Report] = []

    def fileno(self) -> int:
        """Return the descriptor to wait on; -1 without a stream."""
        return -1 if self._socket is None else self._socket.fileno()

    def attach(self, stream: socket.socket, wanted: Sequence[str] | None = None) -> None:
        """Use a new stream. The node drops logs and results of attempts that are not wanted (None: none)."""
        self.detach()
        self._socket = stream
        self._wanted = wanted
        self._connection = SupervisorConnection(0, stream)

    def detach(self) -> None:
        """Close the stream."""
        self._is_open = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def is_attached(self) -> bool:
        """Whether there is a stream. The other side may just have closed it."""
        return self._socket is not None

    def _send(self, *orders: Order) -> None:
        if self._is_open:
            super()._send(*orders)

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Define slots under the node's own names."""
        own = [_as_node_slot(slot) for slot in slots]
        self._slots |= {slot.index: slot for slot in own}
        super().define_slots(own)

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Ask for a slot's leases."""
        if not self._is_open:
            key = next(iter(self._slots[slot].keys), "")
            self._pending.append(Unheld(slot, key, None))
        super().hold(slot, gather=gather)

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        super().release(slot, [_node_key(key, self.node) for key in gpu_keys])

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts, with the files of this machine that they need."""
        if not self._is_open:
            self._pending += [Revoked(order.key) for order in launches]
            return
        orders = [_for_node(order) for order in launches]
        scripts = {word for order in orders for word in order.argv if self._is_script(word)}
        needs: list[NodeOrder] = [_read_script(path) for path in sorted(scripts)]
        needs += [
            SendTree(order.key, msgspec.to_builtins(order.transfer))
            for order in orders
            if order.transfer is not None
        ]
        needs += [SendCheckpoints(order.key) for order in orders if _has_checkpoints(order)]
        if needs:
            self._connection.send_line(NODE_ORDERS.encode(needs))
        super().launch(orders)

    def _log_offset(self, launch: Launch) -> int:
        """Return how long the log is already, with the output of earlier attempts."""
        try:
            return 0 if launch.log is None else os.stat(launch.log).st_size
        except OSError:
            return 0

    def _is_script(self, word: str) -> bool:
        return os.path.dirname(word) == self._scripts

    def stop(self, kill: bool) -> None:
        """Stop the supervisor."""
        self._send(StopSupervisor(kill))

    def observe(self) -> list[Report]:
        """Return new reports. If the stream has broken, close it."""
        reports, self._pending = self._pending, []
        if self._socket is None:
            return reports
        received = self._connection.receive()
        if received is None:
            self.detach()
            return reports
        if not self._is_open and self._connection.hello is not None:
            try:
                check_protocol(self._connection.hello)
            except StokerError as error:
                self.detach()  # the other nodes go on
                return [*reports, Notice(f"{self.node}: {error}")]
            self._connection.hello = None
            wanted = [] if self._wanted is None else [KeepAttempts(self._wanted)]
            self._connection.send_line(NODE_ORDERS.encode([*wanted, Sync()]))
            self._start_over(self._connection)
        for report in received:
            if isinstance(report, Synced):
                # Not earlier: an attempt launched before would be missing in this report.
                self._is_open = True
                report = Synced(report.keys, fresh=True, node=self.node)
            reports.append(self._as_seen_here(report))
        return reports

    def _as_seen_here(self, report: Report) -> Report:
        """Convert the names and times of a report to those of this machine."""
        match report:
            case Unheld():
                key = remote_key(self.node, report.gpu_key)
                gathered = tuple(remote_key(self.node, each) for each in report.gathered)
                return Unheld(report.slot, key, report.reason, gathered=gathered)
            case Started():
                at_s = report.at_s + self.offset.since_boot_s
                at_us = self._time_here(report.at_us)
                ago_s = time.clock_gettime(time.CLOCK_BOOTTIME) - at_s
                by_boot_us = time.time_ns() // 1000 - round(ago_s * 1e6)
                if abs(at_us - by_boot_us) > _CLOCK_WAS_SET_US:
                    at_us = by_boot_us  # to some milliseconds only, but no user sets that clock
                return msgspec.structs.replace(report, at_us=at_us, at_s=at_s)
            case Ended():
                return msgspec.structs.replace(report, at_us=self._time_here(report.at_us))
        return report

    def _time_here(self, at_us: int) -> int:
        """Convert a node's time of day. It is not in the future, also if that clock has just been set."""
        return min(at_us + self.offset.of_day_s * 1_000_000, time.time_ns() // 1000)


def remote_key(node: str, key: str) -> str:
    """Return the key of a node's GPU that is unique in the cluster."""
    return f"{node}/{key}"


def _node_key(key: str, node: str) -> str:
    return key.removeprefix(f"{node}/")


def _as_node_slot(slot: Slot) -> Slot:
    keys = tuple(_node_key(key, slot.node) for key in slot.keys)
    return msgspec.structs.replace(slot, keys=keys)


def _for_node(order: Launch) -> Launch:
    """Return a launch with the command line for the node."""
    if order.transfer is None:
        if order.program is None:
            return order
        return msgspec.structs.replace(order, argv=[order.program, *order.argv[1:]])
    return msgspec.structs.replace(order, argv=order.transfer.argv, warm=None, env=None)


def _has_checkpoints(order: Launch) -> bool:
    """Whether there are checkpoints to send along."""
    if order.checkpoints is None:
        return False
    try:
        with os.scandir(order.checkpoints) as found:
            return next(found, None) is not None
    except OSError:
        return False


def _read_script(path: str) -> SendScript:
    with open(path, "rb") as file:
        return SendScript(path, base64.b64encode(file.read()).decode("ascii"))
