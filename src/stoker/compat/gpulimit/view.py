"""gpulimit's commands that show tasks, their output and the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stoker.cli.tables import Column, print_facts, print_table
from stoker.cli.verbs.log import print_stream
from stoker.compat.gpulimit.tasks import (
    convert_priority,
    find_task,
    show_path,
    status_of,
    translate,
)
from stoker.core.lifecycle import is_live
from stoker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.client.client import Client

_TASKS = [
    *(Column(name) for name in ("[ID]", "num", "status", "run_times")),
    Column("pwd", middle=True, gives=True),
    Column("cmds", fold=True, gives=True),
]
_MACHINE = [Column(name) for name in ("CPU load", "memory total", "memory free", "memory used")]
_GPUS = [
    Column(name)
    for name in ("GPU[ID]", "memory total", "memory free", "memory used", "running tasks num")
]
_COMMAND_SHOWN = 80
_LINES_SHOWN = 20


def ls(client: Client, words: Sequence[str]) -> int:
    """List the tasks."""
    if words and words[0] != "--all":
        raise UsageError("usage: gpulimit ls [--all]")
    rows = []
    for number, job in enumerate(client.jobs()):
        status = status_of(job)
        if is_live(job.state):
            status += f"(GPU:{job.slots})"
        command = job.command if words else job.command[:_COMMAND_SHOWN]
        pwd = show_path(job.cwd) + "#"
        rows.append((str(job.id - 1), str(number), status, str(job.attempt), pwd, command))
    print_table(_TASKS, rows)
    return 0


def show(client: Client, words: Sequence[str]) -> int:
    """Show one task."""
    job = find_task(client, words[0])
    last = job.attempts[-1] if job.attempts else None
    process = last if is_live(job.state) else None
    print_facts(
        [
            ("task id:", str(job.id - 1)),
            ("task pid:", str(process and process.pid)),
            ("priority:", str(convert_priority(job.priority))),
            ("use gpu:", str(process and process.slots)),
            ("run times:", str(job.attempt)),
            ("status:", status_of(job)),
            ("out file:", show_path(last.log if last else job.log)),
            ("pwd:", show_path(job.cwd)),
            ("cmds:", job.command),
        ]
    )
    return 0


def log(client: Client, words: Sequence[str]) -> int:
    """Print a task's output, or the server's own."""
    print_stream(client.log("daemon" if words[0] == "main" else find_task(client, words[0]).id))
    return 0


def debug(client: Client, words: Sequence[str]) -> int:
    """Explain the status of a task, and print the end of its output."""
    job = find_task(client, words[0])
    print(f"cmds: {job.command}\n{status_of(job)}: {translate(client.why(job.id).text)}")
    print_stream(client.log(job.id, tail=_LINES_SHOWN))
    return 0


def status(client: Client, _words: Sequence[str]) -> int:
    """Show the load and memory of the machine, and the memory and tasks of each GPU."""
    slots = client.status().slots
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    total, free = _memory_bytes()
    print_table(_MACHINE, [(f"{load:.0%}", *_amounts(total, free))])
    print()
    memory = _gpu_memory()
    labels = dict.fromkeys([*memory, *(slot.label for slot in slots)])
    tasks = {
        label: sum(len(slot.jobs) for slot in slots if slot.label == label) for label in labels
    }
    print_table(
        _GPUS, [(label, *memory.get(label, ("-", "-", "-")), str(tasks[label])) for label in labels]
    )
    return 0


def _gpu_memory() -> dict[str, tuple[str, ...]]:
    """Return the memory of each GPU: total, free, used."""
    from stoker.gpus.drivers import open_driver

    nvml = open_driver()
    if nvml is None:
        return {}
    return {
        gpu.label: _amounts(gpu.mem_total_bytes, nvml.read(gpu).mem_free_bytes)
        for gpu in nvml.gpus()
    }


def _memory_bytes() -> tuple[int, int]:
    """Return the total and the available memory of the machine."""
    with open("/proc/meminfo", encoding="ascii") as file:
        facts = {name: rest.split() for name, _, rest in (line.partition(":") for line in file)}
    return int(facts["MemTotal"][0]) * 1024, int(facts["MemAvailable"][0]) * 1024


def _amounts(total: int, free: int) -> tuple[str, ...]:
    return tuple(f"{count / 2**20:.0f} MiB" for count in (total, free, total - free))
