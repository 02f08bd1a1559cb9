"""How jobs from Python share a GPU: what `--share` and `--gpu-mem` are on the command line."""

from __future__ import annotations

from stoker.core.sharing.rules import NEVER, parse_share
from stoker.core.size import parse_size
from stoker.errors import UsageError


def read_share(share: str) -> str | None:
    """A wish to share, None for a GPU alone; UsageError says what there is."""
    try:
        wanted = parse_share(share)
    except ValueError as error:
        raise UsageError(f"share: {error}") from None
    return None if wanted == NEVER else wanted.text


def read_gpu_mem(gpu_mem: str | None) -> int | None:
    """How many bytes of a GPU a job needs, where that is said; UsageError if it is no amount."""
    try:
        return None if gpu_mem is None else parse_size(gpu_mem)
    except ValueError as error:
        raise UsageError(f"gpu_mem: {error}") from None
