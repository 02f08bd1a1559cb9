"""Planning policies: the default, and checked ones that users install."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

from stoker.core.host_room import HostRooms
from stoker.core.invariants import InvariantError, check_plan
from stoker.core.planner import Busy, Candidate, Nodes, Plan, plan
from stoker.errors import UsageError

GROUP = "stoker.policies"
DEFAULT = "default"


class Policy(Protocol):
    """Decides which jobs start; has the signature of `stoker.core.planner.plan`.

    A user's policy gets `nodes` only in a cluster, and `hosts` only if a job declares CPUs or RAM.
    """

    def __call__(
        self,
        waiting: Sequence[Candidate],
        *,
        free: Sequence[int],
        busy: Sequence[Busy],
        room: Mapping[int, int],
        cpu_places: int,
        now: float,
        nodes: Nodes | None = None,
        hosts: HostRooms = ...,
    ) -> Plan:
        """Plan one turn."""


class LazyBusy(Sequence[Busy]):
    """The busy slots, counted at the first access: a cluster has many, and few policies need them."""

    def __init__(self, count: Callable[[], Sequence[Busy]]) -> None:
        self._count = count

    @cached_property
    def _counted(self) -> Sequence[Busy]:
        return self._count()

    def __len__(self) -> int:
        return len(self._counted)

    @overload
    def __getitem__(self, index: int) -> Busy: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Busy]: ...
    def __getitem__(self, index: int | slice) -> Busy | Sequence[Busy]:
        return self._counted[index]


def find_policy(name: str) -> Policy:
    """Find an installed policy by name; raises UsageError with the names of all policies."""
    if name == DEFAULT:
        return plan
    from importlib.metadata import entry_points  # late: it imports sixty modules

    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        names = ", ".join([DEFAULT, *sorted(found)])
        raise UsageError(f"no policy '{name}' is installed; there are: {names}")
    try:
        policy: Policy = found[name].load()
    except Exception as error:
        raise UsageError(f"the policy '{name}' cannot be loaded: {error}") from error
    return policy


class CheckedPolicy:
    """A user's policy whose plans are checked.

    After the first plan that fails or breaks a rule, the default policy takes over, with a notice.
    """

    def __init__(self, name: str, policy: Policy, notify: Callable[[str], None]) -> None:
        self._name = name
        self._policy: Policy = policy
        self._notify = notify

    def __call__(
        self, waiting: Sequence[Candidate], *, nodes: Nodes | None = None, **slots: Any
    ) -> Plan:
        """Plan as `Policy` does, and check the plan before the engine carries it out."""
        node_of = None if nodes is None else tuple(nodes.node_of)
        # Copies: whatever the policy does with them, the plan is checked against the originals.
        copies = {
            **slots,
            "free": tuple(slots["free"]),
            "busy": tuple(slots["busy"]),
            "room": dict(slots["room"]),
        }
        if nodes is not None:
            copies["nodes"] = nodes
        try:
            made = self._policy(tuple(waiting), **copies)
            free, rooms, cpu_places = slots["free"], slots["room"], slots["cpu_places"]
            check_plan(
                made,
                waiting,
                free=free,
                rooms=rooms,
                cpu_places=cpu_places,
                node_of=node_of,
                hosts=slots.get("hosts", HostRooms()),
            )
        except InvariantError as error:
            self._give_up(str(error))
        except Exception as error:
            self._give_up(f"it failed with {error!r}")
        else:
            return made
        return plan(waiting, nodes=nodes, **slots)

    def _give_up(self, reason: str) -> None:
        self._policy = plan
        self._notify(
            f"policy {self._name}: {reason}; the default policy plans from now on"
            f" (stoker config policy {self._name} tries it again)"
        )
