"""Base class of executors whose supervisor outlives them: sends calls as orders over a connection."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from stoker.core.slot import Slot
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import Launch
from stoker.executors.slot_numbering import SlotNumbering
from stoker.supervisor import messages
from stoker.supervisor.messages import Order

_CONTEXTS_HELD = 64
# The contexts used last are sent to a new supervisor; callers define older ones again.
_CONTEXTS_KNOWN = 256


class ProtocolClient:
    """Implements the calls of the executor contract. A subclass opens the connection and observes it."""

    def __init__(self, cpus_of: Callable[[Sequence[str]], str] = lambda _keys: "") -> None:
        self._slot_numbering = SlotNumbering(cpus_of)
        self._contexts: OrderedDict[int, messages.DefineContext] = OrderedDict()
        self._held_contexts: OrderedDict[int, None] = OrderedDict()
        self._connection: SupervisorConnection

    def _send(self, *orders: Order) -> None:
        """Send orders in one write."""
        if orders:
            self._connection.send(*orders)

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Define slots at the supervisor."""
        self._send(*(self._slot_numbering.enter(slot) for slot in slots))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember a context; the supervisor gets it with the first launch in it."""
        if number not in self._contexts:
            self._contexts[number] = messages.DefineContext(number, dict(env), cwd, shell)
            if len(self._contexts) > _CONTEXTS_KNOWN:
                self._contexts.popitem(last=False)

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Ask for a slot's leases."""
        self._send(messages.HoldSlot(slot, gather))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._send(messages.ReleaseSlot(slot, list(gpu_keys)))

    def reserve(self, leases: Mapping[str, float]) -> None:
        """Let the supervisor keep leases when this client is gone."""
        self._send(messages.ReserveLeases(dict(leases)))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write, with the contexts and places they need."""
        orders: list[Order] = []
        ahead: list[messages.AheadOrder] = []
        for launch in launches:
            key, context, argv, log = launch.key, launch.context, launch.argv, launch.log
            warm = launch.warm
            env = dict(launch.env or {}) if warm is not None else None
            orders += self._provide_context(context)
            if launch.ahead:
                ahead.append(messages.AheadOrder(0, key, context, argv, log, env, warm))
                continue
            place, definition = self._slot_numbering.place(launch.slots)
            orders += definition
            offset = self._log_offset(launch)
            limits = launch.mem_bytes, launch.cpus
            orders.append(
                messages.StartAttempt(key, context, place, argv, log, env, warm, offset, *limits)
            )
        if ahead:
            orders.append(messages.StartAhead(ahead, 0))
        self._send(*orders)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Tell the supervisor which slots take attempts that were launched ahead."""
        self._send(messages.OfferSlots([(slot.index, slot.label) for slot in slots]))

    def _log_offset(self, _launch: Launch) -> int:
        """Return where the output of a remote attempt begins in its log on this machine."""
        return 0

    def _provide_context(self, number: int) -> list[Order]:
        self._contexts.move_to_end(number)
        if number in self._held_contexts:
            self._held_contexts.move_to_end(number)
            return []
        orders: list[Order] = [self._contexts[number]]
        if len(self._held_contexts) >= _CONTEXTS_HELD:
            oldest, _ = self._held_contexts.popitem(last=False)
            orders.append(messages.ForgetContext(oldest))
        self._held_contexts[number] = None
        return orders

    def _start_over(self, connection: SupervisorConnection) -> None:
        """Use a new connection, whose supervisor knows no slots and contexts of this client."""
        self._connection = connection
        self._held_contexts.clear()
        slots = self._slot_numbering.start_over()
        if slots:
            connection.send(*slots)

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Let the supervisor forget ends."""
        if keys:
            self._send(messages.Acknowledge(list(keys)))

    def disown(self, keys: Sequence[str]) -> None:
        """Name running attempts of which this client has no record: their GPUs stay taken."""
        if keys:
            self._send(messages.Disown(list(keys)))

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._send(messages.RevokeAttempt(key))

    def move(self, key: str, slots: tuple[int, ...] | None) -> None:
        """Free the slots of an attempt, or let it occupy these."""
        if slots is None:
            self._send(messages.MoveAttempt(key, None))
        else:
            place, definition = self._slot_numbering.place(slots)
            self._send(*definition, messages.MoveAttempt(key, place))

    def limit(self, key: str, mem_bytes: int) -> None:
        """Change the limit of a running attempt."""
        self._send(messages.LimitAttempt(key, mem_bytes))

    def signal(
        self, key: str, signum: int, grace_s: float | None = None, *, main_only: bool = False
    ) -> None:
        """Signal a tree."""
        kind = messages.SignalMain if main_only else messages.SignalAttempt
        self._send(kind(key, int(signum), grace_s))

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._send(messages.KillAttempt(key))

    def finish(self) -> None:
        """Ask for a report when nothing is left."""
        self._send(messages.Finish())
