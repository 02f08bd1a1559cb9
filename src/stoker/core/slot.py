"""A slot: one or more GPUs of one node that one job at a time occupies."""

from collections.abc import Iterable, Sequence

import msgspec

UUIDS = "STOKER_GPU_UUIDS"
AMD = "AMD-"
"""Begins the lease key of an AMD GPU; its PCI address follows."""
_UUID = ("GPU-", "MIG-")


class Slot(msgspec.Struct, frozen=True):
    """A place for one job. Several slots may name the same GPU; then their jobs share it.

    `cards` are the numbers of its cards as the rules of a box have them, if `gpus` has other names.
    """

    index: int
    gpus: tuple[str, ...]
    keys: tuple[str, ...]
    node: str = ""  # the node of its GPUs; empty without a cluster
    cards: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The numbers of its cards, in PCI order; names where no number is known."""
        return self.cards or self.gpus

    @property
    def visible(self) -> str:
        """The job's CUDA_VISIBLE_DEVICES."""
        return ",".join(self.gpus)

    @property
    def label(self) -> str:
        """The name that users see and type in `--gpus`."""
        return f"{self.node}/{self.bare}" if self.node else self.bare

    @property
    def bare(self) -> str:
        """The label without the node, as the node itself names it."""
        return "+".join(self.gpus)


def slot_variables(gpus: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the variables by which a job finds its GPUs, named as users name them and by lease keys."""
    if any(key.startswith(AMD) for key in keys) and len(keys) == len(gpus):
        named = list(zip(gpus, keys, strict=True))
        amd = [gpu.removeprefix("amd") for gpu, key in named if key.startswith(AMD)]
        others = [pair for pair in named if not pair[1].startswith(AMD)]
        variables = {"ROCR_VISIBLE_DEVICES": ",".join(amd)}
        if others:
            variables |= slot_variables(
                [gpu for gpu, _key in others], [key for _gpu, key in others]
            )
        return variables
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    if keys and all(key.startswith(_UUID) for key in keys):
        variables[UUIDS] = ",".join(keys)
    return variables


def group_by_gpu(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Group slots so that groups have no GPU in common; each group keeps the given order."""
    groups: list[tuple[set[str], list[Slot]]] = []
    for slot in slots:
        keys, members = set(slot.keys), [slot]
        apart = []
        for group in groups:
            if group[0].isdisjoint(keys):
                apart.append(group)
            else:
                keys |= group[0]
                members = group[1] + members
        groups = [*apart, (keys, members)]
    return [members for _keys, members in groups]
