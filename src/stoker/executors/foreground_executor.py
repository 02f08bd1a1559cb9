"""Runs attempts on this machine, through supervisors of its own."""

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
from stoker.supervisor import process_tree
from stoker.supervisor.journal import journal_path
from stoker.supervisor.launcher import SupervisorProcess, start_supervisor
from stoker.supervisor.messages import (
    AheadOrder,
    DefineContext,
    Finish,
    HoldSlot,
    KillAttempt,
    OfferSlots,
    OpenJournal,
    Order,
    ReleaseSlot,
    RevokeAttempt,
    SignalAttempt,
    StartAhead,
    StartAttempt,
)

# Starting a process is serial work: with so many slots two supervisors start more than one does.
_SLOTS_FOR_TWO = 4


class ForegroundExecutor:
    """Keeps the executor contract by talking to supervisors that die with this process.

    With `single` it is one supervisor, however many slots there are: only then can an attempt have
    slots that share no GPU.
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
        # If a supervisor itself is killed, what it ran becomes ours, and can still be ended.
        process_tree.become_subreaper()
        self._name = name
        self._single = single
        self._journal = journal
        self._contexts: dict[int, DefineContext] = {}
        self._lines: list[SupervisorConnection] = []
        self._line_of_slot: dict[int, SupervisorConnection] = {}
        self._line_of_key: dict[
            str, SupervisorConnection
        ] = {}  # who has a GPU's lease has all slots of that GPU
        self._slot_numbering = SlotNumbering()
        self._poll = select.epoll()
        self._finishing: set[SupervisorConnection] = set()
        self._in_line: dict[str, int] = {}  # the tickets of what is not known to have left the line
        self._last_ticket = 0
        self._revoked: list[Report] = []
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._bell, select.EPOLLIN)
        self.define_context(0, env, cwd, shell)
        supervisor = supervisor or start_supervisor()
        self._tickets = supervisor.tickets
        self._open_line(supervisor)

    def _open_line(self, supervisor: SupervisorProcess) -> None:
        line = SupervisorConnection(supervisor.pid, supervisor.socket)
        path = journal_path(self._journal, len(self._lines))
        line.send(OpenJournal(self._name, path), *self._contexts.values())
        self._lines.append(line)
        self._poll.register(line.socket, select.EPOLLIN)

    @property
    def name(self) -> str:
        """What its jobs' cookies begin with."""
        return self._name

    @property
    def pids(self) -> list[int]:
        """The supervisors' own, as soon as they have said hello."""
        return [line.hello.pid for line in self._lines if line.hello is not None]

    @property
    def parents(self) -> list[int]:
        """The processes that end what is left of a supervisor that was killed; they end after it."""
        return [line.pid for line in self._lines]

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._poll.fileno()

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Share the slots out to the supervisors; those that share a GPU stay together."""
        groups = group_by_gpu(slots)
        if len(slots) >= _SLOTS_FOR_TWO and len(groups) > 1 and not self._single:
            self._open_line(start_supervisor(self._tickets))
        for number, group in enumerate(groups):
            line = self._line_of_key.get(group[0].keys[0]) if group[0].keys else None
            line = line or self._lines[number % len(self._lines)]
            self._line_of_key.update((key, line) for slot in group for key in slot.keys)
            self._line_of_slot.update((slot.index, line) for slot in group)
            line.send(*(self._slot_numbering.enter(slot) for slot in group))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Tell every supervisor, once."""
        if number not in self._contexts:
            context = self._contexts[number] = DefineContext(number, dict(env), cwd, shell)
            self._tell_all(context)

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        self._line_of_slot[slot].send(HoldSlot(slot))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._line_of_slot[slot].send(ReleaseSlot(slot, list(gpu_keys)))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write to each supervisor."""
        starts: dict[SupervisorConnection, list[Order]] = {}
        ahead: list[AheadOrder] = []
        for order in launches:
            if order.ahead:
                ahead.append(self._enter_line(order))
                continue
            place, definition = self._slot_numbering.place(order.slots)
            orders = starts.setdefault(self._line_of(order), [])
            orders += definition
            env = dict(order.env) if order.env else None
            orders.append(
                StartAttempt(
                    order.key, order.context, place, order.argv, order.log, env, order.warm
                )
            )
        for line, orders in starts.items():
            line.send(*orders)
        if ahead:
            # Tickets come first: a supervisor that has one waits for its order, not the other way round.
            self._tickets.write([*range(self._last_ticket - len(ahead) + 1, self._last_ticket + 1)])
            self._tell_all(StartAhead(ahead, next(iter(self._in_line.values()))))

    def _enter_line(self, order: Launch) -> AheadOrder:
        self._last_ticket += 1
        ticket = self._in_line[order.key] = self._last_ticket
        env = dict(order.env) if order.env else None
        return AheadOrder(ticket, order.key, order.context, order.argv, order.log, env, order.warm)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Tell each supervisor which of its slots take what is launched ahead."""
        for line in self._lines:
            own = [slot for slot in slots if self._line_of_slot[slot.index] is line]
            line.send(OfferSlots([(slot.index, slot.label) for slot in own]))

    def _line_of(self, order: Launch) -> SupervisorConnection:
        if not order.slots:
            return self._lines[0]
        line = self._line_of_slot[order.slots[0]]
        if any(self._line_of_slot[slot] is not line for slot in order.slots[1:]):
            raise ValueError(f"{order.key}: the slots {order.slots} have no supervisor in common")
        return line

    def observe(self) -> list[Report]:
        """Read all reports that have arrived."""
        ready = {fd for fd, _event in self._poll.poll(0)}
        reports, self._revoked = self._revoked, []
        if reports:
            os.eventfd_read(self._bell)
        for line in self._lines:
            if line.socket.fileno() not in ready:
                continue
            heard = line.receive()
            if heard is not None:
                reports += heard
                if self._in_line:
                    self._leave_line(heard)
            elif line not in self._finishing:
                raise ExecutorLostError("a supervisor process died; its commands were ended")
            else:
                self._finishing.remove(line)
                self._poll.unregister(line.socket)
                if not self._finishing:
                    self.end_orphans()  # none, unless a supervisor was killed in the middle of it
                    reports.append(Finished())
        return reports

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Nothing is told twice: the supervisors do not outlive this process."""

    def revoke(self, key: str) -> None:
        """Take an attempt back; with one of the line, all that no supervisor has taken out of it."""
        if key in self._in_line and (tickets := {*self._tickets.take_all()}):
            taken_back = [each for each, ticket in self._in_line.items() if ticket in tickets]
            for each in taken_back:
                del self._in_line[each]
            self._revoked += map(Revoked, taken_back)
            os.eventfd_write(self._bell, 1)
            if key in taken_back:
                return
        self._tell_all(RevokeAttempt(key))

    def _leave_line(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report, Started | Refused | Revoked):
                self._in_line.pop(report.key, None)

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal a tree."""
        self._tell_all(SignalAttempt(key, int(signum), grace_s))

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._tell_all(KillAttempt(key))

    def finish(self) -> None:
        """Ask the supervisors to see the last processes off, and to go."""
        self._finishing = set(self._lines)
        self._tell_all(Finish())

    def close(self) -> None:
        """Let go of the supervisors; what still runs is killed by them."""
        if self._poll.closed:
            return  # the numbers of our descriptors may be others' by now
        for line in self._lines:
            line.socket.close()
        self._poll.close()
        os.close(self._bell)
        self._tickets.close()

    def end_orphans(self) -> None:
        """When supervisors are gone, and what cleans up after them: kill what is left, our children now."""
        for line in self._lines:
            line.socket.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(line.pid, 0)
        while orphans := {pid for pid in process_tree.living_children() if self._is_ours(pid)}:
            process_tree.send(orphans, signal.SIGKILL)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _is_ours(self, pid: int) -> bool:
        marks = process_tree.read_marks(pid)
        prefix = f"{self._name}:"
        return not marks.is_part and any(cookie.startswith(prefix) for cookie in marks.cookies)

    def _tell_all(self, order: Order) -> None:
        # A supervisor passes over attempts that are not its own.
        for line in self._lines:
            line.send(order)
