"""Sharing of GPUs: decides which jobs start beside others, and keeps jobs off GPUs that are too small."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stoker.core.host_room import HostNeed, HostPlan
from stoker.core.job import Outcome
from stoker.core.planner import FORCED, Candidate
from stoker.core.sharing.admission import why_below
from stoker.core.sharing.packing import pack, reservation_on, sm_of, tenant_of, why_not
from stoker.core.sharing.parameters import CommandFacts, Params, template_of
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ANY_HOST, ShareRequest
from stoker.core.sharing.reservation import MemoryReservation
from stoker.core.sharing.rules import NEVER, Mode, Share, SharingRules, parse_share
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.size import format_bytes
from stoker.core.usage import AttemptUse, Look
from stoker.engine.gpu_models import Model, largest_of
from stoker.engine.memory_needs import MemoryNeeds
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.shared_gpus import SharedGpus, read_free_ram, reserved_for
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.store.sharing_records import Reserved, SharingRecords

_REVIEW_S = 2.0
_KINDS_REMEMBERED = 4096

KindOf = Callable[[Candidate], CommandFacts]
"""Returns what tells the kind of a job."""


class Join(msgspec.Struct, frozen=True):
    """Start of a job on a GPU that it shares or may share, with the memory reserved for it."""

    candidate: Candidate
    state: SlotState
    request: ShareRequest
    reservation: MemoryReservation


class Sharing:
    """The sharing policy of an engine. Its records survive a crash.

    Nothing is shared before `watch` is called: without measurements all jobs have GPUs of their own.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        records: SharingRecords,
        kind_of: KindOf,
        clock: Callable[[], float],
        allowed_of: Callable[[RunningAttempt], frozenset[int] | None] = lambda _running: None,
    ) -> None:
        self.gpus = SharedGpus(slot_table, records, clock)
        self.needs = MemoryNeeds(slot_table, self.gpus, allowed_of)
        self.is_possible = False
        self.kept: Mapping[str, int] = {}  # GPUs that are kept for jobs that have waited long
        self._slot_table = slot_table
        self._records = records
        self._kind_of = kind_of
        self._clock = clock
        self._kinds: dict[int, tuple[str, Params]] = {}
        self._supposed: tuple[str, Params] = ("", ())  # of jobs with negative ids
        self._can_be_capped: dict[int, bool] = {}
        self._waiting_since: dict[int, float] = {}
        self._lacked_memory_at: float | None = None  # when thresholds last kept a job off a GPU
        self.load()

    @property
    def rules(self) -> SharingRules:
        """The rules of the sharing policy."""
        return self.gpus.rules

    @rules.setter
    def rules(self, rules: SharingRules) -> None:
        self.gpus.rules = rules

    def load(self) -> None:
        """Read the records."""
        self.gpus.load()
        self.needs.load()

    def watch(
        self, look: Callable[[], Look | None], models: Callable[[], Mapping[str, Model]]
    ) -> None:
        """Rely on these measurements and models from now on."""
        self.gpus.look = look
        self.gpus.models = models
        self.is_possible = True
        for tenancy in self.gpus.tenancies.values():  # adopted when no model was known
            self._set_ram_aside(tenancy.running, tenancy.gpu, tenancy.tenant)

    def largest_bytes(self) -> int | None:
        """The memory of the largest GPU in use; None if it is unknown."""
        return largest_of((state.slot for state in self._slot_table.states), self.gpus.models())

    def total_bytes(self, state: SlotState) -> int:
        """The memory of a GPU that can be shared."""
        return self.gpus.models()[state.slot.keys[0]].total_bytes

    def due_at(self) -> float | None:
        """When to review the shared GPUs again; None while no job waits for them."""
        lacked_at, now = self._lacked_memory_at, self._clock()
        if lacked_at is not None and now - lacked_at < 2 * _REVIEW_S:
            return now + _REVIEW_S
        return now + _REVIEW_S if self.gpus.tenancies and self._waiting_since else None

    def slot_to_share(self, index: int) -> SlotState | None:
        """The slot with this index if its GPU can be shared."""
        state = self._slot_table.states[index]
        return state if self.gpus.can_be_shared(state) else None

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a job may have to be kept off some GPUs."""
        has_needs = bool(self.needs.by_job)
        return candidate.gpu_mem is not None or has_needs or _goes_by_free_memory(candidate)

    def direct(self, candidate: Candidate) -> Candidate:
        """Keep a job off GPUs that are too small for it, or have too little memory free."""
        need = self.needs.by_job.get(candidate.id)
        by_free_memory = _goes_by_free_memory(candidate)
        if candidate.gpu_mem is None and not (need and need.above_bytes) and not by_free_memory:
            return candidate
        states, models = self._slot_table.whole_slots(), self.gpus.models()
        allowed = frozenset(
            state.slot.index
            for state in states
            if (candidate.allowed is None or state.slot.index in candidate.allowed)
            and self._shortage(candidate, state, models) is None
        )
        if by_free_memory and len(allowed) < len(states):
            self._lacked_memory_at = self._clock()
        return msgspec.structs.replace(candidate, allowed=allowed)

    def why_too_small(self, candidate: Candidate, state: SlotState) -> str | None:
        """Why the GPUs of a slot have too little memory for a job; None if they may have enough."""
        return self._shortage(candidate, state, self.gpus.models())

    def _shortage(
        self, candidate: Candidate, state: SlotState, models: Mapping[str, Model]
    ) -> str | None:
        sizes = [models[key].total_bytes for key in state.slot.keys if key in models]
        if not sizes:
            return None
        size, asked = min(sizes), candidate.gpu_mem or 0
        need = self.needs.by_job.get(candidate.id)
        if size < asked:
            return f"has {format_bytes(size)}, and it asks for {format_bytes(asked)}"
        if need is not None and size <= need.above_bytes:
            return f"has {format_bytes(size)}, and {format_bytes(need.above_bytes)} did not suffice"
        if not _goes_by_free_memory(candidate) or not self.gpus.can_be_shared(state):
            return None
        if self.gpus.on_gpu(state.slot.keys[0]):
            return None  # `join` decides whether it may start beside the jobs there
        rules = self.rules.of(parse_share(candidate.share or ""))
        return why_below(self._view(state), rules, read_free_ram())

    def request_of(self, candidate: Candidate) -> ShareRequest:
        """What a waiting job asks for."""
        need = self.needs.by_job.get(candidate.id)
        kind, params = ("", ()) if candidate.share is None else self._kind(candidate)
        allowed = None
        if candidate.allowed is not None:
            states = [self._slot_table.states[index] for index in candidate.allowed]
            allowed = frozenset(key for state in states for key in state.slot.keys)
        return ShareRequest(
            job=candidate.id,
            kind=kind,
            params=params,
            can_be_capped=self._can_be_capped.get(candidate.id, False),
            share=_share_of(candidate),
            declared_bytes=candidate.gpu_mem,
            need_bytes=need.bytes if need else None,
            alone=need.alone if need else False,
            above_bytes=need.above_bytes if need else 0,
            since_s=self._waiting_since.get(candidate.id, self._clock()),
            allowed=allowed,
            host=HostNeed(candidate.cpus, candidate.mem_bytes),
        )

    def _requests_of(self, candidate: Candidate) -> list[ShareRequest]:
        """What a job asks for; a job on several GPUs makes one request for each of them."""
        request = self.request_of(candidate)
        if candidate.slots == 1:
            return [request]
        # The first of them asks for CPUs and RAM, once for all.
        alone = msgspec.structs.replace(request, kind="GPU 0", share=NEVER)
        others = msgspec.structs.replace(alone, host=ANY_HOST)
        more = [
            msgspec.structs.replace(others, kind=f"GPU {number}")
            for number in range(1, candidate.slots)
        ]
        return [alone, *more]

    def profile_of(self, candidate: Candidate) -> Profile:
        """The profile of a job's kind on the GPU model on which most runs of it have finished."""
        kind, _params = self._kind(candidate)
        models = dict.fromkeys(model.name for model in self.gpus.models().values())
        found = [self.gpus.profiles.get((kind, model), Profile()) for model in models]
        return max(found, key=lambda profile: profile.finished, default=Profile())

    def params_of(self, candidate: Candidate) -> Params:
        """The numeric parameters of a job that may share."""
        return self._kind(candidate)[1]

    def _kind(self, candidate: Candidate) -> tuple[str, Params]:
        """The kind of a job and its parameters."""
        if candidate.id < 0:
            return self._supposed
        known = self._kinds.get(candidate.id)
        if known is None:
            if len(self._kinds) >= _KINDS_REMEMBERED:
                self._kinds.clear()
            known = self._kinds[candidate.id] = _kind_from(self._kind_of(candidate))
        return known

    def suppose(self, facts: CommandFacts) -> None:
        """From now on, jobs with negative ids, which are not in the queue, are of this kind."""
        self._supposed = _kind_from(facts)

    def note_cap(self, job: int, can_be_capped: Callable[[], bool]) -> None:
        """Note whether a job keeps to the memory that is reserved for it; asks once for each job."""
        if job not in self._can_be_capped:
            if len(self._can_be_capped) >= _KINDS_REMEMBERED:
                self._can_be_capped.clear()
            self._can_be_capped[job] = can_be_capped()

    def is_proved(self, running: RunningAttempt) -> bool:
        """Whether an attempt may share its GPU, and runs of its kind ended there without a fault."""
        if self._slot_table.states[running.slots[0].index].whole_slot is None:
            return False
        kind, _params = self._kinds.get(running.attempt.job, ("", ()))
        model = self.gpus.model_of(running.slots[0].keys[0])
        return self.gpus.profiles.get((kind, model), Profile()).is_proved

    def begin(self, state: SlotState, candidate: Candidate) -> Join:
        """Let a job start on a GPU without jobs, where others may join it."""
        request = self.request_of(candidate)
        knowledge = self.gpus.knowledge()
        reservation = reservation_on(request, self._view(state), knowledge, self.rules)
        return Join(candidate, state, request, reservation)

    def join(
        self, waiting: Sequence[Candidate], now: float, hosts: HostPlan | None = None
    ) -> list[Join]:
        """Choose the waiting jobs, given in queue order, that may start beside running ones.

        Jobs that do not share take part too: for one that has waited long, a GPU is kept. `hosts` has the
        CPUs and RAM that are left.
        """
        states = {
            state.slot.keys[0]: state
            for state in self._slot_table.states
            if self.gpus.is_shared(state)
        }
        candidates = {candidate.id: candidate for candidate in waiting}
        self._waiting_since = {job: self._waiting_since.get(job, now) for job in candidates}
        if not states or not candidates:
            self.kept = {}
            return []
        look = self.gpus.look()
        views = [self.gpus.view(state, look, now) for state in states.values()]
        requests = [each for candidate in waiting for each in self._requests_of(candidate)]
        packing = pack(requests, views, self.gpus.knowledge(), self.rules, hosts)
        self.kept = packing.kept
        by_job = {request.job: request for request in requests}
        return [
            Join(candidates[each.job], states[each.gpu], by_job[each.job], each.reservation)
            for each in packing.joinings
        ]

    def admit(self, running: RunningAttempt, join: Join, now: float, *, capped: bool) -> None:
        """Record the reservation of a job that is about to start."""
        gpu = self.gpus.view(join.state, None, now)
        tenant = tenant_of(join.request, gpu, join.reservation, self.gpus.knowledge(), self.rules)
        tenant = msgspec.structs.replace(tenant, capped=capped)
        self._enter(running, gpu.key, tenant, now)
        self._records.reserve(running.attempt, reserved_for(tenant))
        self._waiting_since.pop(join.request.job, None)

    def adopt(self, running: RunningAttempt, reserved: Reserved, candidate: Candidate) -> None:
        """Take over a job that an earlier daemon admitted, with its recorded reservation."""
        key = running.slots[0].keys[0]
        request = self.request_of(candidate)
        profile = self.gpus.profiles.get((request.kind, self.gpus.model_of(key)), Profile())
        tenant = Tenant(
            request=request,
            reserved_bytes=reserved.bytes,
            sm=sm_of(profile, self.rules),
            cold=reserved.cold,
            capped=reserved.capped,
            most=request.share.most,
        )
        self._enter(running, key, tenant, self._clock())

    def _enter(self, running: RunningAttempt, key: str, tenant: Tenant, now: float) -> None:
        """Put an attempt on a GPU."""
        self.gpus.enter(running, key, tenant, now)
        self._set_ram_aside(running, key, tenant)

    def _set_ram_aside(self, running: RunningAttempt, key: str, tenant: Tenant) -> None:
        """Set aside the RAM that an attempt's kind is known to need on this model of GPU."""
        profile = self.gpus.profiles.get((tenant.request.kind, self.gpus.model_of(key)), Profile())
        running.learned_mem_bytes = profile.ram_need(self.rules) or 0
        self._slot_table.hosts.add(running)

    def on_end(
        self,
        running: RunningAttempt,
        outcome: Outcome,
        use: AttemptUse | None,
        *,
        is_over: bool,
        is_fault: bool = False,
        ram_bytes: int = 0,
    ) -> None:
        """Give back the reservation of an attempt; learn from it if it succeeded or had a GPU fault.

        `ram_bytes` is the RAM of its largest process; 0 if that is unknown.
        """
        if is_over:
            self.needs.forget(running)
        tenancy = self.gpus.leave(running)
        if tenancy is None:
            return
        if is_fault:
            self.gpus.learn(tenancy, Profile.suffer_fault)
        if outcome.is_success and ram_bytes:
            self.gpus.learn(tenancy, lambda known: known.learn_ram(ram_bytes))
        now = self._clock()
        tenancy_s = now - tenancy.since
        if outcome.is_success and use is not None and tenancy_s > 0:
            crowd = tenancy.tenant_s / tenancy_s
            # Not since its claim: it may have waited for a warm worker to import.
            took_s = now - running.begun - running.paused_s
            params = tenancy.tenant.request.params
            self.gpus.learn(
                tenancy, lambda known: known.learn(use, took_s, crowd, self.rules, params)
            )

    def view(self, state: SlotState) -> SharedGpu | None:
        """A GPU that is or can be shared, as it is now."""
        if not self.is_possible or not self.gpus.can_be_shared(state):
            return None
        return self._view(state)

    def _view(self, state: SlotState) -> SharedGpu:
        return self.gpus.view(state, self.gpus.look(), self._clock())

    def explain(self, candidate: Candidate, state: SlotState) -> str | None:
        """Why a waiting job does not join the jobs on a GPU; None if it could."""
        gpu = self.view(state)
        if gpu is None:
            return None
        owner = self.kept.get(gpu.key)
        if owner is not None and owner != candidate.id:
            return f"kept for job {owner}, which has waited long"
        hosts = HostPlan(self._slot_table.host_rooms)
        return why_not(self.request_of(candidate), gpu, self.gpus.knowledge(), self.rules, hosts)


def _goes_by_free_memory(candidate: Candidate) -> bool:
    """Whether a job starts only where enough memory is free. A forced start ignores that."""
    return candidate.share == Mode.FREE.value and candidate.priority != FORCED


def _share_of(candidate: Candidate) -> Share:
    """How a job shares its GPU; a forced job that goes by free memory joins in any case."""
    if candidate.share is None:
        return NEVER
    share = parse_share(candidate.share)
    forced = share.mode is Mode.FREE and candidate.priority == FORCED
    return msgspec.structs.replace(share, forced=True) if forced else share


def _kind_from(facts: CommandFacts) -> tuple[str, Params]:
    template = template_of(facts)
    text = template.text.encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:24], template.params
