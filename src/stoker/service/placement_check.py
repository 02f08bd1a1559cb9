"""Checks placement rules against the nodes and GPUs of the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from stoker.core.job import JobClass
from stoker.core.placement import ANYWHERE, PlacementRule, read_where, write_where
from stoker.engine.context import QueueContext
from stoker.engine.host_resources import refuse_impossible
from stoker.engine.slot_state import REMOVED
from stoker.engine.slots import SlotTable
from stoker.errors import UsageError

_SHOWN = 12


def check_where(context: QueueContext, where: PlacementRule, gpus: int) -> None:
    """Refuse a rule that no node or GPU fits, and list what exists. A node that is away may fit."""
    slot_table = context.engine.slot_table
    if where == ANYWHERE:
        return
    if where.on is not None and not gpus:
        raise UsageError(
            f"--on {where.on} is a kind of GPU: leave it out for a job without", field="on"
        )
    unknown = [name for name in where.nodes if name not in slot_table.nodes]
    if unknown:
        raise UsageError(f"there is no node {unknown[0]}; {_nodes(slot_table)}", field="nodes")
    for name, value in where.labels:
        if not any(facts.labels.get(name) == value for facts in slot_table.nodes.values()):
            raise UsageError(
                f"no node has the label {name}={value}; {_labels(slot_table)}", field="node_labels"
            )
    if where.on is not None and not _has_model(slot_table, where):
        raise UsageError(f"no GPU is a {where.on!r}; {_models(slot_table)}", field="on")
    nodes = [facts for facts in slot_table.nodes.values() if where.fits_node(facts)]
    waited_for = [n for n in nodes if n.away is not None and not slot_table.by_node.get(n.name)]
    if not gpus or waited_for:
        if slot_table.nodes and not nodes:
            raise UsageError(f"no node fits {where}; {_nodes(slot_table)}", field="nodes")
        return
    _check_slots(slot_table, where, gpus)


def check_host(context: QueueContext, job: JobClass) -> None:
    """Refuse more CPUs or RAM than any machine has on which a job may run."""
    slot_table = context.engine.slot_table
    hosts, where = slot_table.hosts, read_where(job.where)
    rooms = [
        hosts.room_of(facts)
        for facts in slot_table.nodes.values()
        if not slot_table.is_own(facts.name) and where.fits_node(facts)
    ]
    if where.fits_node(slot_table.placement.facts("")):
        rooms.append(hosts.own_room(slot_table.head))
    refuse_impossible(
        job, rooms, "no machine has more than" if len(rooms) > 1 else "this machine has"
    )


def _check_slots(slot_table: SlotTable, where: PlacementRule, gpus: int) -> None:
    most = slot_table.slots_left(slot_table.placement.allowed(write_where(where)))
    if not most:
        raise UsageError(f"no GPU fits {where}; {_models(slot_table)}", field="nodes")
    if gpus > most:
        raise UsageError(
            f"the job asks for {gpus} GPUs, and no node has more than {most} that fit {where}:"
            " ask for fewer (-g)",
            field="gpus",
        )


def _has_model(slot_table: SlotTable, where: PlacementRule) -> bool:
    return any(where.fits_models([model]) for model in _known_models(slot_table))


def _known_models(slot_table: SlotTable) -> Counter[str]:
    keys = {
        key
        for slot_state in slot_table.whole_slots()
        if slot_state.drained != REMOVED
        for key in slot_state.slot.keys
    }
    return Counter(model for key in keys if (model := slot_table.models.get(key)) is not None)


def _models(slot_table: SlotTable) -> str:
    found = [f"{count} × {model}" for model, count in sorted(_known_models(slot_table).items())]
    return f"there are: {_list(found)}" if found else "of no GPU here the kind is known (no NVML)"


def _nodes(slot_table: SlotTable) -> str:
    found = [
        name if facts.away is None else f"{name} (away)"
        for name, facts in sorted(slot_table.nodes.items())
    ]
    if not found:
        return "this queue has one machine; stoker cluster up lets it have more"
    return f"there are: {_list(found)}"


def _labels(slot_table: SlotTable) -> str:
    found = {f"{n}={v}" for facts in slot_table.nodes.values() for n, v in facts.labels.items()}
    return f"there are: {_list(sorted(found))}" if found else "no node has any"


def _list(words: Iterable[str]) -> str:
    words = list(words)
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
