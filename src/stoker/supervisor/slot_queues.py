"""Places: the GPUs that an attempt sees and has leased, and the line of those that wait for them."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stoker.gpus import lease
from stoker.supervisor import reports

if TYPE_CHECKING:
    from stoker.warm.messages import ForkRequest

_FIRST_LEASE_FD = 200  # scripts use small numbers themselves


class AttemptContext:
    """What many starts have in common."""

    __slots__ = ("cwd", "env", "environments", "relevant", "shell")

    def __init__(self, env: dict[bytes, bytes], cwd: str, shell: str) -> None:
        self.env = env
        self.cwd = cwd
        self.shell = shell
        # What of the environment may matter to imports; known once something is started warm.
        self.relevant: frozenset[tuple[bytes, bytes]] | None = None
        self.environments: dict[SlotQueue, dict[bytes, bytes]] = {}

    def environment(self, place: SlotQueue) -> dict[bytes, bytes]:
        """What all attempts of this context on one place have in their environments."""
        shared = self.environments.get(place)
        if shared is None:
            if len(self.environments) >= 64:
                self.environments.clear()
            shared = self.environments[place] = {**self.env, **place.env}
        return shared


class Attempt(NamedTuple):
    """A start order: what to run, where, and where its output goes."""

    key: str
    context: AttemptContext
    place: SlotQueue
    argv: list[str]
    log: str | None
    env: dict[bytes, bytes] | None = None
    warm: ForkRequest | None = None
    taken: bool = False  # it waited in the common line until its place took it


class SlotQueue:
    """GPUs that are seen together. It is free when all its parts are; a simple one is its own part."""

    __slots__ = (
        "as_taken",
        "env",
        "keys",
        "label",
        "lease_actions",
        "number",
        "parts",
        "queue",
        "word",
    )

    def __init__(
        self,
        env: dict[bytes, bytes],
        keys: list[str],
        parts: tuple[SlotQueue, ...] | None = None,
        number: int = 0,
    ) -> None:
        self.number = number
        self.name("")
        self.env = env
        self.keys = keys
        self.parts = (self,) if parts is None else parts
        self.queue: deque[Attempt] = deque()
        self.lease_actions: list[tuple[int, int, int]] = []

    def name(self, label: str) -> None:
        """Have a label, and what the journal and reports say of attempts that are taken from the line."""
        self.label = label
        self.word = json.dumps(label).replace(" ", "\\u0020") + " "
        self.as_taken = reports.taken_by(self.number, label)


class Unavailable(NamedTuple):
    """The GPU that stands in the way, and why if it is not simply somebody else's."""

    key: str
    reason: str | None


class Leases:
    """The leases this process holds; `lost` tells why those are not in force of which that is so."""

    def __init__(self) -> None:
        self.held: dict[str, lease.Lease] = {}
        self.lost: dict[str, str] = {}

    def take(self, keys: Iterable[str], what: str) -> Unavailable | None:
        """Hold all of these GPUs; None if so, else which one cannot be held, and none is kept."""
        taken: list[str] = []
        for key in keys:
            if key in self.lost:
                self.release(taken)
                return Unavailable(key, self.lost[key])
            if key in self.held:
                continue
            try:
                found = lease.take(key, what)
            except OSError as error:
                self.release(taken)
                return Unavailable(key, lack_of_descriptors(error) or str(error))
            if found is None:
                self.release(taken)
                return Unavailable(key, None)
            self.held[key] = found
            taken.append(key)
        return None

    def release(self, keys: Iterable[str]) -> None:
        """Give these GPUs back, as far as they are held."""
        for key in keys:
            found = self.held.pop(key, None)
            if found is not None:
                self.lost.pop(key, None)
                found.release()

    def confirm(self, what: str) -> bool:
        """Take every lease again that is not in force; whether any descriptor has changed."""
        has_changed = False
        for key, found in self.held.items():
            if found.is_in_force():
                self.lost.pop(key, None)
                continue
            try:
                is_renewed = found.renew(what)
            except OSError as error:
                self.lost[key] = str(error)
                continue
            if is_renewed:
                has_changed = True
                self.lost.pop(key, None)
            else:
                self.lost[key] = f"{found.path} was removed or replaced while it was held"
        return has_changed

    def touch(self) -> None:
        """Keep cleaners of old files away."""
        for found in self.held.values():
            found.touch()

    def fit(self, places: Iterable[SlotQueue]) -> None:
        """Let what starts on these places inherit the leases that are held by now."""
        for place in places:
            held = [fd for key in place.keys if key in self.held for fd in self.held[key].fds]
            targets = _inherited_numbers(held)
            place.lease_actions = [
                (os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(held, targets, strict=False)
            ]


def _inherited_numbers(fds: list[int]) -> Iterator[int]:
    """Numbers under which a job can inherit these descriptors: below its limit, and none of these."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = min(_FIRST_LEASE_FD, limit - 2 * len(fds))
    return (number for number in itertools.count(first) if number not in fds)


def lack_of_descriptors(error: OSError) -> str | None:
    """What to do about an error that says that this process has too many open files; None for others."""
    if error.errno != errno.EMFILE:
        return None
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"too many open files: the limit is {limit}; raise it with `ulimit -n 1024`, then restart Stoker"


def bytes_env(env: dict[str, str]) -> dict[bytes, bytes]:
    """An environment as the kernel takes it."""
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
