"""Executor of `stoker run` and the Python API: its supervisors end with this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence

from stoker.core.slot import Slot, group_by_gpu
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import (
    ExecutorLostError,
    Finished,
    Launch,
    Refused,
    Report,
    Revoked,
    Started,
)
from stoker.executors.slot_numbering import SlotNumbering
from stoker.supervisor import messages, process_tree
from stoker.supervisor.journal import journal_path
from stoker.supervisor.launcher import SupervisorProcess, start_supervisor
from stoker.supervisor.messages import AheadOrder, DefineContext, Order

# A supervisor starts one process at a time: with so many slots, two supervisors start more.
_SLOTS_FOR_TWO = 4


class ForegroundExecutor:
    """Implements the executor contract with supervisors that die with this process.

    With `single` there is one supervisor for all slots: only then can an attempt have several slots without
    a common GPU.
    """

    def __init__(
        self,
        *,
        name: str,
        journal: str,
        env: Mapping[str, str],
        cwd: str,
        shell: str,
        supervisor: SupervisorProcess | None = None,
        single: bool = False,
    ) -> None:
        # If a supervisor is killed, its jobs become children of this process, which can end them.
        process_tree.become_subreaper()
        self._name = name
        self._single = single
        self._journal = journal
        self._contexts: dict[int, DefineContext] = {}
        self._connections: list[SupervisorConnection] = []
        self._by_slot: dict[int, SupervisorConnection] = {}
        # One supervisor has all slots of a GPU, because it has the GPU's lease.
        self._by_gpu: dict[str, SupervisorConnection] = {}
        self._slot_numbering = SlotNumbering()
        self._poll = select.epoll()
        self._finishing: set[SupervisorConnection] = set()
        self._in_line: dict[str, int] = {}  # tickets of attempts that may still be in the line
        self._last_ticket = 0
        self._revoked: list[Report] = []
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wakeup, select.EPOLLIN)
        self.define_context(0, env, cwd, shell)
        supervisor = supervisor or start_supervisor()
        self._tickets = supervisor.tickets
        self._connect(supervisor)

    def _connect(self, supervisor: SupervisorProcess) -> None:
        connection = SupervisorConnection(supervisor.pid, supervisor.socket)
        path = journal_path(self._journal, len(self._connections))
        connection.send(messages.OpenJournal(self._name, path), *self._contexts.values())
        self._connections.append(connection)
        self._poll.register(connection.socket, select.EPOLLIN)

    @property
    def name(self) -> str:
        """The first part of its jobs' cookies."""
        return self._name

    @property
    def pids(self) -> list[int]:
        """The pids of the supervisors that have sent their greeting."""
        return [each.hello.pid for each in self._connections if each.hello is not None]

    @property
    def parents(self) -> list[int]:
        """The clean-up processes of the supervisors, which end after them."""
        return [connection.pid for connection in self._connections]

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Distribute the slots to the supervisors; slots with a common GPU stay together."""
        groups = group_by_gpu(slots)
        if len(slots) >= _SLOTS_FOR_TWO and len(groups) > 1 and not self._single:
            self._connect(start_supervisor(self._tickets))
        for number, group in enumerate(groups):
            connection = self._by_gpu.get(group[0].keys[0]) if group[0].keys else None
            connection = connection or self._connections[number % len(self._connections)]
            self._by_gpu.update((key, connection) for slot in group for key in slot.keys)
            self._by_slot.update((slot.index, connection) for slot in group)
            connection.send(*(self._slot_numbering.enter(slot) for slot in group))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Define a context at every supervisor, once."""
        if number not in self._contexts:
            context = self._contexts[number] = DefineContext(number, dict(env), cwd, shell)
            self._send_all(context)

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Ask for a slot's leases."""
        self._by_slot[slot].send(messages.HoldSlot(slot, gather))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._by_slot[slot].send(messages.ReleaseSlot(slot, list(gpu_keys)))

    def reserve(self, leases: Mapping[str, float]) -> None:
        """Do nothing: the supervisors end with this process."""

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write to each supervisor."""
        starts: dict[SupervisorConnection, list[Order]] = {}
        ahead: list[AheadOrder] = []
        for order in launches:
            if order.ahead:
                ahead.append(self._enter_line(order))
                continue
            place, definition = self._slot_numbering.place(order.slots)
            orders = starts.setdefault(self._connection_of(order), [])
            orders += definition
            orders.append(_start_order(order, place))
        for connection, orders in starts.items():
            connection.send(*orders)
        if ahead:
            # Tickets first: a supervisor that has a ticket waits for the order.
            self._tickets.write([*range(self._last_ticket - len(ahead) + 1, self._last_ticket + 1)])
            self._send_all(messages.StartAhead(ahead, next(iter(self._in_line.values()))))

    def _enter_line(self, order: Launch) -> AheadOrder:
        self._last_ticket += 1
        ticket = self._in_line[order.key] = self._last_ticket
        env = dict(order.env) if order.env else None
        return AheadOrder(ticket, order.key, order.context, order.argv, order.log, env, order.warm)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Tell each supervisor which of its slots take attempts launched ahead."""
        for connection in self._connections:
            own = [slot for slot in slots if self._by_slot[slot.index] is connection]
            connection.send(messages.OfferSlots([(slot.index, slot.label) for slot in own]))

    def _connection_of(self, order: Launch) -> SupervisorConnection:
        if not order.slots:
            return self._connections[0]
        connection = self._by_slot[order.slots[0]]
        if any(self._by_slot[slot] is not connection for slot in order.slots[1:]):
            raise ValueError(f"{order.key}: the slots {order.slots} have no supervisor in common")
        return connection

    def observe(self) -> list[Report]:
        """Read all reports that have arrived."""
        ready = {fd for fd, _event in self._poll.poll(0)}
        reports, self._revoked = self._revoked, []
        if reports:
            os.eventfd_read(self._wakeup)
        for connection in self._connections:
            if connection.socket.fileno() not in ready:
                continue
            received = connection.receive()
            if received is not None:
                reports += received
                if self._in_line:
                    self._leave_line(received)
            elif connection not in self._finishing:
                raise ExecutorLostError("a supervisor process died; its commands were ended")
            else:
                self._finishing.remove(connection)
                self._poll.unregister(connection.socket)
                if not self._finishing:
                    self.end_orphans()  # in case a supervisor was killed
                    reports.append(Finished())
        return reports

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Do nothing: ends are reported once, because the supervisors do not outlive this process."""

    def revoke(self, key: str) -> None:
        """Take an attempt back. If it is in the line, all attempts still in the line are revoked."""
        if key in self._in_line and (tickets := {*self._tickets.take_all()}):
            revoked = [each for each, ticket in self._in_line.items() if ticket in tickets]
            for each in revoked:
                del self._in_line[each]
            self._revoked += map(Revoked, revoked)
            os.eventfd_write(self._wakeup, 1)
            if key in revoked:
                return
        self._send_all(messages.RevokeAttempt(key))

    def _leave_line(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report, Started | Refused | Revoked):
                self._in_line.pop(report.key, None)

    def move(self, key: str, slots: tuple[int, ...] | None) -> None:
        """Do nothing: a foreground run suspends no jobs."""

    def limit(self, key: str, mem_bytes: int) -> None:
        """Do nothing: a foreground run suspends no jobs."""

    def signal(
        self, key: str, signum: int, grace_s: float | None = None, *, main_only: bool = False
    ) -> None:
        """Signal a tree."""
        kind = messages.SignalMain if main_only else messages.SignalAttempt
        self._send_all(kind(key, int(signum), grace_s))

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._send_all(messages.KillAttempt(key))

    def finish(self) -> None:
        """Ask the supervisors to end after the last processes."""
        self._finishing = set(self._connections)
        self._send_all(messages.Finish())

    def close(self) -> None:
        """Disconnect from the supervisors, which then kill all jobs."""
        if self._poll.closed:
            return  # the descriptors may have been reused
        for connection in self._connections:
            connection.socket.close()
        self._poll.close()
        os.close(self._wakeup)
        self._tickets.close()

    def end_orphans(self) -> None:
        """Kill the jobs of dead supervisors that their clean-up processes have left."""
        for connection in self._connections:
            connection.socket.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(connection.pid, 0)
        while orphans := {pid for pid in process_tree.living_children() if self._is_ours(pid)}:
            process_tree.send(orphans, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _is_ours(self, pid: int) -> bool:
        marks = process_tree.read_marks(pid)
        prefix = f"{self._name}:"
        return not marks.is_part and any(cookie.startswith(prefix) for cookie in marks.cookies)

    def _send_all(self, order: Order) -> None:
        # A supervisor ignores attempts of others.
        for connection in self._connections:
            connection.send(order)


def _start_order(launch: Launch, place: int) -> messages.StartAttempt:
    return messages.StartAttempt(
        launch.key,
        launch.context,
        place,
        launch.argv,
        launch.log,
        dict(launch.env) if launch.env else None,
        launch.warm,
        mem_bytes=launch.mem_bytes,
        cpus=launch.cpus,
    )
