"""Lines of the GPUs of `stoker top`: memory as a bar with a block for each job, use, temperature.

Colours only repeat what characters and numbers say: a block has its job's number, memory that is set aside
is `░`, other people's `▓`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from stoker.cli.messages import harmless
from stoker.wire import GpuInfo

# Told apart by people who see few colours (Okabe and Ito), as a terminal with 256 colours shows them.
COLOURS = (
    "color(74)",
    "color(214)",
    "color(36)",
    "color(220)",
    "color(175)",
    "color(32)",
    "color(166)",
)
_FREE, _SET_ASIDE, _OTHERS = "·", "░", "▓"
_SPARKS = " ▁▂▃▄▅▆▇█"
_LEAST_BAR = 10


class Hit(NamedTuple):
    """A stretch of a line that stands for a job: from `begin` to before `end`."""

    begin: int
    end: int
    job: int


class Block(NamedTuple):
    """A stretch of a GPU's memory: what it is, and whose."""

    kind: str
    cells: int
    job: int | None


def colour_of(job: int) -> str:
    """Return the colour of a job; it is the same everywhere."""
    return COLOURS[job % len(COLOURS)]


def blocks_of(gpu: GpuInfo, width: int) -> list[Block]:
    """Divide a bar of `width` cells between the jobs on a GPU, other processes and free memory."""
    parts: list[tuple[str, int, int | None]] = []
    for tenant in gpu.tenants:
        used = tenant.mem_used_bytes or 0
        parts.append(("used", used, tenant.job))
        parts.append(("aside", max(0, tenant.mem_reserved_bytes - used), tenant.job))
    ours = sum(tenant.mem_used_bytes or 0 for tenant in gpu.tenants)
    parts.append(("others", max(0, gpu.mem_used_bytes - ours) if gpu.users else 0, None))
    total = max(1, gpu.mem_total_bytes)
    blocks: list[Block] = []
    begin = cells_before = 0
    for kind, size, job in parts:
        begin += size
        end = min(width, round(begin / total * width))
        if end > cells_before:
            blocks.append(Block(kind, end - cells_before, job))
            cells_before = end
    if cells_before < width:
        blocks.append(Block("free", width - cells_before, None))
    return blocks


def draw_bar(gpu: GpuInfo, width: int) -> tuple[Text, list[Hit]]:
    """Draw the memory of a GPU, and say which cells belong to which job."""
    bar, at = Text(), 0
    hits: list[Hit] = []
    note = _note(gpu)
    for block in blocks_of(gpu, width):
        if block.kind == "used":
            label = f"{block.job}" if len(f"{block.job}") <= block.cells else ""
            bar.append(label.center(block.cells), f"black on {colour_of(block.job or 0)}")
        elif block.kind == "aside":
            is_unnamed = block.job not in {hit.job for hit in hits}
            label = f" {block.job} " if is_unnamed and len(f" {block.job} ") <= block.cells else ""
            bar.append(label.center(block.cells, _SET_ASIDE), colour_of(block.job or 0))
        elif block.kind == "others":
            bar.append(_OTHERS * block.cells, "dim")
        else:
            text = f" {note}"[: block.cells] if note else ""
            bar.append(text + _FREE * (block.cells - len(text)), "dim")
        if block.job is not None:
            hits.append(Hit(at, at + block.cells, block.job))
        at += block.cells
    return bar, hits


def _note(gpu: GpuInfo) -> str:
    if gpu.lost:
        return "lost "
    if gpu.drained is not None or gpu.closed is not None:
        return f"{harmless(gpu.closed or 'drained')} "
    if gpu.slot is None:
        return "not used by this queue "
    if gpu.kept_for is not None:
        return f"kept for job {gpu.kept_for}, which needs {gpu.kept_needs} "
    return ""


def draw_spark(values: Sequence[float | None], width: int) -> str:
    """Draw percentages as characters of different heights, the last one at the right."""
    if not values or width < 1:
        return " " * width
    step = max(1, len(values) // width) if len(values) < 60 else 60 // width or 1
    recent = values[-step * width :]
    chunks = [recent[at : at + step] for at in range(0, len(recent), step)]
    return "".join(_spark_of(chunk) for chunk in chunks)[-width:].rjust(width)


def _spark_of(chunk: Sequence[float | None]) -> str:
    known = [value for value in chunk if value is not None]
    if not known:
        return " "
    mean = min(100.0, max(0.0, sum(known) / len(known)))
    return _SPARKS[round(mean / 100 * (len(_SPARKS) - 1))]


def gpu_line(
    gpu: GpuInfo, past: Sequence[float | None], width: int, label_width: int
) -> tuple[Text, list[Hit]]:
    """Draw the line of a GPU."""
    used, total = gpu.mem_used_bytes / 2**30, gpu.mem_total_bytes / 2**30
    right = Text(f" {used:5.1f}/{total:.0f} GiB ".rjust(15))
    rate = "  –" if gpu.utilisation_pct is None else f"{gpu.utilisation_pct:3d}"
    right.append(f"{rate}% ")
    spark_width = 8 if width < 100 else 20
    right.append(draw_spark(past, spark_width), "color(36)")
    if width >= 100:
        heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c} °C"
        power = "" if gpu.power_w is None else f"{gpu.power_w:.0f} W"
        right.append(f" {heat:>6} {power:>6}", "dim")
    line = Text(harmless(gpu.label)[:label_width].ljust(label_width) + " ")
    room = width - line.cell_len - right.cell_len
    if room < _LEAST_BAR:
        return line + right, []
    bar, hits = draw_bar(gpu, room)
    begin = line.cell_len
    line.append_text(bar).append_text(right)
    return line, [Hit(hit.begin + begin, hit.end + begin, hit.job) for hit in hits]


def label_width_of(gpus: Sequence[GpuInfo]) -> int:
    """Return the width of the longest label, within limits."""
    return min(20, max((cell_len(gpu.label) for gpu in gpus), default=1))
