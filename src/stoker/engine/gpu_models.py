"""Models of GPUs, and how much memory they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stoker.core.size import format_bytes
from stoker.core.slot import Slot
from stoker.errors import UsageError
from stoker.gpus.driver import Gpu


class Model(msgspec.Struct, frozen=True):
    """The model of a GPU."""

    name: str
    total_bytes: int


def models_of(gpus: Iterable[Gpu]) -> dict[str, Model]:
    """The models of GPUs by lease key, without lost GPUs: their size is unknown."""
    return {gpu.uuid: Model(gpu.name, gpu.mem_total_bytes) for gpu in gpus if gpu.mem_total_bytes}


def largest_of(slots: Iterable[Slot], models: Mapping[str, Model]) -> int | None:
    """The memory of the largest GPU of some slots; None if unknown."""
    keys = [key for slot in slots for key in slot.keys]
    return max((models[key].total_bytes for key in keys if key in models), default=None)


def refuse_too_large(asked: int | None, largest: int | None) -> None:
    """Raise UsageError if a job asks for more memory than any GPU has, where that is known."""
    if asked is not None and largest is not None and asked > largest:
        raise UsageError(
            f"the job asks for {format_bytes(asked)} of GPU memory, and the largest GPU here"
            f" has {format_bytes(largest)}: ask for less (--gpu-mem)"
        )
