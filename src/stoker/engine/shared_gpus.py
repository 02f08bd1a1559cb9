"""The tenants of shared GPUs and the profiles of their kinds, as the sharing policy sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from stoker.core.sharing.overrun import raise_reservations
from stoker.core.sharing.packing import Knowledge, revise
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.reservation import Probe
from stoker.core.sharing.rules import Mode, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.usage import AttemptUse, GpuUse, Look, Sight
from stoker.engine.gpu_models import Model
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.machine import read_memory
from stoker.store.sharing_records import Reserved, SharingRecords

_OOM_S = 5.0  # after an out-of-memory failure; by then the use of all tenants has been measured
_SHOWN_S = 10.0  # after this time, a job that holds no memory is taken to need none
_SHOWN_FREE_S = 2.0  # the same for jobs that go by free memory: nothing is reserved for them
_OUTGREW = "a job there uses more than was reserved: no job joins until it grows no more"
_OUTGROWN = "it used more than was reserved"
_UNSEEN = "the driver does not show how much memory each process uses"


class Tenancy(msgspec.Struct):
    """An attempt on a GPU that it shares or may share, from its claim to its end."""

    running: RunningAttempt
    gpu: str
    tenant: Tenant
    since: float
    counted_at: float
    tenant_s: float = 0.0  # seconds, each counted once for every tenant of the GPU
    outgrew_at: float | None = None  # when it used more than its reservation


class SharedGpus:
    """Who is on which GPU with which reservation. Reservations and profiles are also in `records`.

    Until `look` and `models` are set there are no measurements, and no GPU is shared.
    """

    def __init__(
        self, slot_table: SlotTable, records: SharingRecords, clock: Callable[[], float]
    ) -> None:
        self.rules = SharingRules()
        self.look: Callable[[], Look | None] = lambda: None
        self.models: Callable[[], Mapping[str, Model]] = dict
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.tenancies: dict[str, Tenancy] = {}
        self.records = records
        self.clock = clock
        self._slot_table = slot_table
        self._oom_at: dict[str, float] = {}

    def load(self) -> None:
        """Read the recorded profiles."""
        self.profiles = self.records.profiles()

    def can_be_shared(self, state: SlotState) -> bool:
        """Whether a slot is one GPU of known model that no other slot has."""
        slot = state.slot
        return (
            state.whole_slot is None
            and len(slot.keys) == len(slot.gpus) == 1
            and slot.keys[0] in self.models()
            and not any(
                other is not state and slot.keys[0] in other.slot.keys
                for other in self._slot_table.whole_slots()
            )
        )

    def is_shared(self, state: SlotState) -> bool:
        """Whether a GPU has tenants and may get more."""
        can_be_leased = state.refusal is None or not state.refusal.is_fault
        return (
            state.tenants > 0
            and state.is_open
            and can_be_leased
            and state.slot.keys[0] in self.models()
        )

    def enter(self, running: RunningAttempt, gpu: str, tenant: Tenant, now: float) -> None:
        """Make an attempt a tenant of a GPU."""
        self._count(gpu, now)
        self.tenancies[running.key] = Tenancy(running, gpu, tenant, now, now)

    def leave(self, running: RunningAttempt) -> Tenancy | None:
        """End the tenancy of an attempt and return it; None if it is no tenant."""
        tenancy = self.tenancies.get(running.key)
        if tenancy is not None:
            self._count(tenancy.gpu, self.clock())
            del self.tenancies[running.key]
        return tenancy

    def _count(self, gpu: str, now: float) -> None:
        """Add the time since the last change to the tenants of a GPU, before they change."""
        there = self.on_gpu(gpu)
        for tenancy in there:
            tenancy.tenant_s += len(there) * (now - tenancy.counted_at)
            tenancy.counted_at = now

    def on_gpu(self, gpu: str) -> list[Tenancy]:
        """The tenancies of a GPU."""
        return [tenancy for tenancy in self.tenancies.values() if tenancy.gpu == gpu]

    def had_company(self, tenancy: Tenancy) -> bool:
        """Whether an attempt has been on its GPU together with others."""
        now = self.clock()
        tenant_s = tenancy.tenant_s + now - tenancy.counted_at
        return len(self.on_gpu(tenancy.gpu)) > 1 or tenant_s > now - tenancy.since

    def learn(self, tenancy: Tenancy, change: Callable[[Profile], Profile]) -> None:
        """Change the profile of a tenant's kind, and record it."""
        key = self._profile_key(tenancy)
        known = self.profiles.pop(key, Profile())
        self.profiles[key] = changed = change(known)
        if changed != known:
            self.records.learn(*key, changed)
            self.records.forget_oldest(self.profiles)

    def whole_peak(self, tenancy: Tenancy, use: AttemptUse | None, reported_bytes: int) -> int:
        """The peak of a tenant that has reported its own, with what its kind holds beside that."""
        measured_bytes = None if use is None else use.mem_peak_bytes
        if measured_bytes:
            self.learn(
                tenancy, lambda known: known.learn_unreported(measured_bytes, reported_bytes)
            )
        known = self.profiles.get(self._profile_key(tenancy), Profile())
        return known.whole_peak(reported_bytes)

    def note_oom(self, tenancy: Tenancy) -> None:
        """Learn that a tenant ran out of memory. No job joins its GPU for a while.

        A tenant on trial tells nothing of its kind: its cap was too small.
        """
        self._oom_at[tenancy.gpu] = self.clock()
        if tenancy.tenant.trial:
            return
        at_s = time.time()
        self.learn(tenancy, lambda known: known.suffer_oom(at_s, self.rules))

    def review(self, now: float) -> None:
        """Adjust reservations to the measured use: smaller for cold tenants, larger if outgrown."""
        if not self.tenancies:
            return
        look = self.look()
        known = self.knowledge()
        for state in self._slot_table.states:
            if not self.is_shared(state):
                continue
            gpu = self.view(state, look, now)
            tenancies = self.on_gpu(gpu.key)
            for tenancy, tenant in zip(tenancies, gpu.tenants, strict=True):
                self._change(tenancy, revise(tenant, gpu, known, self.rules))
            raised = raise_reservations(self.view(state, look, now), self.rules)
            for tenancy, tenant in zip(tenancies, gpu.tenants, strict=True):
                outgrown = tenant.used_bytes > tenancy.tenant.reserved_bytes
                if outgrown and tenancy.tenant.request.share.mode is Mode.AUTO:
                    tenancy.outgrew_at = now
                if (more := raised.get(tenancy.tenant.job)) is not None:
                    larger = msgspec.structs.replace(
                        tenancy.tenant, reserved_bytes=more, because=_OUTGROWN
                    )
                    self._change(tenancy, larger)

    def _change(self, tenancy: Tenancy, tenant: Tenant) -> None:
        before, tenancy.tenant = tenancy.tenant, tenant
        if reserved_for(before) != reserved_for(tenant):
            self.records.reserve(tenancy.running.attempt, reserved_for(tenant))

    def view(self, state: SlotState, look: Look | None, now: float) -> SharedGpu:
        """A GPU that can be shared, as the sharing policy sees it."""
        key = state.slot.keys[0]
        use = look.gpus.get(key) if look is not None else None
        tenancies = self.on_gpu(key)
        foreign = None
        if use is not None and use.foreigners:
            foreign = ", ".join(each.user or f"pid {each.pid}" for each in use.foreigners)
        return SharedGpu(
            key=key,
            label=state.slot.label,
            model=self.model_of(key),
            total_bytes=self.models()[key].total_bytes,
            used_bytes=use.used_bytes if use is not None else 0,
            driver_bytes=use.driver_bytes if use is not None else 0,
            foreign_bytes=use.foreign_bytes if use is not None else 0,
            foreign=foreign,
            blind=_why_blind(use),
            releasing=use is not None and use.releasing,
            frozen=_OUTGREW if self._is_frozen(key, tenancies, now) else None,
            tenants=tuple(self._tenant(tenancy, look) for tenancy in tenancies),
            node=state.slot.node,
        )

    def _is_frozen(self, key: str, tenancies: list[Tenancy], now: float) -> bool:
        """Whether no job may join because a tenant may still grow."""
        return now - self._oom_at.get(key, -_OOM_S) < _OOM_S or any(
            each.outgrew_at is not None and now - each.outgrew_at < self.rules.flat_s
            for each in tenancies
        )

    def _tenant(self, tenancy: Tenancy, look: Look | None) -> Tenant:
        """A tenant with what was measured of it."""
        seen = look.jobs.get(tenancy.running.key) if look is not None else None
        used = (seen.mem_bytes or {}).get(tenancy.gpu, 0) if seen is not None else 0
        profile = self.profiles.get(self._profile_key(tenancy), Profile())
        load = profile.sm_load
        if load is None and seen is not None:
            load = seen.so_far.load
        by_free_memory = tenancy.tenant.request.share.mode is Mode.FREE
        shown_s = _SHOWN_FREE_S if by_free_memory else _SHOWN_S
        return msgspec.structs.replace(
            tenancy.tenant,
            used_bytes=used,
            sm=self.rules.unknown_sm if load is None else load,
            brief=profile.is_brief(self.rules),
            fresh=not used and (seen is None or seen.watched_s < shown_s),
            settled=seen is not None and seen.has_settled(self.rules.ramp_flat_s),
        )

    def knowledge(self) -> Knowledge:
        """What the policy knows at this moment of kinds of jobs and of the host."""
        look = self.look()
        probes: dict[tuple[str, str], Probe] = {}
        for tenancy in self.tenancies.values():
            seen = look.jobs.get(tenancy.running.key) if look is not None else None
            key = self._profile_key(tenancy)
            if seen is not None and (
                key not in probes or probes[key].use.watched_s < seen.watched_s
            ):
                probes[key] = Probe(seen, tenancy.tenant.request.params)
        return Knowledge(
            profiles=self.profiles,
            probes=probes,
            host_free=read_free_ram(),
            now_s=self.clock(),
            day_s=time.time(),
        )

    def _profile_key(self, tenancy: Tenancy) -> tuple[str, str]:
        return (tenancy.tenant.request.kind, self.model_of(tenancy.gpu))

    def model_of(self, key: str) -> str:
        """The name of a GPU's model; empty if it is unknown."""
        found = self.models().get(key)
        return found.name if found is not None else ""


def _why_blind(use: GpuUse | None) -> str | None:
    if use is None or use.sight is not Sight.PROCESSES:
        return _UNSEEN
    return use.sick


def reserved_for(tenant: Tenant) -> Reserved:
    """The part of a tenant that is recorded."""
    return Reserved(tenant.reserved_bytes, tenant.cold, tenant.capped)


def read_free_ram() -> float | None:
    """Return the free share of the machine's RAM; None if it is unknown."""
    memory = read_memory()
    return memory.available_bytes / memory.total_bytes if memory.total_bytes else None
