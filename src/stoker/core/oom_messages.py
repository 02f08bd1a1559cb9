"""Figures in the out-of-memory messages of PyTorch (old and new), JAX and TensorFlow."""

from __future__ import annotations

import re

from stoker.core.failure import OomFigures

__all__ = ["GPU_OOM", "OomFigures", "read_figures", "tell_figures"]

_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

# Texts by which frameworks report that a GPU has too little memory.
GPU_OOM = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError|(?:CUDA|HIP) out of memory|CUDA error: out of memory"
    r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory|ResourceExhaustedError"
    r"|OOM when allocating tensor|Out of memory allocating [0-9]+ bytes"
    r"|Cuda failure (?:[0-9]+ )?'out of memory'"
)

_SIZE = r"([0-9]+(?:\.[0-9]+)?) ?(bytes|B|KiB|MiB|GiB|TiB)\b"
_TRIED = re.compile(rf"(?:[Tt]ried to allocate|trying to allocate|memory allocating) {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_OWN = re.compile(rf"this process has {_SIZE} memory in use|; {_SIZE} reserved in total")
_OTHER = re.compile(rf"Process [0-9]+ has {_SIZE} memory in use")
_ALLOWED = re.compile(rf"{_SIZE} allowed")


def read_figures(tail: str) -> OomFigures:
    """Read the figures of the last out-of-memory message in a log."""
    start = max((match.start() for match in GPU_OOM.finditer(tail)), default=0)
    end = tail.find("\n", start)
    text = tail[start : None if end < 0 else end]
    others = [_bytes(match) for match in _OTHER.finditer(text)]
    return OomFigures(
        tried_bytes=_first(_TRIED, text),
        free_bytes=_first(_FREE, text),
        total_bytes=_first(_TOTAL, text),
        own_bytes=_first(_OWN, text),
        others_bytes=sum(others) if others else None,
        allowed_bytes=_first(_ALLOWED, text),
    )


def tell_figures(figures: OomFigures) -> str:
    """Write the figures for one line of text; empty if there are none."""
    if figures.tried_bytes is None:
        return ""
    text = f": wanted {_size(figures.tried_bytes)} more"
    if figures.free_bytes is not None and figures.total_bytes is not None:
        text += f", {_size(figures.free_bytes)} of {_size(figures.total_bytes)} was free"
    shares = []
    if figures.own_bytes:
        shares.append(f"itself {_size(figures.own_bytes)}")
    if figures.others_bytes is not None:
        shares.append(f"others {_size(figures.others_bytes)}")
    if figures.allowed_bytes is not None:
        shares.append(f"allowed {_size(figures.allowed_bytes)}")
    return text + (f" ({', '.join(shares)})" if shares else "")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else _bytes(match)


def _bytes(match: re.Match[str]) -> int:
    number, unit = [group for group in match.groups() if group is not None]
    return int(float(number) * _UNITS[unit])
