"""Admission of a job to a GPU that has jobs already; every refusal gives its reason in figures."""

from __future__ import annotations

import msgspec

from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.reservation import MemoryReservation, Source
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu
from stoker.core.size import format_bytes


class Load(msgspec.Struct, frozen=True):
    """Share of a GPU that a job keeps busy, and whether jobs of its kind are short."""

    sm: float
    brief: bool = False


def refusal(
    request: ShareRequest,
    gpu: SharedGpu,
    reservation: MemoryReservation,
    load: Load,
    rules: SharingRules,
    host_free: float | None = None,
) -> str | None:
    """Return why a job may not start on a GPU now; None if it may. `host_free` is the free share of RAM.

    On a GPU without jobs of ours the sharing rules do not apply: only its size counts.
    """
    if gpu.total_bytes <= request.above_bytes:
        return f"too small: it needs more than {format_bytes(request.above_bytes)}"
    if request.declared_bytes is not None and request.declared_bytes > gpu.total_bytes:
        asked, size = format_bytes(request.declared_bytes), format_bytes(gpu.total_bytes)
        return f"too small: it asks for {asked} and the GPU has {size}"
    if not gpu.tenants:
        return None
    return (
        _not_now(gpu, rules)
        or _too_many(request, gpu, rules)
        or _stranger(request, gpu, reservation, rules)
        or _too_early(gpu, reservation)
        or _no_memory(request, gpu, reservation, rules)
        or _no_compute(request, gpu, load, rules)
        or _no_ram(rules, host_free)
    )


def _not_now(gpu: SharedGpu, rules: SharingRules) -> str | None:
    if gpu.blind is not None:
        return f"cannot be shared: {gpu.blind}"
    if gpu.foreign is not None and not rules.with_others:
        return (
            f"not shared while {gpu.foreign} computes there too (stoker config share.with-others)"
        )
    if gpu.releasing:
        return "the memory of the previous job is not released yet"
    return gpu.frozen


def _too_many(request: ShareRequest, gpu: SharedGpu, rules: SharingRules) -> str | None:
    wanted = [tenant.most for tenant in gpu.tenants]
    most = min(filter(None, (*wanted, request.share.most, rules.most)))
    count = len(gpu.tenants)
    return None if count < most else f"has {count} job{'s' * (count != 1)}, and {most} is the limit"


def _stranger(
    request: ShareRequest, gpu: SharedGpu, reservation: MemoryReservation, rules: SharingRules
) -> str | None:
    """Refuse to combine a job of unknown need with other jobs."""
    if rules.keep_gpu_share is not None and not reservation.is_whole:
        others = any(tenant.reserved_bytes for tenant in gpu.tenants) and not request.share.forced
        return "the jobs there have memory set aside, and it has none" if others else None
    cold = next((tenant for tenant in gpu.tenants if tenant.cold), None)
    if cold is not None and request.share.mode is not Mode.ALWAYS:
        if cold.request.share.mode is Mode.FREE:
            return f"job {cold.job} takes what it finds of its memory"
        return f"job {cold.job} has the whole GPU"
    if reservation.is_whole:
        some = "a job is" if len(gpu.tenants) == 1 else f"{len(gpu.tenants)} jobs are"
        return f"it needs {reservation.because}, and {some} there"
    return None


def _too_early(gpu: SharedGpu, reservation: MemoryReservation) -> str | None:
    """Let jobs of unknown need double: one joins for each job whose memory no longer grows."""
    if reservation.source is not Source.RAMP:
        return None
    settled = sum(tenant.settled for tenant in gpu.tenants)
    if len(gpu.tenants) < 2 * settled:
        return None
    return "its need is not known yet, and the memory of the last jobs there is still growing"


def _no_memory(
    request: ShareRequest, gpu: SharedGpu, reservation: MemoryReservation, rules: SharingRules
) -> str | None:
    if rules.keep_gpu_share is not None:
        fresh = next((tenant for tenant in gpu.tenants if tenant.fresh), None)
        if fresh is not None and not request.share.forced:
            return f"the memory use of job {fresh.job} is not measured yet"
        free = gpu.free_bytes / max(1, gpu.total_bytes)
        if free >= rules.keep_gpu_share:
            return None
        return f"{free:.0%} of its memory is free; {rules.keep_gpu_share:.0%} must stay free"
    capacity = gpu.capacity(rules)
    if gpu.reserved_bytes + reservation.bytes > capacity:
        return (
            f"it needs {reservation}, and {format_bytes(gpu.reserved_bytes)} of"
            f" {format_bytes(capacity)} are set aside for {len(gpu.tenants)} there"
        )
    if request.share.mode is Mode.ALWAYS:
        return None
    left = gpu.free_bytes - gpu.promised_bytes - rules.margin_of(gpu.total_bytes)
    if reservation.bytes > left:
        return (
            f"it needs {reservation}, and of {format_bytes(gpu.free_bytes)} free"
            f" {format_bytes(gpu.promised_bytes)} are promised to the jobs there and"
            f" {format_bytes(rules.margin_of(gpu.total_bytes))} are a safety margin"
        )
    return None


def why_below(gpu: SharedGpu, rules: SharingRules, host_free: float | None) -> str | None:
    """Return why gpulimit's thresholds let no job start on a GPU without jobs of ours; None if they do.

    All memory in use counts, including that of foreign processes. A GPU that shows no figures does not
    keep jobs waiting.
    """
    if rules.keep_gpu_share is not None and gpu.used_bytes:
        free = gpu.free_bytes / max(1, gpu.total_bytes)
        if free < rules.keep_gpu_share:
            return f"{free:.0%} of its memory is free; {rules.keep_gpu_share:.0%} must stay free"
    return _no_ram(rules, host_free)


def _no_compute(
    request: ShareRequest, gpu: SharedGpu, load: Load, rules: SharingRules
) -> str | None:
    brief = load.brief and all(tenant.brief for tenant in gpu.tenants)
    limit = rules.brief_sm_limit if brief else rules.sm_limit
    if request.share.mode is Mode.ALWAYS or gpu.sm + load.sm <= limit:
        return None
    return (
        f"it keeps {load.sm:.0%} of a GPU busy and the jobs there {gpu.sm:.0%}:"
        f" together more than {limit:.0%}"
    )


def _no_ram(rules: SharingRules, host_free: float | None) -> str | None:
    if host_free is None or host_free >= rules.keep_host_share:
        return None
    return f"{host_free:.0%} of the RAM is free; {rules.keep_host_share:.0%} must stay free"
