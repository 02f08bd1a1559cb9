"""Runs attempts on another machine: its supervisor, spoken with over a stream that may break at any time."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import Ended, Launch, Report, Revoked, Started, Synced, Unheld
from stoker.executors.node_orders import NODE_ORDERS, NodeOrder, SendScript, SendTree
from stoker.executors.node_reports import Ahead, Told
from stoker.executors.protocol_client import ProtocolClient
from stoker.executors.supervisor_launcher import check_protocol
from stoker.supervisor.messages import StopSupervisor, Sync


class RemoteExecutor(ProtocolClient):
    """Keeps the executor contract, as far as the stream allows.

    While there is none, what is asked for is refused: launches are revoked, and no GPU is held. With
    each new stream it is told first what the supervisor knows, as after a restart.
    """

    def __init__(self, node: str, scripts: str) -> None:
        super().__init__()
        self.node = node
        self.ahead = Ahead()
        self._scripts = scripts
        self._slots: dict[int, Slot] = {}
        self._is_open = False
        self._socket: socket.socket | None = None
        self._news: list[Report] = []

    def fileno(self) -> int:
        """The descriptor to wait on; -1 while there is no stream."""
        return -1 if self._socket is None else self._socket.fileno()

    def attach(self, stream: socket.socket) -> None:
        """Begin to speak over a new stream."""
        self.detach()
        self._socket = stream
        self._line = SupervisorConnection(0, stream)

    def detach(self) -> None:
        """Let go of a stream that is over."""
        self._is_open = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def is_attached(self) -> bool:
        """Whether there is a stream, which may have been over for a moment."""
        return self._socket is not None

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Remember them as the node calls them, and tell the supervisor."""
        own = [_as_its_own(slot) for slot in slots]
        self._slots |= {slot.index: slot for slot in own}
        places = [self._slot_numbering.enter(slot) for slot in own]
        if self._is_open:
            self._line.send(*places)

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        if self._is_open:
            super().hold(slot)
        else:
            key = next(iter(self._slots[slot].keys), "")
            self._news.append(Unheld(slot, key, None))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        if self._is_open:
            super().release(slot, [_bare(key, self.node) for key in gpu_keys])

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts, with what they need of this machine's files."""
        if not self._is_open:
            self._news += [Revoked(order.key) for order in launches]
            return
        orders = [_embarked(order) for order in launches]
        scripts = {word for order in orders for word in order.argv if self._is_script(word)}
        needs: list[NodeOrder] = [_read_script(path) for path in sorted(scripts)]
        needs += [
            SendTree(order.key, msgspec.to_builtins(order.transfer))
            for order in orders
            if order.transfer is not None
        ]
        if needs:
            self._line.send_line(NODE_ORDERS.encode(needs))
        super().launch(orders)

    def _log_offset(self, launch: Launch) -> int:
        """How much of earlier attempts is in the log already."""
        try:
            return 0 if launch.log is None else os.stat(launch.log).st_size
        except OSError:
            return 0

    def _is_script(self, word: str) -> bool:
        return os.path.dirname(word) == self._scripts

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Let the supervisor forget ends."""
        if self._is_open:
            super().acknowledge(keys)

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        if self._is_open:
            super().revoke(key)

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal a tree; orders to end are given again when there is a stream."""
        if self._is_open:
            super().signal(key, signum, grace_s)

    def kill(self, key: str) -> None:
        """Kill a tree."""
        if self._is_open:
            super().kill(key)

    def stop(self, kill: bool) -> None:
        """Let the supervisor go."""
        if self._is_open:
            self._line.send(StopSupervisor(kill))

    def observe(self) -> list[Report]:
        """What has come; once a stream breaks there is none, and nothing is known of the node."""
        reports, self._news = self._news, []
        if self._socket is None:
            return reports
        heard = self._line.receive()
        if heard is None:
            self.detach()
            return reports
        if not self._is_open and self._line.hello is not None:
            try:
                check_protocol(self._line.hello)
            except StokerError as error:
                self.detach()  # one node is no reason to end all
                return [*reports, Told(f"{self.node}: {error}")]
            self._line.hello = None
            self._line.send(Sync())
            self._start_over(self._line)
        for report in heard:
            if isinstance(report, Synced):
                # Not before: what was launched meanwhile would seem to be unknown.
                self._is_open = True
                report = Synced(report.keys, fresh=True, node=self.node)
            reports.append(self._as_of_here(report))
        return reports

    def _as_of_here(self, report: Report) -> Report:
        """With names and times as they are on this machine."""
        match report:
            case Unheld():
                return Unheld(report.slot, f"{self.node}/{report.gpu_key}", report.reason)
            case Started():
                at_us = report.at_us + self.ahead.of_day_s * 1_000_000
                at_s = report.at_s + self.ahead.since_boot_s
                return msgspec.structs.replace(report, at_us=at_us, at_s=at_s)
            case Ended() if self.ahead.of_day_s:
                at_us = report.at_us + self.ahead.of_day_s * 1_000_000
                return msgspec.structs.replace(report, at_us=at_us)
        return report


def far_key(node: str, key: str) -> str:
    """What a GPU of a node is known by here, where keys of several machines meet."""
    return f"{node}/{key}"


def _bare(key: str, node: str) -> str:
    return key.removeprefix(f"{node}/")


def _as_its_own(slot: Slot) -> Slot:
    keys = tuple(_bare(key, slot.node) for key in slot.keys)
    return msgspec.structs.replace(slot, keys=keys)


def _embarked(order: Launch) -> Launch:
    """With a transfer, the words are those for the other side."""
    if order.transfer is None:
        return order
    return msgspec.structs.replace(order, argv=order.transfer.argv, warm=None, env=None)


def _read_script(path: str) -> SendScript:
    with open(path, "rb") as file:
        return SendScript(path, base64.b64encode(file.read()).decode("ascii"))
