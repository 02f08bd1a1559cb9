"""What a client says to a supervisor that outlives it, whatever the line between them is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from stoker.core.slot import Slot
from stoker.executors.connection import SupervisorConnection
from stoker.executors.contract import Launch
from stoker.executors.slot_numbering import Message, SlotNumbering, ahead_order

_CONTEXTS_HELD = 64
# The contexts used last are sent to a new supervisor; callers define older ones anew.
_CONTEXTS_KNOWN = 256


class ProtocolClient:
    """Turns the calls of the executor contract into messages for the supervisor at the end of a line."""

    def __init__(self) -> None:
        self._slot_numbering = SlotNumbering()
        self._contexts: OrderedDict[int, Message] = OrderedDict()
        self._held_contexts: OrderedDict[int, None] = OrderedDict()
        self._line: SupervisorConnection

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Tell the supervisor."""
        self._line.send(*(self._slot_numbering.enter(slot) for slot in slots))

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Remember it; the supervisor is told when something is launched in it."""
        if number not in self._contexts:
            self._contexts[number] = ["context", number, dict(env), cwd, shell]
            if len(self._contexts) > _CONTEXTS_KNOWN:
                self._contexts.popitem(last=False)

    def hold(self, slot: int) -> None:
        """Ask for a slot's leases."""
        self._line.send(["hold", slot])

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give leases back."""
        self._line.send(["release", slot, list(gpu_keys)])

    def launch(self, launches: Sequence[Launch]) -> None:
        """Send all starts in one write, with the contexts and places they need."""
        messages: list[Message] = []
        ahead: list[Message] = []
        for order in launches:
            messages += self._provide_context(order.context)
            if order.ahead:
                ahead.append([0, *ahead_order(order)])
                continue
            place, definition = self._slot_numbering.place(order.slots)
            messages += definition
            start = ["start", order.key, order.context, place, order.argv, self._log_of(order)]
            if order.warm is not None:
                start += [dict(order.env or {}), order.warm]
            messages.append(start)
        if ahead:
            messages.append(["ahead", ahead, 0])
        if messages:
            self._line.send(*messages)

    def offer(self, slots: Sequence[Slot]) -> None:
        """Tell the supervisor which slots take what is launched ahead."""
        self._line.send(["offer", [[slot.index, slot.label] for slot in slots]])

    def _log_of(self, order: Launch) -> object:
        return order.log

    def _provide_context(self, number: int) -> list[Message]:
        self._contexts.move_to_end(number)
        if number in self._held_contexts:
            self._held_contexts.move_to_end(number)
            return []
        messages = [self._contexts[number]]
        if len(self._held_contexts) >= _CONTEXTS_HELD:
            oldest, _ = self._held_contexts.popitem(last=False)
            messages.append(["forget", oldest])
        self._held_contexts[number] = None
        return messages

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
            self._line.send(["ack", list(keys)])

    def disown(self, keys: Sequence[str]) -> None:
        """Name attempts that run and of which this client has no record: their GPUs stay taken."""
        if keys:
            self._line.send(["disown", list(keys)])

    def revoke(self, key: str) -> None:
        """Take an attempt back."""
        self._line.send(["revoke", key])

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal a tree."""
        self._line.send(["signal", key, int(signum), grace_s])

    def kill(self, key: str) -> None:
        """Kill a tree."""
        self._line.send(["kill", key])

    def finish(self) -> None:
        """Ask to be told when nothing is left."""
        self._line.send(["finish"])
