"""Parser of `--gpus`: turns the user's text into slots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stoker.core.gpu_links import GpuLinks, SlotLinks
from stoker.core.slot import AMD, Slot
from stoker.errors import StokerError, UsageError
from stoker.gpus.driver import Gpu
from stoker.gpus.drivers import why_unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBER = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_RANGE_LIMIT = 1024  # a typing error must not fill the memory
_SLOT_LIMIT = 4096
_HINT = "name them: --gpus 0,1 (any names; each becomes CUDA_VISIBLE_DEVICES)"
_NO_DEVICE = {"-1", "NoDevFiles"}  # the second is Slurm's word for a job without GPUs


def parse_slots(
    text: str,
    known: Sequence[Gpu] | None,
    visible: str | None,
    jobs_per_gpu: int = 1,
    gpus_per_job: int | None = None,
) -> tuple[Slot, ...]:
    """Return the slots that the user names, each with `gpus_per_job` GPUs if that is given.

    `0,1` is two slots, `0+1` one slot with two GPUs, `0-3` four slots, `0,0` two slots that share a GPU.
    `all` is every GPU of `known` that the inherited CUDA_VISIBLE_DEVICES (`visible`) leaves. Numbers are
    checked against `known`, unless that is None (no NVML). Other names are used as they are.
    """
    words = re.split(r"[,\s]+", re.sub(r"\s*\+\s*", "+", text))
    groups = [group for word in words if word.strip("+") for group in _groups(word, known, visible)]
    if not groups:
        raise UsageError("no GPU given: pass --gpus 0,1 or --gpus all")
    groups = _combine(groups, gpus_per_job)
    return _repeat([_slot(group, known) for group in groups], known or (), jobs_per_gpu)


def default_slots(
    known: Sequence[Gpu] | None,
    visible: str | None,
    jobs_per_gpu: int = 1,
    gpus_per_job: int | None = None,
    links: GpuLinks | None = None,
) -> tuple[Slot, ...]:
    """Return slots on every GPU that the inherited CUDA_VISIBLE_DEVICES leaves.

    The GPUs of a slot are those with the best links, where links are known.
    Raises an error that says why there is none, and what to pass.
    """
    gpus = visible_gpus(known or (), visible)
    if not gpus:
        raise no_gpu_error(known, visible)
    if links and gpus_per_job is not None:
        gpus = _sort_by_links(gpus, gpus_per_job, links)
    uuids = {gpu.label: gpu.uuid for gpu in gpus}
    groups = _combine([[gpu.label] for gpu in gpus], gpus_per_job)
    places = [(tuple(group), tuple(uuids[label] for label in group)) for group in groups]
    return _repeat(places, gpus, jobs_per_gpu)


def _sort_by_links(gpus: Sequence[Gpu], size: int, links: GpuLinks) -> tuple[Gpu, ...]:
    """Put GPUs that form a slot of this size beside each other."""
    places = [Slot(index, (gpu.label,), (gpu.uuid,)) for index, gpu in enumerate(gpus)]
    of_slots = SlotLinks(places, links)
    if of_slots.are_equal or len(of_slots.slots) < len(gpus):
        return tuple(gpus)
    return tuple(gpus[index] for index in of_slots.sort(range(len(gpus)), size))


def visible_gpus(known: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that the inherited CUDA_VISIBLE_DEVICES leaves, in its order; and those of AMD.

    As in CUDA, the first entry that names no GPU ends the list.
    """
    if visible is None:
        return tuple(known)
    nvidia = [gpu for gpu in known if not gpu.is_amd]
    found: list[Gpu] = []
    for entry in visible.split(","):
        gpu = _match(entry.strip(), nvidia)
        if gpu is None:
            break
        if gpu not in found:
            found.append(gpu)
    return (*found, *(gpu for gpu in known if gpu.is_amd))


def no_gpu_error(known: Sequence[Gpu] | None, visible: str | None) -> StokerError:
    """Return the error that says why there is no GPU by default, and what to pass."""
    if known:
        hidden = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU of this machine"
        return StokerError(f"{hidden}; unset it, or {_HINT}")
    reason = "lists none" if known is not None else why_unavailable() or "has just come back"
    return StokerError(f"no GPU found (NVML: {reason}); {_HINT}")


def _combine(groups: list[list[str]], size: int | None) -> list[list[str]]:
    """Join GPUs to slots of `size` GPUs, in their order. GPUs that are left over get no slot."""
    if size is None or all(len(group) == size for group in groups):
        return groups
    if size < 1:
        raise UsageError(
            f"-g {size}: each command gets 1 GPU or more; stoker add -g 0 CMD queues a command without"
        )
    if any(len(group) > 1 for group in groups):
        raise UsageError(f"-g {size}: --gpus names slots of another size: leave out one of them")
    gpus = [name for group in groups for name in group]
    if size > len(gpus):
        raise UsageError(f"-g {size}: there are only {len(gpus)} GPUs: {', '.join(gpus)}")
    return [gpus[at : at + size] for at in range(0, len(gpus) - size + 1, size)]


def _repeat(
    places: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
    known: Sequence[Gpu],
    jobs_per_gpu: int,
) -> tuple[Slot, ...]:
    if jobs_per_gpu < 1:
        raise UsageError(f"-j {jobs_per_gpu}: a GPU takes at least 1 job")
    if jobs_per_gpu * len(places) > _SLOT_LIMIT:
        raise UsageError(f"more than {_SLOT_LIMIT} slots: name fewer GPUs or use a smaller -j")
    # Each GPU comes once before any comes again, so that jobs spread before they share.
    spread = [place for _ in range(jobs_per_gpu) for place in places]
    numbers = {gpu.uuid: f"{gpu.prefix}{gpu.index}" for gpu in known}
    return tuple(
        Slot(index, gpus, keys, cards=_cards(gpus, keys, numbers))
        for index, (gpus, keys) in enumerate(spread)
    )


def _cards(
    gpus: tuple[str, ...], keys: tuple[str, ...], numbers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the numbers of a slot's cards if they are known and differ from its names."""
    cards = tuple(numbers[key] for key in keys if key in numbers)
    return () if cards == gpus else cards


def _groups(word: str, known: Sequence[Gpu] | None, visible: str | None) -> list[list[str]]:
    """Return the GPU names of each slot that one word of the list stands for."""
    if word == "all":
        return [[name] for name in _all(known, visible)]
    names = [name for part in word.split("+") if part for name in _range(part)]
    return [names] if "+" in word else [[name] for name in names]


def _all(known: Sequence[Gpu] | None, visible: str | None) -> list[str]:
    if known is None:
        entries = [entry.strip() for entry in (visible or "").split(",")]
        names = [entry for entry in entries if entry and entry not in _NO_DEVICE]
    else:
        names = [gpu.label for gpu in visible_gpus(known, visible)]
    if not names:
        raise no_gpu_error(known, visible)
    return names


def _range(part: str) -> list[str]:
    match = _RANGE.fullmatch(part)
    if match is None:
        return [str(int(part)) if _NUMBER.fullmatch(part) else part]
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise UsageError(f"GPU range {part} is reversed: write {last}-{first}")
    if last - first >= _RANGE_LIMIT:
        raise UsageError(f"GPU range {part} is too long: at most {_RANGE_LIMIT} GPUs")
    return [str(number) for number in range(first, last + 1)]


def _slot(
    names: Sequence[str], known: Sequence[Gpu] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # A name that means "no GPU" needs no lease: any number of jobs may use it at once.
    named = [name for name in names if name not in _NO_DEVICE]
    keys = tuple(_key(name, known) for name in named)
    for name, key in zip(named, keys, strict=True):
        if keys.count(key) > 1:
            raise UsageError(
                f"GPU {name} is twice in one slot, {'+'.join(names)};"
                f" for two jobs that share it write {name},{name}"
            )
    return tuple(names), keys


def _key(name: str, known: Sequence[Gpu] | None) -> str:
    if known is None:
        return name
    if _NUMBER.fullmatch(name):
        return _numbered(int(name), known).uuid
    if len(_by_uuid(name, known)) > 1:
        raise UsageError(f"{name} matches several GPUs: give more of the UUID")
    gpu = _match(name, known)
    return gpu.uuid if gpu else name


def _numbered(number: int, known: Sequence[Gpu]) -> Gpu:
    found = [gpu for gpu in known if gpu.index == number and not gpu.prefix]
    if not found:
        numbers = sorted({gpu.index for gpu in known if not gpu.prefix})
        has = _spans(numbers) if numbers else "none"
        raise UsageError(f"GPU {number} does not exist: this machine has {has}")
    if found[0].is_mig:
        instances = ",".join(gpu.uuid for gpu in found)
        raise UsageError(f"GPU {number} is split by MIG: name its instances: --gpus {instances}")
    return found[0]


def _match(name: str, known: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU that CUDA would use for this name; None if there is none or more than one."""
    if _NUMBER.fullmatch(name):
        return next((gpu for gpu in known if gpu.index == int(name) and not gpu.prefix), None)
    named = next((gpu for gpu in known if gpu.prefix and gpu.label == name), None)
    if named is not None:
        return named
    found = _by_uuid(name, known)
    return found[0] if len(found) == 1 else None


def _by_uuid(name: str, known: Sequence[Gpu]) -> list[Gpu]:
    if not name.startswith(("GPU-", "MIG-", AMD)):
        return []
    exact = [gpu for gpu in known if gpu.uuid == name]
    return exact or [gpu for gpu in known if gpu.uuid.startswith(name)]


def _spans(numbers: Sequence[int]) -> str:
    """Write sorted numbers briefly: 0-3,6."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ",".join("-".join(map(str, span)) for span in spans)
