"""`metrics`: the queue, its GPUs and the daemon as metrics for Prometheus."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from stoker import __version__
from stoker.core.exposition import Family, Sample, write_families
from stoker.core.failure import FailureClass
from stoker.core.host_room import HostRoom
from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.blocking_calls import call_in_thread
from stoker.service.gpus import read_gpus
from stoker.service.nodes import read_nodes
from stoker.store.job_queries import count_pending
from stoker.wire import GpuInfo, GpusQuery

MAX_PROJECTS = 50
"""So many projects have series of their own: Prometheus keeps every series that it has ever seen."""
OTHER_PROJECTS = "(other)"
NO_PROJECT = "(none)"
_ENDS = (State.DONE, State.FAILED, State.KILLED, State.LOST, State.PRUNED)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


async def metrics(context: QueueContext) -> bytes:
    """Return metrics of the queue, its GPUs and the daemon in Prometheus' text format."""
    pending = await call_in_thread(count_pending, context.database.path)
    gpus = await read_gpus(context, GpusQuery())
    return write_families(
        [
            *_of_queue(context),
            *_of_projects(context, pending),
            *_of_attempts(context),
            *_of_gpus(gpus),
            *_of_hosts(context),
            *_of_daemon(context),
        ]
    )


def _one(name: str, meaning: str, value: float | None) -> Family:
    """Make a gauge without labels; one without a value is left out."""
    return Family(name, "gauge", meaning, [] if value is None else [Sample(value)])


def _by(
    label: str,
    kind: Literal["gauge", "counter"],
    name: str,
    meaning: str,
    values: Mapping[str, float | None],
) -> Family:
    """Make a family with one label; series without a value are left out."""
    samples = [Sample(value, {label: key}) for key, value in values.items() if value is not None]
    return Family(name, kind, meaning, samples)


def _of_queue(context: QueueContext) -> Iterator[Family]:
    counts = context.jobs.tally()
    states = [state for state in State if state not in (State.STARTING, State.PREEMPTED)]
    yield _by(
        "state",
        "gauge",
        "stoker_jobs",
        "Jobs that the queue knows, by state; those that start count as running.",
        {state.value: counts.get(state, 0) for state in states},
    )
    admission = context.admission
    yield _one(
        "stoker_queue_paused",
        "Whether the whole queue is paused.",
        admission.queue_paused is not None,
    )
    yield _one("stoker_paused_projects", "Paused projects.", len(admission.projects_paused))
    yield _one(
        "stoker_queue_eta_seconds",
        "Estimated time until all jobs have ended; absent while nothing is known.",
        context.eta.queue_s(),
    )


def _of_projects(
    context: QueueContext, pending: Mapping[tuple[str | None, State], int]
) -> Iterator[Family]:
    counts: Counter[tuple[str | None, State]] = Counter(pending)
    for project, number in context.admission.running().items():
        counts[project, State.RUNNING] += number
    samples = [
        Sample(number, {"project": project, "state": state.value})
        for (project, state), number in sorted(bound_projects(counts).items())
    ]
    meaning = f"Pending and running jobs of the {MAX_PROJECTS} projects with most of them."
    yield Family("stoker_project_jobs", "gauge", meaning, samples)


def bound_projects(
    counts: Mapping[tuple[str | None, State], int],
) -> dict[tuple[str, State], int]:
    """Name projects for labels, and count those beyond the limit together.

    A project may have the name of the rest: then it is counted there, and no series occurs twice.
    """
    totals: Counter[str | None] = Counter()
    for (project, _state), number in counts.items():
        totals[project] += number
    kept = {project for project, _total in totals.most_common(MAX_PROJECTS)}
    found: Counter[tuple[str, State]] = Counter()
    for (project, state), number in counts.items():
        name = (project if project is not None else NO_PROJECT) if project in kept else None
        found[OTHER_PROJECTS if name is None else name, state] += number
    return dict(found)


def _of_attempts(context: QueueContext) -> Iterator[Family]:
    meter = context.meter
    yield _by(
        "state",
        "counter",
        "stoker_jobs_ended_total",
        "Jobs whose last attempt ended since the daemon started, by state.",
        {state.value: meter.ended_jobs[state] for state in _ENDS},
    )
    retried = [Sample(meter.retried)]
    meaning = "Attempts whose job was queued again since the daemon started."
    yield Family("stoker_attempts_retried_total", "counter", meaning, retried)
    yield _by(
        "class",
        "counter",
        "stoker_failures_total",
        "Failed attempts since the daemon started, by failure class.",
        {kind.value: meter.failures[kind] for kind in FailureClass},
    )
    durations = [
        Sample(histogram, {"state": state.value}) for state, histogram in meter.durations.items()
    ]
    meaning = "How long attempts ran that have ended since the daemon started, by outcome."
    yield Family("stoker_attempt_duration_seconds", "histogram", meaning, durations)
    meaning = "How long jobs waited for their first attempt, from the time when they could start."
    yield Family("stoker_job_wait_seconds", "histogram", meaning, [Sample(meter.waits)])


def _of_gpus(gpus: Iterable[GpuInfo]) -> Iterator[Family]:
    by_label = {gpu.label: gpu for gpu in gpus}
    models = [Sample(1, {"gpu": label, "model": gpu.name or ""}) for label, gpu in by_label.items()]
    yield Family("stoker_gpu_info", "gauge", "The model of each GPU; always 1.", models)
    for name, (meaning, value) in _GPU_GAUGES.items():
        values = {label: value(gpu) for label, gpu in by_label.items()}
        yield _by("gpu", "gauge", f"stoker_gpu_{name}", meaning, values)


def _is_usable(gpu: GpuInfo) -> bool:
    is_closed = gpu.closed is not None or gpu.drained is not None
    return gpu.slot is not None and not is_closed and not gpu.lost


def _of_seen(gpu: GpuInfo, value: int) -> int | None:
    """Return a figure of a GPU; None if the GPU was not sampled."""
    return value if gpu.mem_total_bytes else None


_GPU_GAUGES: dict[str, tuple[str, Callable[[GpuInfo], float | None]]] = {
    "utilization_ratio": (
        "Part of the last sample period in which the GPU computed.",
        lambda gpu: None if gpu.utilisation_pct is None else gpu.utilisation_pct / 100,
    ),
    "memory_bytes": ("Memory of the GPU.", lambda gpu: _of_seen(gpu, gpu.mem_total_bytes)),
    "memory_used_bytes": (
        "Memory in use on the GPU, by any process.",
        lambda gpu: _of_seen(gpu, gpu.mem_used_bytes),
    ),
    "memory_reserved_bytes": (
        "Memory set aside for jobs on the GPU.",
        lambda gpu: _of_seen(gpu, gpu.mem_reserved_bytes),
    ),
    "jobs": ("Jobs on the GPU.", lambda gpu: len(gpu.jobs)),
    "foreign_processes": (
        "Processes on the GPU that are no jobs of this queue.",
        lambda gpu: len(gpu.users),
    ),
    "usable": (
        "Whether the queue may use the GPU: it is not drained, lost, faulty or held by another.",
        _is_usable,
    ),
    "temperature_celsius": ("Temperature of the GPU.", lambda gpu: gpu.temperature_c),
    "power_watts": ("Power draw of the GPU.", lambda gpu: gpu.power_w),
}


def _of_hosts(context: QueueContext) -> Iterator[Family]:
    rooms = context.engine.slot_table.host_rooms.by_node
    for name, (meaning, value) in _HOST_GAUGES.items():
        values = {node: value(room) for node, room in rooms.items()}
        yield _by("node", "gauge", f"stoker_host_{name}", meaning, values)
    yield _by(
        "node",
        "gauge",
        "stoker_node_up",
        "Whether a node of the cluster can be reached.",
        {node.name: node.state == "up" for node in read_nodes(context)},
    )


_HOST_GAUGES: dict[str, tuple[str, Callable[[HostRoom], float | None]]] = {
    "cpus": ("CPUs that can be set aside for jobs.", lambda room: room.cpus),
    "cpus_reserved": ("CPUs set aside for jobs.", lambda room: room.used_cpus),
    "memory_bytes": ("RAM that can be set aside for jobs.", lambda room: room.mem_bytes),
    "memory_reserved_bytes": ("RAM set aside for jobs.", lambda room: room.used_bytes),
    "memory_available_bytes": (
        "RAM that is free now, whatever uses the rest.",
        lambda room: room.available_bytes,
    ),
}


def _of_daemon(context: QueueContext) -> Iterator[Family]:
    info = [Sample(1, {"version": __version__})]
    yield Family("stoker_info", "gauge", "The version of the daemon; always 1.", info)
    driver = context.driver
    for name, meaning, value in (
        ("stoker_turns_total", "Turns of the scheduling loop.", driver.turns),
        ("stoker_turns_seconds_total", "Time spent in the scheduling loop.", driver.turns_s),
        ("process_cpu_seconds_total", "CPU time of the daemon.", sum(os.times()[:2])),
    ):
        yield Family(name, "counter", meaning, [Sample(value)])
    yield _one(
        "stoker_recording_blocked",
        "Whether the daemon cannot write its database, for example on a full disk.",
        context.engine.recorder.is_held_up,
    )
    yield _one("stoker_supervisors", "Supervisors of this queue.", len(context.supervisor_pids()))
    warm = context.engine.warm_status.workers
    yield _one("stoker_warm_workers", "Warm workers of this queue.", len(warm))
    path = context.database.path
    sizes = {"database": _size_of(path), "log": _size_of(f"{path}-wal")}
    yield _by("file", "gauge", "stoker_database_bytes", "Size of the queue's database.", sizes)
    disk = os.statvfs(context.home)
    yield _one(
        "stoker_home_available_bytes",
        "Free space on the disk of the queue's home.",
        disk.f_bavail * disk.f_frsize,
    )
    yield _one("process_start_time_seconds", "When the daemon started (Unix time).", context.since)
    yield _one("process_resident_memory_bytes", "RAM of the daemon.", _resident_bytes())
    yield _one("process_open_fds", "Open files of the daemon.", len(os.listdir("/proc/self/fd")))
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _one(
        "process_max_fds",
        "Most open files of the daemon.",
        None if most == resource.RLIM_INFINITY else most,
    )


def _size_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return None
