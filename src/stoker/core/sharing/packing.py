"""Packing: places waiting jobs on GPUs in queue order, each on the GPU that suits it best.

An idle GPU comes first, then the least busy one, then the one that the job fills best. A job that has
waited too long reserves a GPU; jobs behind it are no longer admitted there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stoker.core.host_room import HostNeed, HostPlan
from stoker.core.sharing.admission import Load, refusal
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ANY_HOST, ShareRequest
from stoker.core.sharing.reservation import MemoryReservation, Probe, Source, reservation_for
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant

_UNKNOWN = Profile()
_IN_USE = "it uses nearly as much"


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy knows: profiles and running examples by kind and GPU model, and the host's free RAM.

    `now_s` is on the clock that measures waiting; `day_s` is Unix time, which profiles use.
    """

    profiles: Mapping[tuple[str, str], Profile]
    probes: Mapping[tuple[str, str], Probe]
    host_free: float | None = None
    now_s: float = 0.0
    day_s: float = 0.0

    def profile(self, kind: str, model: str) -> Profile:
        """Return the profile of a kind of job on a GPU model."""
        return self.profiles.get((kind, model), _UNKNOWN)


class Joining(msgspec.Struct, frozen=True):
    """Start of a job on a GPU, with the memory reserved for it."""

    job: int
    gpu: str
    reservation: MemoryReservation


class Packing(msgspec.Struct, frozen=True):
    """Result of packing: the starts, and the GPU that is reserved for each waiting job."""

    joinings: tuple[Joining, ...]
    kept: Mapping[str, int]


def tenant_of(
    request: ShareRequest,
    gpu: SharedGpu,
    reservation: MemoryReservation,
    known: Knowledge,
    rules: SharingRules,
) -> Tenant:
    """Make a job a tenant of a GPU, with the values known before it starts."""
    profile = known.profile(request.kind, gpu.model)
    return Tenant(
        request=request,
        reserved_bytes=reservation.bytes,
        sm=sm_of(profile, rules),
        brief=profile.is_brief(rules),
        cold=reservation.is_whole or reservation.source is Source.NONE,
        fresh=True,
        trial=reservation.is_trial,
        most=_least(request.share.most, profile.most),
        because=reservation.because,
    )


def sm_of(profile: Profile, rules: SharingRules) -> float:
    """Return the load that a job of this profile counts as."""
    known = profile.sm_load
    return rules.unknown_sm if known is None else known


def reservation_on(
    request: ShareRequest, gpu: SharedGpu, known: Knowledge, rules: SharingRules
) -> MemoryReservation:
    """Return the memory that a job would get on a GPU."""
    rules = rules.of(request.share)
    key = (request.kind, gpu.model)
    profile = known.profiles.get(key, _UNKNOWN)
    return reservation_for(request, gpu, profile, known.probes.get(key), rules, known.day_s)


def revise(tenant: Tenant, gpu: SharedGpu, known: Knowledge, rules: SharingRules) -> Tenant:
    """Shrink the reservation of a tenant that has the whole GPU, once its need is known."""
    if not tenant.cold or tenant.request.share.mode is Mode.FREE:
        return tenant
    reservation = reservation_on(tenant.request, gpu, known, rules)
    if reservation.is_whole:
        return tenant
    seen = int(tenant.used_bytes * rules.learned_factor)
    if reservation.is_trial:
        # Nothing caps this tenant, and it may still grow.
        seen = max(seen, int(gpu.capacity(rules) * rules.ramp_share))
    bytes_ = min(max(reservation.bytes, seen), tenant.reserved_bytes)
    because = reservation.because if bytes_ == reservation.bytes else _IN_USE
    return msgspec.structs.replace(tenant, reserved_bytes=bytes_, cold=False, because=because)


def host_need(
    request: ShareRequest, gpu: SharedGpu, known: Knowledge, rules: SharingRules
) -> HostNeed:
    """Return the CPUs and RAM that a job declares; if it declares no RAM, what its kind is known to need.

    What is known of its kind counts for jobs that share by it, not for those that share as their user says.
    """
    if request.host.mem_bytes is not None or request.share.mode is not Mode.AUTO:
        return request.host
    learned = known.profile(request.kind, gpu.model).ram_need(rules)
    return HostNeed(request.host.cpus, learned)


def _lacks_host(
    request: ShareRequest,
    gpu: SharedGpu,
    known: Knowledge,
    rules: SharingRules,
    hosts: HostPlan,
) -> str | None:
    need = host_need(request, gpu, known, rules)
    lack = hosts.shortage(need, gpu.node)
    if lack is None:
        return None
    if need.mem_bytes == request.host.mem_bytes:
        return f"it {lack}"
    runs = len(known.profile(request.kind, gpu.model).ram)
    return f"it {lack} (learned from {runs} run{'s' * (runs != 1)})"


def why_not(
    request: ShareRequest,
    gpu: SharedGpu,
    known: Knowledge,
    rules: SharingRules,
    hosts: HostPlan | None = None,
) -> str | None:
    """Return why a job may not start on a GPU now; None if it may. CPUs and RAM count only with `hosts`."""
    rules = rules.of(request.share)
    profile = known.profile(request.kind, gpu.model)
    if profile.most is not None and len(gpu.tenants) >= profile.most:
        return f"for jobs of its kind, more than {profile.most} at a time do not finish faster"
    reservation = reservation_on(request, gpu, known, rules)
    load = Load(sm_of(profile, rules), brief=profile.is_brief(rules))
    reason = refusal(request, gpu, reservation, load, rules, known.host_free)
    if reason is None and hosts is not None:
        return _lacks_host(request, gpu, known, rules, hosts)
    return reason


def pack(
    requests: Iterable[ShareRequest],
    gpus: Iterable[SharedGpu],
    known: Knowledge,
    rules: SharingRules,
    hosts: HostPlan | None = None,
) -> Packing:
    """Place every job that fits, in the given order. Pure: changes nothing but its result and `hosts`."""
    there = {gpu.key: gpu for gpu in gpus}
    joinings: list[Joining] = []
    kept: dict[str, int] = {}
    refused: set[tuple[object, ...]] = set()
    for request in requests:
        if len(kept) == len(there):
            break
        alike = _alike(request, there.values(), known, rules)
        if alike in refused:
            continue
        open_to = [
            gpu
            for gpu in there.values()
            if gpu.key not in kept and (request.allowed is None or gpu.key in request.allowed)
        ]
        fitting = [gpu for gpu in open_to if why_not(request, gpu, known, rules, hosts) is None]
        if fitting:
            chosen = min(fitting, key=lambda gpu: _preference(gpu, rules))
            reservation = reservation_on(request, chosen, known, rules)
            joinings.append(Joining(request.job, chosen.key, reservation))
            tenant = tenant_of(request, chosen, reservation, known, rules)
            there[chosen.key] = chosen.with_tenant(tenant)
            if hosts is not None:
                hosts.take(host_need(request, chosen, known, rules), chosen.node)
            continue
        refused.add(alike)
        if hosts is not None and request.host != ANY_HOST:
            hosts.keep(request.host, request.job, {gpu.node for gpu in open_to})
        if known.now_s - request.since_s >= rules.patience_s and not _will_be_known(
            request, there.values()
        ):
            best = _to_keep(request, open_to)
            if best is not None:
                kept[best.key] = request.job
    return Packing(tuple(joinings), kept)


def _alike(
    request: ShareRequest, gpus: Iterable[SharedGpu], known: Knowledge, rules: SharingRules
) -> tuple[object, ...]:
    """Return what decides whether a job starts: if one is refused, jobs that are alike are refused too."""
    sizes = {(gpu.model, gpu.capacity(rules)): gpu for gpu in gpus}
    needs = [reservation_on(request, gpu, known, rules).bytes for gpu in sizes.values()]
    return (
        request.kind,
        request.share,
        request.declared_bytes,
        request.need_bytes,
        request.alone,
        request.allowed,
        request.host,
        *needs,
    )


def _preference(gpu: SharedGpu, rules: SharingRules) -> tuple[bool, float, int]:
    return (bool(gpu.tenants), gpu.sm, gpu.capacity(rules) - gpu.reserved_bytes)


def _will_be_known(request: ShareRequest, gpus: Iterable[SharedGpu]) -> bool:
    """Whether a job of its kind runs as a probe, so that its own need is known soon."""
    return (
        request.share.mode is not Mode.NEVER
        and not request.alone
        and any(
            tenant.cold and tenant.request.kind == request.kind
            for gpu in gpus
            for tenant in gpu.tenants
        )
    )


def _to_keep(request: ShareRequest, gpus: Iterable[SharedGpu]) -> SharedGpu | None:
    """Return the GPU that is likely to be free first: the one with the fewest jobs."""
    large = [gpu for gpu in gpus if gpu.total_bytes > request.above_bytes]
    return min(large, key=lambda gpu: (len(gpu.tenants), gpu.reserved_bytes), default=None)


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
