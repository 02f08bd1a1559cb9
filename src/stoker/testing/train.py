"""Fake training job for machines without a GPU: it holds fake memory, prints losses, and can fail.

    python -m stoker.testing.train --mem 5G --seconds 3 --steps 10

It takes its GPU from CUDA_VISIBLE_DEVICES like CUDA, and fails like PyTorch if the memory is not enough.
Imports only the standard library, to start fast.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from typing import TYPE_CHECKING

from stoker.reporting import report
from stoker.testing import state

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_BEST_LR = 3e-3
_BEST_DROPOUT = 0.2
_LOCK_POLL_S = 0.005


class OutOfMemoryError(RuntimeError):
    """PyTorch's error, with the name that its traceback prints."""

    __module__ = "torch"


class Device:
    """The GPU of this process. Without fake GPUs (`box` is None), memory is unlimited."""

    def __init__(
        self, box: state.FakeGpus | None, line: int | None, sm_pct: int | None = None
    ) -> None:
        self._box = box
        self._sm_pct = sm_pct
        self._line = line
        self._held_bytes = 0

    def allocate(self, count: int) -> None:
        """Hold more memory, or raise OutOfMemoryError."""
        if self._box is None or self._line is None or count == 0:
            return
        with self._box.locked():
            total = self._box.gpus()[self._line].mem_bytes
            free = total - self._box.used_bytes(self._line)
            allowed = _allowed_share() * total
            if count > free or self._held_bytes + count > allowed:
                raise OutOfMemoryError(self._out_of_memory_text(self._box, count, total, free))
            self._held_bytes += count
            self._box.use(os.getpid(), self._line, self._held_bytes, sm_pct=self._sm_pct)

    def wait_until_unlocked(self) -> None:
        """Block as a CUDA call does while the driver has this process locked."""
        while self._box is not None and self._box.is_locked(os.getpid()):
            time.sleep(_LOCK_POLL_S)

    def release(self) -> None:
        """Free all memory."""
        if self._box is not None:
            self._box.release(os.getpid())

    def _out_of_memory_text(self, box: state.FakeGpus, count: int, total: int, free: int) -> str:
        others = "".join(
            f"Process {process.pid} has {_size(process.mem_bytes)} memory in use. "
            for process in box.processes(self._line)
            if process.pid != os.getpid()
        )
        held = _size(self._held_bytes)
        share = _allowed_share()
        allowed = f"{_size(int(share * total))} allowed; " if share < 1 else ""
        return (
            f"CUDA out of memory. Tried to allocate {_size(count)}. GPU 0 has a total capacity of"
            f" {_size(total)} of which {_size(free)} is free. {others}Including non-PyTorch memory,"
            f" this process has {held} memory in use. {allowed}Of the allocated memory {held} is allocated"
            " by PyTorch, and 0 bytes is reserved by PyTorch"
            " but unallocated. If reserved but unallocated memory is large try setting"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See"
            " documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
            "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and return the exit status of --exit."""
    args = _parser().parse_args(argv)
    box = state.from_env()
    device = Device(box, None if box is None else _visible_line(box), args.sm)
    try:
        device.allocate(args.mem)
        for step in range(1, args.steps + 1):
            if step == args.fail_at:
                raise RuntimeError(f"loss is nan at step {step}")
            time.sleep(args.seconds / args.steps)
            device.wait_until_unlocked()
            device.allocate(args.grow)
            loss = (
                0.1 + 2.2 * math.exp(-3 * step / args.steps) + abs(math.log10(args.lr / _BEST_LR))
            )
            if args.nan_at is not None and step >= args.nan_at:
                loss = math.nan
            print(f"step {step}/{args.steps} loss {loss:.4f}", flush=True)
            accuracy = 1 - 0.3 * loss - abs(args.dropout - _BEST_DROPOUT) / 5
            report(step, loss=round(loss, 4), val_acc=round(accuracy, 4))
    finally:
        device.release()
    status: int = args.exit
    return status


def parse_size(text: str) -> int:
    """Read `5G`, `1.5G`, `200M` or plain bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory: write 5G or 200M")
    return int(float(match[1]) * _UNITS[match[2]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="train", description="A fake training job.")
    parser.add_argument("--mem", type=parse_size, default=0, help="GPU memory held, such as 5G")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long the steps take in all")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=_BEST_LR, help="the default learns best")
    parser.add_argument(
        "--dropout", type=float, default=_BEST_DROPOUT, help="the default learns best"
    )
    parser.add_argument("--grow", type=parse_size, default=0, help="more memory with every step")
    parser.add_argument("--sm", type=int, metavar="PCT", help="how busy it keeps the GPU")
    parser.add_argument("--nan-at", type=int, metavar="STEP", help="diverge in this step")
    parser.add_argument("--fail-at", type=int, metavar="STEP", help="raise in this step")
    parser.add_argument("--exit", type=int, default=0, metavar="N", help="exit status at the end")
    return parser


def _visible_line(box: state.FakeGpus) -> int | None:
    """Return the line of the first visible GPU; None if none is visible. RuntimeError for a wrong name."""
    gpus = box.gpus()
    cards = [line for line, gpu in enumerate(gpus) if "mig" not in gpu.flags]
    name = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if name in ("", "-1"):
        return None
    if name.isdigit() and int(name) < len(cards):
        return cards[int(name)]
    named = [line for line, gpu in enumerate(gpus) if gpu.uuid.startswith(name)]
    if len(named) != 1:
        raise RuntimeError("No CUDA GPUs are available")
    return named[0]


def _allowed_share() -> float:
    """Return the share of the GPU's memory that PyTorch's setting allows."""
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    found = re.search(r"per_process_memory_fraction:([0-9.]+)", settings)
    return float(found[1]) if found else 1.0


def _size(count: int) -> str:
    """Write an amount like PyTorch: exactly 1 GiB is 1024.00 MiB."""
    for unit, name in ((state.GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count > unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} bytes"


if __name__ == "__main__":
    sys.exit(main())
