"""Links between this machine's GPUs, read once per boot."""

from __future__ import annotations

import contextlib
import os
from itertools import combinations

import msgspec

from stoker.core.gpu_links import GpuLinks, Link
from stoker.gpus.driver import GpuDriver

CACHE = "gpu-links.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class _Record(msgspec.Struct):
    """What the cache has: the links of all pairs of these GPUs, in their order."""

    boot_id: str
    gpus: list[str]
    links: list[Link]


def read_links(nvml: GpuDriver, home: str | None = None) -> GpuLinks:
    """Return the link of each pair of cards. MIG instances have none, and a driver may know none.

    Later calls in the same boot read the cache in `home`, as long as the GPUs are the same.
    """
    gpus = [gpu for gpu in nvml.gpus() if not gpu.is_mig]
    uuids = [gpu.uuid for gpu in gpus]
    boot_id = _read_boot_id()
    path = None if home is None or not boot_id else os.path.join(home, CACHE)
    pairs = [frozenset(pair) for pair in combinations(uuids, 2)]
    known = None if path is None else _read_cache(path)
    if known is not None and (known.boot_id, known.gpus) == (boot_id, uuids):
        return dict(zip(pairs, known.links, strict=False))
    links = [nvml.link(one, other) for one, other in combinations(gpus, 2)]
    if not links or None in links:
        return {pair: link for pair, link in zip(pairs, links, strict=True) if link is not None}
    found = [link for link in links if link is not None]
    if path is not None:
        _write_cache(path, _Record(boot_id, uuids, found))
    return dict(zip(pairs, found, strict=True))


def _read_boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _read_cache(path: str) -> _Record | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=_Record)
    except (OSError, msgspec.DecodeError):
        return None


def _write_cache(path: str, record: _Record) -> None:
    new = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):  # it is read from the driver again next time
        fd = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(record))
        os.replace(new, path)
