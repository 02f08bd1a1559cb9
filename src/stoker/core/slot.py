"""A slot: the GPUs of one node that one job at a time gets."""

from collections.abc import Iterable

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """A place where one job runs; several slots may name the same GPU, and then share it."""

    index: int
    gpus: tuple[str, ...]
    keys: tuple[str, ...]
    node: str = ""  # whose GPUs they are; empty where there is no cluster

    @property
    def visible(self) -> str:
        """What the job's CUDA_VISIBLE_DEVICES says."""
        return ",".join(self.gpus)

    @property
    def label(self) -> str:
        """How people are shown this slot; the same text names it in `--gpus`."""
        return f"{self.node}/{self.bare}" if self.node else self.bare

    @property
    def bare(self) -> str:
        """The same without its node: what its own machine calls it."""
        return "+".join(self.gpus)


def group_by_gpu(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Slots in groups that have no GPU in common, each in the order given."""
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
