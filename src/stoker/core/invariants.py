"""Invariants of slots and plans, checked by tests and by the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stoker.core.host_room import HostPlan, HostRooms
from stoker.core.lifecycle import State, is_live
from stoker.core.planner import Candidate, Plan, Start

_NO_HOSTS = HostRooms()


class InvariantError(AssertionError):
    """An invariant does not hold."""


def check_slots(
    states: Mapping[int, State],
    holders: Mapping[int, Sequence[int]],
    slots: Iterable[int],
    node_of: Sequence[str] | None = None,
) -> None:
    """Check that a slot has at most one job, only live jobs have slots, and a job's slots are on one node."""
    known = set(slots)
    owner: dict[int, int] = {}
    for job, taken in holders.items():
        if taken and not is_live(states[job]):
            raise InvariantError(f"job {job} is {states[job].value} and still holds slots {taken}")
        for slot in taken:
            if slot not in known:
                raise InvariantError(f"job {job} holds slot {slot}, which does not exist")
            if slot in owner:
                raise InvariantError(f"slot {slot} is held by job {owner[slot]} and by job {job}")
            owner[slot] = job
        _check_node(job, taken, node_of)


def _check_node(job: int, slots: Sequence[int], node_of: Sequence[str] | None) -> None:
    if node_of is not None and len({node_of[slot] for slot in slots}) > 1:
        raise InvariantError(f"job {job} has slots {slots} on more than one node")


def _check_slots_of(start: Start, job: Candidate) -> None:
    if not len(start.slots) == len({*start.slots}) == job.slots:
        got = len({*start.slots})
        raise InvariantError(f"job {job.id} needs {job.slots} slots and gets {got}")
    if job.allowed is not None and not job.allowed.issuperset(start.slots):
        raise InvariantError(f"job {job.id} is planned on {start.slots}, where it may not run")


def _check_hosts(
    plan: Plan,
    waiting: Mapping[int, Candidate],
    node_of: Sequence[str] | None,
    hosts: HostRooms,
) -> None:
    left = HostPlan(hosts)
    for start in plan.starts:
        job = waiting.get(start.job)
        if job is None or not job.declares_host:
            continue
        node = job.node if not start.slots else "" if node_of is None else node_of[start.slots[0]]
        if start.in_advance or not left.has_room(job, node):
            raise InvariantError(
                f"job {job.id} is planned where it has too few CPUs or too little RAM"
            )
        left.take(job, node)


def check_plan(
    plan: Plan,
    waiting: Sequence[Candidate],
    *,
    free: Sequence[int],
    rooms: Mapping[int, int],
    cpu_places: int,
    node_of: Sequence[str] | None = None,
    hosts: HostRooms = _NO_HOSTS,
) -> None:
    """Check that a plan starts only waiting jobs, each once, with the slots it needs, on free slots.

    With `node_of`, the node of each slot by its index, the slots of a job must be on one node. `hosts` must
    have room for the CPUs and RAM that the started jobs declare.
    """
    _check_hosts(plan, {job.id: job for job in waiting}, node_of, hosts)
    wanted = {job.id: job for job in waiting}
    if not {plan.reserved_for, *plan.reserved.values()} <= {None, *wanted}:
        raise InvariantError("slots are kept for a job that is not waiting")
    available, left = set(free), dict(rooms)
    for start in plan.starts:
        job = wanted.pop(start.job, None)
        if job is None:
            raise InvariantError(
                f"job {start.job} is planned but is not waiting, or is planned twice"
            )
        _check_slots_of(start, job)
        _check_node(job.id, start.slots, node_of)
        if start.in_advance:
            if job.slots != 1:
                raise InvariantError(f"job {job.id} is claimed in advance on {job.slots} slots")
            left[start.slots[0]] = left.get(start.slots[0], 0) - 1
        elif not available.issuperset(start.slots):
            raise InvariantError(f"job {job.id} is planned on {start.slots}, not all of them free")
        else:
            available.difference_update(start.slots)
        cpu_places -= not start.slots
    if min(left.values(), default=0) < 0:
        raise InvariantError("more jobs are claimed in advance than there is room for")
    if cpu_places < 0:
        raise InvariantError("more jobs without GPU are planned than there are places")
