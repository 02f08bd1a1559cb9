"""Lets jobs share GPUs: keeps the sums, learns what kinds of jobs need, and says who may join whom."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stoker.core.failure import Failure, OomFigures
from stoker.core.job import Attempt, Outcome
from stoker.core.planner import FORCED, Candidate
from stoker.core.sharing.admission import why_below
from stoker.core.sharing.overrun import Case, Remedy, Verdict, judge_oom, raise_rooms
from stoker.core.sharing.packing import Knowledge, pack, revise, room_on, sm_of, tenant_of, why_not
from stoker.core.sharing.profile import Profile, mask
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.reservation import MemoryReservation
from stoker.core.sharing.rules import NEVER, Mode, Share, SharingRules, parse_share
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.size import format_bytes
from stoker.core.usage import AttemptUse, JobUse, Look, Sight
from stoker.engine.gpu_models import Model, largest_of
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.store.sharing_records import Need, Reserved, SharingRecords

_REVIEW_S = 2.0
_TROUBLE_S = 5.0  # in which those who took too much will have been seen
_SHOWN_S = 10.0  # after which a job that holds no memory is taken to need none
_SHOWN_FREE_S = 2.0  # the same for jobs that take what is free, for which nothing is set aside
_KINDS_REMEMBERED = 4096
_OUTGREW = "a job there needs more than was thought: nobody joins until it grows no more"
_MUTE = "failed beside others, and no log tells why: again on a GPU alone"
_UNSEEN = "the driver does not tell who holds how much of its memory"
_MEMINFO = "/proc/meminfo"


KindOf = Callable[[Candidate], tuple[list[str], str, str | None]]
"""The words of a job's command, its working folder, and the folder of its run, if it has one."""


class Seat(msgspec.Struct):
    """A job on a GPU that it shares or may share, from its claim to its end."""

    running: RunningAttempt
    gpu: str
    tenant: Tenant
    outgrew_at: float | None = None
    crowd_s: float = 0.0  # seconds, each counted as often as there were jobs on the GPU
    since: float = 0.0
    counted_at: float = 0.0


class Join(msgspec.Struct, frozen=True):
    """A job that starts on a shared GPU: who, where, with how much."""

    candidate: Candidate
    place: SlotState
    wish: ShareRequest
    room: MemoryReservation


class Sharing:
    """Who sits on which GPU with what set aside; everything that outlives a crash is in `rooms`.

    Nothing is shared before `watch` was called: without sight of the GPUs all jobs are alone.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        rooms: SharingRecords,
        kind_of: KindOf,
        clock: Callable[[], float],
        allowed_of: Callable[[RunningAttempt], frozenset[int] | None] = lambda _running: None,
    ) -> None:
        self._slot_table = slot_table
        self._sharing_records = rooms
        self._kind_of = kind_of
        self._clock = clock
        self.rules = SharingRules()
        self._look: Callable[[], Look | None] = lambda: None
        self._models: Callable[[], Mapping[str, Model]] = dict
        self._allowed_of = allowed_of
        self.is_possible = False
        self.load()
        self._seats: dict[str, Seat] = {}
        self._kinds: dict[int, str] = {}
        self._waiting_since: dict[int, float] = {}
        self._ram: tuple[float, float | None] | None = None
        self._lacked_memory_at: float | None = None  # when thresholds last kept a job off a GPU
        self._trouble_at: dict[str, float] = {}  # when somebody found no memory beside others
        self.kept: Mapping[str, int] = {}

    def load(self) -> None:
        """Believe what is on record."""
        self._profiles = self._sharing_records.profiles()
        self.needs = self._sharing_records.needs()

    def watch(
        self, look: Callable[[], Look | None], models: Callable[[], Mapping[str, Model]]
    ) -> None:
        """See the GPUs from now on."""
        self._look = look
        self._models = models
        self.is_possible = True

    def largest_bytes(self) -> int | None:
        """The memory of the largest GPU in use; None if that is not known."""
        return largest_of((place.slot for place in self._slot_table.states), self._models())

    def _largest_for(self, running: RunningAttempt) -> int | None:
        """The memory of the largest GPU that a job may have, also of those that are taken for now."""
        allowed = self._allowed_of(running)
        return largest_of(
            (
                place.slot
                for place in self._slot_table.whole_slots()
                if place.drained is None and (allowed is None or place.slot.index in allowed)
            ),
            self._models(),
        )

    def total_bytes(self, place: SlotState) -> int:
        """The memory of a GPU that can be shared."""
        return self._models()[place.slot.keys[0]].total_bytes

    def due_at(self) -> float | None:
        """When to look again at those who share; None while nobody waits for them."""
        lacked_at = self._lacked_memory_at
        if lacked_at is not None and self._clock() - lacked_at < 2 * _REVIEW_S:
            return self._clock() + _REVIEW_S
        return self._clock() + _REVIEW_S if self._seats and self._waiting_since else None

    def place_of(self, index: int) -> SlotState | None:
        """The place whose GPU a job could share that is planned there; None if it cannot be."""
        place = self._slot_table.states[index]
        return place if self._can_be_shared(place) else None

    def _can_be_shared(self, place: SlotState) -> bool:
        slot = place.slot
        return (
            place.whole_slot is None
            and len(slot.keys) == len(slot.gpus) == 1
            and slot.keys[0] in self._models()
            and not any(
                other is not place and slot.keys[0] in other.slot.keys
                for other in self._slot_table.whole_slots()
            )
        )

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a job may have to be kept off some GPUs."""
        return candidate.gpu_mem is not None or bool(self.needs) or _goes_by_free_memory(candidate)

    def direct(self, candidate: Candidate) -> Candidate:
        """Keep a job off GPUs that are too small for it, or have too little memory free."""
        need = self.needs.get(candidate.id)
        by_free_memory = _goes_by_free_memory(candidate)
        if candidate.gpu_mem is None and not (need and need.above_bytes) and not by_free_memory:
            return candidate
        models = self._models()
        allowed = frozenset(
            place.slot.index
            for place in self._slot_table.whole_slots()
            if (candidate.allowed is None or place.slot.index in candidate.allowed)
            and self._shortage(candidate, place, models) is None
        )
        if by_free_memory and len(allowed) < len(self._slot_table.whole_slots()):
            self._lacked_memory_at = self._clock()
        return msgspec.structs.replace(candidate, allowed=allowed)

    def too_small(self, candidate: Candidate, place: SlotState) -> str | None:
        """Why the GPUs of a place have too little memory for a job; None if they may have enough."""
        return self._shortage(candidate, place, self._models())

    def _shortage(
        self, candidate: Candidate, place: SlotState, models: Mapping[str, Model]
    ) -> str | None:
        sizes = [models[key].total_bytes for key in place.slot.keys if key in models]
        if not sizes:
            return None
        size, asked = min(sizes), candidate.gpu_mem or 0
        need = self.needs.get(candidate.id)
        if size < asked:
            return f"has {format_bytes(size)}, and it asks for {format_bytes(asked)}"
        if need is not None and size <= need.above_bytes:
            return f"has {format_bytes(size)}, and {format_bytes(need.above_bytes)} did not suffice"
        if _goes_by_free_memory(candidate) and self.place_of(place.slot.index) is not None:
            return self._lacks_free_memory(candidate, place)
        return None

    def _lacks_free_memory(self, candidate: Candidate, place: SlotState) -> str | None:
        """Why the thresholds for free memory keep a job off a GPU without jobs of ours."""
        if self._seats_on(place.slot.keys[0]):
            return None  # whether it may join those there is decided with all who want to
        gpu = self._view(place, self._look(), self._clock())
        rules = self.rules.of(parse_share(candidate.share or ""))
        return why_below(gpu, rules, self._free_ram())

    def _free_ram(self) -> float | None:
        """The free share of the machine's RAM, read once for all GPUs and jobs of a turn."""
        now = self._clock()
        if self._ram is None or self._ram[0] != now:
            self._ram = (now, read_free_ram())
        return self._ram[1]

    def wish_of(self, candidate: Candidate) -> ShareRequest:
        """What a waiting job asks for."""
        need = self.needs.get(candidate.id)
        allowed = None
        if candidate.allowed is not None:
            places = [self._slot_table.states[index] for index in candidate.allowed]
            allowed = frozenset(key for place in places for key in place.slot.keys)
        return ShareRequest(
            job=candidate.id,
            kind="" if candidate.share is None else self._kind(candidate),
            share=_share_of(candidate),
            declared_bytes=candidate.gpu_mem,
            need_bytes=need.bytes if need else None,
            alone=need.alone if need else False,
            above_bytes=need.above_bytes if need else 0,
            since_s=self._waiting_since.get(candidate.id, self._clock()),
            allowed=allowed,
        )

    def profile_of(self, candidate: Candidate) -> Profile:
        """What is known of a job's kind, on whichever GPU of ours most of it was learned."""
        kind = self._kind(candidate)
        models = dict.fromkeys(model.name for model in self._models().values())
        found = [self._profiles.get((kind, model), Profile()) for model in models]
        return max(found, key=lambda profile: profile.finished, default=Profile())

    def _kind(self, candidate: Candidate) -> str:
        kind = self._kinds.get(candidate.id)
        if kind is None:
            words, cwd, run_dir = self._kind_of(candidate)
            text = f"{cwd}\0{mask(words, run_dir)}".encode("utf-8", "surrogateescape")
            kind = hashlib.sha256(text).hexdigest()[:24]
            if len(self._kinds) >= _KINDS_REMEMBERED:
                self._kinds.clear()
            self._kinds[candidate.id] = kind
        return kind

    def begin(self, place: SlotState, candidate: Candidate) -> Join:
        """How a job starts on a GPU that nobody uses."""
        wish = self.wish_of(candidate)
        gpu = self._view(place, self._look(), self._clock())
        return Join(candidate, place, wish, room_on(wish, gpu, self._knowledge(), self.rules))

    def join(self, waiting: Sequence[Candidate], now: float) -> list[Join]:
        """Who of those that wait, in their order, may start beside those that run.

        A job that does not share takes part too: if it has waited long, a GPU is emptied for it.
        """
        look = self._look()
        places = {
            place.slot.keys[0]: place for place in self._slot_table.states if self._is_shared(place)
        }
        waits = {candidate.id: candidate for candidate in waiting}
        self._waiting_since = {job: self._waiting_since.get(job, now) for job in waits}
        if not places or not waits:
            self.kept = {}
            return []
        gpus = [self._view(place, look, now) for place in places.values()]
        wishes = [wish for candidate in waiting for wish in self._wishes_of(candidate)]
        packing = pack(wishes, gpus, self._knowledge(), self.rules)
        self.kept = packing.kept
        by_job = {wish.job: wish for wish in wishes}
        return [
            Join(waits[each.job], places[each.gpu], by_job[each.job], each.room)
            for each in packing.joinings
        ]

    def _wishes_of(self, candidate: Candidate) -> list[ShareRequest]:
        """What a job asks for; one on several GPUs waits for each of them."""
        wish = self.wish_of(candidate)
        if candidate.slots == 1:
            return [wish]
        numbers = range(candidate.slots)
        return [
            msgspec.structs.replace(wish, kind=f"GPU {number}", share=NEVER) for number in numbers
        ]

    def _is_shared(self, place: SlotState) -> bool:
        is_usable = place.is_open and not (place.refusal is not None and place.refusal.is_fault)
        return place.tenants > 0 and is_usable and place.slot.keys[0] in self._models()

    def sit(self, running: RunningAttempt, join: Join, now: float, *, capped: bool) -> None:
        """Put on record what is set aside for a job that is about to start."""
        key = join.place.slot.keys[0]
        gpu = self._view(join.place, None, now)
        tenant = tenant_of(join.wish, gpu, join.room, self._knowledge(), self.rules)
        tenant = msgspec.structs.replace(tenant, capped=capped)
        self._enter(running, key, tenant, now)
        self._sharing_records.reserve(running.attempt, _on_record(tenant))
        self._waiting_since.pop(join.wish.job, None)

    def recorded(self) -> Mapping[Attempt, Reserved]:
        """What is on record of those who share and may still run."""
        return self._sharing_records.live()

    def take_over(self, running: RunningAttempt, reserved: Reserved, candidate: Candidate) -> None:
        """Have a job again that an earlier daemon let in, with what was set aside for it."""
        key = running.slots[0].keys[0]
        wish = self.wish_of(candidate)
        profile = self._profiles.get((wish.kind, self._model(key)), Profile())
        tenant = Tenant(
            wish=wish,
            reserved_bytes=reserved.bytes,
            sm=sm_of(profile, self.rules),
            cold=reserved.cold,
            capped=reserved.capped,
            most=wish.share.most,
        )
        self._enter(running, key, tenant, self._clock())

    def _enter(self, running: RunningAttempt, gpu: str, tenant: Tenant, now: float) -> None:
        self._count(gpu, now)
        seat = Seat(running, gpu, tenant, since=now, counted_at=now)
        self._seats[running.key] = seat

    def _count(self, gpu: str, now: float) -> None:
        """Add up, before it changes, how many have been together on a GPU."""
        there = [seat for seat in self._seats.values() if seat.gpu == gpu]
        for seat in there:
            seat.crowd_s += len(there) * (now - seat.counted_at)
            seat.counted_at = now

    def leave(
        self, running: RunningAttempt, outcome: Outcome, use: AttemptUse | None, *, is_over: bool
    ) -> None:
        """Give back what was set aside; learn from a job that has succeeded."""
        if is_over and self.needs.pop(_name_of(running), None) is not None:
            self._sharing_records.forget_need(running.attempt.job)
        seat = self._seats.get(running.key)
        if seat is None:
            return
        now = self._clock()
        self._count(seat.gpu, now)
        del self._seats[running.key]
        seated_s = now - seat.since
        if outcome.is_success and use is not None and seated_s > 0:
            crowd = seat.crowd_s / seated_s
            # Not since it was seated: it may have waited for a warm worker to import.
            took_s = now - running.begun - running.paused_s
            self._learn(seat, lambda known: known.learn(use, took_s, crowd, self.rules))

    def withdraw(self, running: RunningAttempt) -> None:
        """Take back what was set aside for an attempt that never began."""
        seat = self._seats.get(running.key)
        if seat is not None:
            self._count(seat.gpu, self._clock())
            del self._seats[running.key]

    def _learn(self, seat: Seat, change: Callable[[Profile], Profile]) -> None:
        key = (seat.tenant.wish.kind, self._model(seat.gpu))
        known = self._profiles.pop(key, Profile())
        self._profiles[key] = changed = change(known)
        if changed != known:
            self._sharing_records.learn(*key, changed)
            self._sharing_records.forget_oldest(self._profiles)

    def judge_oom(
        self, running: RunningAttempt, failure: Failure, use: AttemptUse | None
    ) -> Verdict | None:
        """What becomes of a job that ran out of GPU memory; None if its GPU is not known."""
        seat = self._seats.get(running.key)
        keys = [key for slot in running.slots for key in slot.keys]
        models = self._models()
        if len(keys) != 1 or keys[0] not in models:
            return None
        total = models[keys[0]].total_bytes
        before = self.needs.get(_name_of(running), Need(ooms=0))
        shared = seat is not None and self._had_company(seat)
        verdict = judge_oom(
            Case(
                reserved_bytes=seat.tenant.reserved_bytes if seat else total,
                shared=shared,
                capped=seat is not None and seat.tenant.capped,
                total_bytes=total,
                largest_bytes=self._largest_for(running) or total,
                figures=failure.figures or OomFigures(),
                peak_bytes=use.mem_peak_bytes if use else None,
                others_bytes=self._held_by_others(running, keys[0], use),
                before=before.ooms,
            ),
            self.rules,
        )
        if seat is not None and (shared or seat.tenant.capped):
            self._trouble_at[seat.gpu] = self._clock()
            at_s = time.time()
            self._learn(seat, lambda known: known.suffer_oom(at_s, self.rules))
        self._heed(running, before, verdict)
        return verdict

    def judge_mute(self, running: RunningAttempt) -> Verdict | None:
        """What becomes of a job that failed without a word; None if it had its GPU to itself.

        It may have found no memory beside others. Alone it will show whether that was why.
        """
        seat = self._seats.get(running.key)
        before = self.needs.get(_name_of(running), Need(ooms=0))
        if seat is None or before.alone or not self._had_company(seat):
            return None
        verdict = Verdict(remedy=Remedy.ALONE, why=_MUTE)
        self._heed(running, before, verdict)
        return verdict

    def _heed(self, running: RunningAttempt, before: Need, verdict: Verdict) -> None:
        """Remember what a job needs that is tried again."""
        if not verdict.is_tried_again:
            return
        need = Need(
            ooms=before.ooms + 1,
            bytes=verdict.need_bytes or before.bytes,
            alone=before.alone or verdict.remedy is Remedy.ALONE,
            above_bytes=max(before.above_bytes, verdict.above_bytes),
        )
        self.needs[_name_of(running)] = need
        self._sharing_records.note_need(running.attempt.job, need)

    def _held_by_others(
        self, running: RunningAttempt, key: str, use: AttemptUse | None
    ) -> int | None:
        """What those have of a GPU who were not packed with an attempt; None if nobody can tell."""
        if use is not None and not use.alone:
            return None
        if any(
            place.current is not None and place.current is not running and key in place.slot.keys
            for place in self._slot_table.states
        ):
            return None
        look = self._look()
        seen = look.gpus.get(key) if look is not None else None
        if seen is None:
            return 0
        is_told = all(each.mem_bytes is not None for each in seen.foreigners)
        return seen.foreign_bytes if is_told else None

    def _had_company(self, seat: Seat) -> bool:
        now = self._clock()
        alone_s = now - seat.since
        crowd_s = seat.crowd_s + now - seat.counted_at
        others = any(each.gpu == seat.gpu and each is not seat for each in self._seats.values())
        return others or crowd_s > alone_s

    def review(self, now: float) -> None:
        """Mend the sums by what was seen: who needs less gives back, who took more gets more."""
        if not self._seats:
            return
        look = self._look()
        known = self._knowledge()
        for place in self._slot_table.states:
            if not self._is_shared(place):
                continue
            gpu = self._view(place, look, now)
            seats = self._seats_on(gpu.key)
            for seat, tenant in zip(seats, gpu.tenants, strict=True):
                self._change(seat, revise(tenant, gpu, known, self.rules))
            raised = raise_rooms(self._view(place, look, now), self.rules)
            for seat, tenant in zip(seats, gpu.tenants, strict=True):
                if tenant.used_bytes > seat.tenant.reserved_bytes and self._was_learned(seat):
                    seat.outgrew_at = now
                if seat.tenant.job in raised:
                    grown = msgspec.structs.replace(
                        seat.tenant, reserved_bytes=raised[seat.tenant.job]
                    )
                    self._change(seat, grown)

    def _was_learned(self, seat: Seat) -> bool:
        """Whether what is set aside for a job was meant to be enough for it."""
        return seat.tenant.wish.share.mode is Mode.AUTO

    def _change(self, seat: Seat, tenant: Tenant) -> None:
        before, seat.tenant = seat.tenant, tenant
        if _on_record(before) != _on_record(tenant):
            self._sharing_records.reserve(seat.running.attempt, _on_record(tenant))

    def seat_of(self, running: RunningAttempt) -> Seat | None:
        """Where a job sits, if it shares."""
        return self._seats.get(running.key)

    def view(self, place: SlotState) -> SharedGpu | None:
        """A GPU that is or can be shared, as it is now."""
        if not self.is_possible or not self._can_be_shared(place):
            return None
        return self._view(place, self._look(), self._clock())

    def explain(self, candidate: Candidate, place: SlotState) -> str | None:
        """Why a waiting job does not join those on a GPU; None if it could."""
        gpu = self.view(place)
        if gpu is None:
            return None
        owner = self.kept.get(gpu.key)
        if owner is not None and owner != candidate.id:
            return f"kept for job {owner}, which has waited long"
        return why_not(self.wish_of(candidate), gpu, self._knowledge(), self.rules)

    def _seats_on(self, gpu: str) -> list[Seat]:
        return [seat for seat in self._seats.values() if seat.gpu == gpu]

    def _view(self, place: SlotState, look: Look | None, now: float) -> SharedGpu:
        key = place.slot.keys[0]
        use = look.gpus.get(key) if look is not None else None
        blind = None
        if use is None or use.sight is not Sight.PROCESSES:
            blind = _UNSEEN
        elif use.sick is not None:
            blind = use.sick
        seats = self._seats_on(key)
        flat_s = self.rules.flat_s
        frozen = now - self._trouble_at.get(key, -_TROUBLE_S) < _TROUBLE_S or any(
            seat.outgrew_at is not None and now - seat.outgrew_at < flat_s for seat in seats
        )
        foreign = None
        if use is not None and use.foreigners:
            foreign = ", ".join(each.user or f"pid {each.pid}" for each in use.foreigners)
        return SharedGpu(
            key=key,
            label=place.slot.label,
            model=self._model(key),
            total_bytes=self._models()[key].total_bytes,
            used_bytes=use.used_bytes if use is not None else 0,
            driver_bytes=use.driver_bytes if use is not None else 0,
            foreign_bytes=use.foreign_bytes if use is not None else 0,
            foreign=foreign,
            blind=blind,
            releasing=use is not None and use.releasing,
            frozen=_OUTGREW if frozen else None,
            tenants=tuple(self._tenant(seat, look) for seat in seats),
        )

    def _tenant(self, seat: Seat, look: Look | None) -> Tenant:
        seen = look.jobs.get(seat.running.key) if look is not None else None
        used = (seen.mem_bytes or {}).get(seat.gpu, 0) if seen is not None else 0
        profile = self._profiles.get((seat.tenant.wish.kind, self._model(seat.gpu)), Profile())
        load = profile.sm_load
        if load is None and seen is not None:
            load = seen.so_far.load
        sm = self.rules.unknown_sm if load is None else load
        by_free_memory = seat.tenant.wish.share.mode is Mode.FREE
        shown_s = _SHOWN_FREE_S if by_free_memory else _SHOWN_S
        fresh = not used and (seen is None or seen.watched_s < shown_s)
        brief = profile.is_brief(self.rules)
        return msgspec.structs.replace(
            seat.tenant, used_bytes=used, sm=sm, brief=brief, fresh=fresh
        )

    def _knowledge(self) -> Knowledge:
        look = self._look()
        probes: dict[tuple[str, str], JobUse] = {}
        for seat in self._seats.values():
            seen = look.jobs.get(seat.running.key) if look is not None else None
            key = (seat.tenant.wish.kind, self._model(seat.gpu))
            if seen is not None and (key not in probes or probes[key].watched_s < seen.watched_s):
                probes[key] = seen
        return Knowledge(
            profiles=self._profiles,
            probes=probes,
            host_free=read_free_ram(),
            now_s=self._clock(),
            day_s=time.time(),
        )

    def _model(self, key: str) -> str:
        found = self._models().get(key)
        return found.name if found is not None else ""


def _on_record(tenant: Tenant) -> Reserved:
    return Reserved(tenant.reserved_bytes, tenant.cold, tenant.capped)


def _name_of(running: RunningAttempt) -> int:
    """What a plan calls a job: a stored one by its id, a line by the number it was read as."""
    candidate = running.entry.candidate
    return running.attempt.job if candidate is None else candidate.id


def read_free_ram() -> float | None:
    """The share of the machine's RAM that is free; None if it does not tell."""
    try:
        with open(_MEMINFO, encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, KeyError, ValueError):
        return None


def _goes_by_free_memory(candidate: Candidate) -> bool:
    """Whether a job starts only where enough memory is free; not if its user forces the start."""
    return candidate.share == Mode.FREE.value and candidate.priority != FORCED


def _share_of(candidate: Candidate) -> Share:
    """How a job shares its GPU; one that goes by free memory and is forced joins whoever is there."""
    if candidate.share is None:
        return NEVER
    share = parse_share(candidate.share)
    forced = share.mode is Mode.FREE and candidate.priority == FORCED
    return msgspec.structs.replace(share, forced=True) if forced else share
