"""Slots of a supervisor, and the attempts that wait for them."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.supervisor import reports

if TYPE_CHECKING:
    from stoker.warm.messages import ForkRequest

_MAX_ENVIRONMENTS = 64
BOUND = b"STOKER_BOUND_CPUS"
"""Variable of a slot whose jobs are bound to the CPUs near its GPUs."""
_MAX_CPU = 65535
_AMD = b"ROCR_VISIBLE_DEVICES"
_OF_HIP = frozenset((b"HIP_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL", b"CUDA_VISIBLE_DEVICES"))


class AttemptContext:
    """Environment, folder and shell that many attempts share."""

    __slots__ = ("cwd", "env", "environments", "relevant", "shell")

    def __init__(self, env: dict[bytes, bytes], cwd: str, shell: str) -> None:
        self.env = env
        self.cwd = cwd
        self.shell = shell
        # The variables on which imports may depend; known after the first warm start.
        self.relevant: frozenset[tuple[bytes, bytes]] | None = None
        self.environments: dict[SlotQueue, dict[bytes, bytes]] = {}

    def environment(self, slot: SlotQueue) -> dict[bytes, bytes]:
        """Return the variables that all attempts of this context have on one slot."""
        shared = self.environments.get(slot)
        if shared is None:
            if len(self.environments) >= _MAX_ENVIRONMENTS:
                self.environments.clear()
            shared = self.environments[slot] = {**self.env, **slot.env}
            if _AMD in slot.env:  # a variable of the submitting shell would hide or renumber them
                for name in _OF_HIP - slot.env.keys():
                    shared.pop(name, None)
        return shared


class Attempt(NamedTuple):
    """An attempt that waits for its slot or runs on it."""

    key: str
    context: AttemptContext
    slot: SlotQueue
    argv: list[str]
    log: str | None
    env: dict[bytes, bytes] | None = None
    warm: ForkRequest | None = None
    taken: bool = False  # its slot took it from the queue of attempts without a slot
    mem_bytes: int = 0  # with more RAM it is killed; 0: no limit
    cpus: int = 0  # what it gets at most, where cgroups can be made; 0: no limit


def count_gpus(env: dict[bytes, bytes]) -> int:
    """Return the number of GPUs that the variables of a slot name; at least 1."""
    named = [env[name] for name in (b"CUDA_VISIBLE_DEVICES", _AMD) if name in env]
    return sum(text.count(b",") + 1 for text in named) or 1


def parse_cpus(text: bytes) -> frozenset[int]:
    """Parse a list of CPUs as the kernel writes it: 0-3,8. Nothing for what is no such list."""
    found: set[int] = set()
    for part in text.split(b","):
        first, _, last = part.partition(b"-")
        if not first.isdigit() or not (last or first).isdigit():
            return frozenset()
        found.update(range(int(first), min(int(last or first), _MAX_CPU) + 1))
    return frozenset(found)


class SlotQueue:
    """GPUs that jobs use together. It is free when all its parts are; a simple slot is its own part.

    Its jobs run on `cpus` alone, unless there are none.
    """

    __slots__ = (
        "cpus",
        "env",
        "journal_label",
        "keys",
        "label",
        "lease_actions",
        "number",
        "parts",
        "queue",
        "taken_fields",
    )

    def __init__(
        self,
        env: dict[bytes, bytes],
        keys: list[str],
        parts: tuple[SlotQueue, ...] | None = None,
        number: int = 0,
    ) -> None:
        self.number = number
        self.set_label("")
        self.env = env
        self.cpus = parse_cpus(env[BOUND]) if BOUND in env else frozenset()
        self.keys = keys
        self.parts = (self,) if parts is None else parts
        self.queue: deque[Attempt] = deque()
        self.lease_actions: list[tuple[int, int, int]] = []

    def set_label(self, label: str) -> None:
        """Set the label, also in the forms of the journal and of reports about taken attempts."""
        self.label = label
        self.journal_label = json.dumps(label).replace(" ", "\\u0020") + " "
        self.taken_fields = reports.taken_by(self.number, label)


def bytes_env(env: dict[str, str]) -> dict[bytes, bytes]:
    """Return an environment as the kernel takes it."""
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def fork_request(fields: Sequence[Any]) -> ForkRequest:
    """Return a request to fork an attempt from the fields of an order."""
    from stoker.warm.messages import ForkRequest  # late: most supervisors start nothing warm

    return ForkRequest(*fields)
