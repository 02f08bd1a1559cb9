"""`stoker gpus`: which GPUs there are, how busy, and who has them."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from stoker.cli.tables import Column, print_table
from stoker.errors import StokerError

if TYPE_CHECKING:
    import argparse

    from stoker.gpus.lease import Holder
    from stoker.gpus.survey import GpuState
    from stoker.gpus.users import GpuUser

SUMMARY = "show this machine's GPUs: memory, utilisation, who uses and who holds each"
EXAMPLES = """\
examples:
  stoker gpus           a table
  stoker gpus --json    a list for scripts: [] where there is no GPU
"""

_COLUMNS = [
    Column(header, fold=True) for header in ("GPU", "NAME", "MEMORY", "UTIL", "USED BY", "HELD BY")
]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")


def run(args: argparse.Namespace) -> int:
    """Print the GPUs; without any, a table is an error and JSON is an empty list."""
    # Imported late, so that other verbs start fast.
    from stoker.gpus.lease import holder
    from stoker.gpus.nvml import Nvml, why_unavailable
    from stoker.gpus.survey import survey

    nvml = Nvml.open()
    states = survey(nvml) if nvml else ()
    rows = [(state, holder(state.gpu.uuid)) for state in states]
    if args.json:
        print(json.dumps([_json_row(*row) for row in rows], indent=2))
    elif not rows:
        reason = "lists none" if nvml else why_unavailable()
        raise StokerError(f"no GPU found (NVML: {reason})")
    else:
        print_table(_COLUMNS, [_text_row(*row) for row in rows])
    return 0


def _json_row(state: GpuState, held_by: Holder | None) -> dict[str, Any]:
    import msgspec

    gpu, reading = state.gpu, state.reading
    return {
        **msgspec.to_builtins(gpu),
        "lost": reading.lost,
        "mem_used_bytes": reading.mem_used_bytes,
        "mem_free_bytes": reading.mem_free_bytes,
        "utilisation_pct": reading.utilisation_pct,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "users": msgspec.to_builtins(state.users),
        "holder": held_by._asdict() if held_by else None,
    }


def _text_row(state: GpuState, held_by: Holder | None) -> tuple[str, ...]:
    gpu, reading = state.gpu, state.reading
    memory = f"{reading.mem_used_bytes / 2**30:.1f}/{gpu.mem_total_bytes / 2**30:.1f} GiB"
    utilisation = "-" if reading.utilisation_pct is None else f"{reading.utilisation_pct}%"
    return (
        gpu.label,
        gpu.name,
        "lost" if reading.lost else memory,
        utilisation,
        "; ".join(_user_text(user) for user in state.users) or "-",
        _holder_text(held_by) if held_by else "-",
    )


def _user_text(user: GpuUser) -> str:
    from stoker.gpus.survey import format_bytes

    if user.user is None or user.command is None:
        return f"pid {user.pid} outside this container ({format_bytes(user.mem_bytes)})"
    return f"{user.user}: {_brief(user.command)} ({format_bytes(user.mem_bytes)})"


def _holder_text(held_by: Holder) -> str:
    minutes = max(0, int(time.time() - held_by.since)) // 60
    return f"{held_by.user}: {held_by.what} (pid {held_by.pid}, {minutes} min)"


def _brief(command: str, limit: int = 40) -> str:
    program, _, rest = command.partition(" ")
    text = f"{os.path.basename(program)} {rest}".strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
