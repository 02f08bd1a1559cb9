"""Whose plan is carried out: the planner's own, or one that a user has named, checked before use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

from stoker.core.invariants import InvariantError, check_plan
from stoker.core.planner import Busy, Candidate, Nodes, Plan, plan
from stoker.errors import UsageError

GROUP = "stoker.policies"
DEFAULT = "default"


class Policy(Protocol):
    """Decides what starts; the signature of `stoker.core.planner.plan`.

    One that a user has named gets `nodes` only where there are several.
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
    ) -> Plan:
        """Plan."""


class Later(Sequence[Busy]):
    """The slots at work, counted when somebody asks: in a cluster there are many, and few do."""

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
    """The policy of a name among the installed ones; raises UsageError with those that there are."""
    if name == DEFAULT:
        return plan
    from importlib.metadata import entry_points  # late: it brings sixty modules along

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
    """A user's policy; with the first plan that breaks a rule the default takes over, and says so."""

    def __init__(self, name: str, policy: Policy, tell: Callable[[str], None]) -> None:
        self._name = name
        self._policy: Policy = policy
        self._tell = tell

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
    ) -> Plan:
        """Plan, and look at the plan before anybody acts on it."""
        node_of = None if nodes is None else tuple(nodes.node_of)
        more: dict[str, Any] = {} if nodes is None else {"nodes": nodes}
        try:
            # Copies: whatever it does with them, the plan is held against the truth.
            made = self._policy(
                tuple(waiting),
                free=tuple(free),
                busy=tuple(busy),
                room=dict(room),
                cpu_places=cpu_places,
                now=now,
                **more,
            )
            check_plan(made, waiting, free=free, rooms=room, cpu_places=cpu_places, node_of=node_of)
        except InvariantError as error:
            self._give_up(str(error))
        except Exception as error:
            self._give_up(f"it failed with {error!r}")
        else:
            return made
        return plan(
            waiting, free=free, busy=busy, room=room, cpu_places=cpu_places, now=now, nodes=nodes
        )

    def _give_up(self, reason: str) -> None:
        self._policy = plan
        self._tell(
            f"policy {self._name}: {reason}; the default policy plans from now on"
            f" (stoker config policy {self._name} tries it again)"
        )
