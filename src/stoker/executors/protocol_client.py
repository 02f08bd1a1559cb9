"""The client of a supervisor that outlives it: sends orders over a connection of any kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from stoker.core.slot import Slot
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import Launch
from stoker.executors.slot_numbering import SlotNumbering
from stoker.supervisor.messages import (
    Acknowledge,
    AheadOrder,
    DefineContext,
    Disown,
    Finish,
    ForgetContext,
    HoldSlot,
    KillAttempt,
    OfferSlots,
    Order,
    ReleaseSlot,
    RevokeAttempt,
    SignalAttempt,
    StartAhead,
    StartAttempt,
)

_CONTEXTS_HELD = 64
# The contexts used last are sent to a new supervisor; callers define older ones anew.
_CONTEXTS_KNOWN = 256


class ProtocolClient:
    """Turns the calls of the executor contract into orders for the supervisor at the end of a connection."""

    def __init__(self) -> None:
        self._slot_numbering = SlotNumbering()
        self._contexts: OrderedDict[int, DefineContext] = OrderedDict()
        self._held_contexts: OrderedDict[int, None] = OrderedDict()
        self._line: SupervisorConnection

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Tell the supervisor."""
        self._line.send(*(self._slot_numbering.enter(slot) for slot in slots))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember it; the supervisor is told when something is launched in it."""
        if number not in self._contexts:
            self._contexts[number] = DefineContext(number, dict(env), cwd, shell)
            if len(self._contexts) > _CONTEXTS_KNOWN:
                self._contexts.popitem(last=False)

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        self._line.send(HoldSlot(slot))

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._line.send(ReleaseSlot(slot, list(gpu_keys)))

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write, with the contexts and places they need."""
        orders: list[Order] = []
        ahead: list[AheadOrder] = []
        for launch in launches:
            key, context, argv, log = launch.key, launch.context, launch.argv, launch.log
            warm = launch.warm
            env = dict(launch.env or {}) if warm is not None else None
            orders += self._provide_context(context)
            if launch.ahead:
                ahead.append(AheadOrder(0, key, context, argv, log, env, warm))
                continue
            place, definition = self._slot_numbering.place(launch.slots)
            orders += definition
            offset = self._log_offset(launch)
            orders.append(StartAttempt(key, context, place, argv, log, env, warm, offset))
        if ahead:
            orders.append(StartAhead(ahead, 0))
        if orders:
            self._line.send(*orders)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Tell the supervisor which slots take what is launched ahead."""
        self._line.send(OfferSlots([(slot.index, slot.label) for slot in slots]))

    def _log_offset(self, _launch: Launch) -> int:
        """Where the output of an attempt begins in a log on this machine, if it runs on another one."""
        return 0

    def _provide_context(self, number: int) -> list[Order]:
        self._contexts.move_to_end(number)
        if number in self._held_contexts:
            self._held_contexts.move_to_end(number)
            return []
        orders: list[Order] = [self._contexts[number]]
        if len(self._held_contexts) >= _CONTEXTS_HELD:
            oldest, _ = self._held_contexts.popitem(last=False)
            orders.append(ForgetContext(oldest))
        self._held_contexts[number] = None
        return orders

    def _start_over(self, line: SupervisorConnection) -> None:
        """Speak with another supervisor, or anew with the same, which knows nothing of what was said."""
        self._line = line
        self._held_contexts.clear()
        slots = self._slot_numbering.start_over()
        if slots:
            line.send(*slots)

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Let the supervisor forget ends."""
        if keys:
            self._line.send(Acknowledge(list(keys)))

    def disown(self, keys: Sequence[str]) -> None:
        """Name attempts that run and of which this client has no record: their GPUs stay taken."""
        if keys:
            self._line.send(Disown(list(keys)))

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._line.send(RevokeAttempt(key))

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal a tree."""
        self._line.send(SignalAttempt(key, int(signum), grace_s))

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._line.send(KillAttempt(key))

    def finish(self) -> None:
        """Ask to be told when nothing is left."""
        self._line.send(Finish())
