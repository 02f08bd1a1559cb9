"""Simulation of jobs on GPUs with a simulated clock: speed, memory, admission."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stoker.core.failure import OomFigures
from stoker.core.sharing.overrun import Case, Remedy, judge_oom, raise_reservations
from stoker.core.sharing.packing import Knowledge, Packing, pack, revise, sm_of, tenant_of
from stoker.core.sharing.parameters import sizes_of
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.reservation import Probe, Source
from stoker.core.sharing.rules import AUTO, Share, SharingRules
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.usage import AttemptUse, JobUse
from stoker.simulator.workload import Machine, Work

_MODEL = "simulated"
# Overhead of each further job on a GPU beside its load: switching between contexts.
_SWITCHING = 0.02
_SETTLED = 1e-9
_NOTHING: Mapping[str, Profile] = {}


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A policy: its rules, the jobs' sharing mode, and whether everything is known beforehand."""

    name: str
    rules: SharingRules = SharingRules()
    share: Share = AUTO
    omniscient: bool = False
    by_parameter: bool = True  # memory is learned by parameter, not as one number for a kind
    recovers: bool = True  # a job that runs out of memory beside others is retried
    pace_s: float = 0.0  # time between two starts


class SimulatedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a simulation."""

    makespan_s: float
    jobs: int
    ooms: int  # jobs that ran out of memory beside others
    lost: int  # jobs that never succeeded
    learned: int = 0  # starts with a reservation that was learned
    too_small: int = 0  # those of them that needed more
    predicted: int = 0  # starts with a learned reservation, of sizes that no run had had before
    underestimated: int = 0  # those of them that needed more
    mean_tenants: float


class Span(msgspec.Struct, frozen=True):
    """A simulated run from its start to its end: the number of its work, and the GPU."""

    number: int
    gpu: str
    start_s: float
    end_s: float


class _Run:
    """A running job on a GPU."""

    def __init__(self, number: int, work: Work, tenant: Tenant, now: float) -> None:
        self.number = number
        self.work = work
        self.tenant = tenant
        self.begun = now
        self.done_s = 0.0
        self.rate = 1.0
        self.step = 0
        self.grew_at = now
        self.outgrew_at = -1e9
        self.was_alone = True
        self.tenant_seconds = 0.0

    @property
    def held_bytes(self) -> int:
        """Memory that it holds now."""
        return self.work.memory[self.step][1]

    def next_step_s(self) -> float | None:
        """Return the seconds of work left until its memory grows again; None if it does not."""
        if self.step + 1 == len(self.work.memory):
            return None
        return self.work.memory[self.step + 1][0] * self.work.duration_s - self.done_s


class Simulation:
    """Runs works under a policy, from the first arrival to the last end.

    `known` has profiles of kinds that were learned before.
    """

    def __init__(
        self,
        works: list[Work],
        machine: Machine,
        contender: Contender,
        known: Mapping[str, Profile] = _NOTHING,
    ) -> None:
        self._works = works
        self._machine = machine
        self._rules = contender.rules
        self._contender = contender
        self._now = 0.0
        self._runs: dict[str, list[_Run]] = {str(n): [] for n in range(machine.gpus)}
        self._waiting: list[ShareRequest] = []
        self._next_arrival = 0
        self._profiles = {(kind, _MODEL): profile for kind, profile in known.items()}
        self._failures: dict[int, int] = {}
        self._ooms = 0
        self._lost = self._learned = self._too_small = 0
        self._predicted = self._underestimated = 0
        self._may_start_at = 0.0
        self._wake_at: set[float] = set()
        self.spans: list[Span] = []  # of the runs that have succeeded
        self._tenant_seconds = self._busy_seconds = 0.0

    def run(self) -> SimulatedOutcome:
        """Simulate until all work has ended."""
        last_end = 0.0
        while self._next_arrival < len(self._works) or self._waiting or any(self._runs.values()):
            self._advance(self._next_event())
            last_end = max(last_end, self._finish_and_grow())
            self._arrive()
            self._fill()
        return SimulatedOutcome(
            makespan_s=last_end,
            jobs=len(self._works),
            ooms=self._ooms,
            lost=self._lost,
            learned=self._learned,
            too_small=self._too_small,
            predicted=self._predicted,
            underestimated=self._underestimated,
            mean_tenants=self._tenant_seconds / max(1e-9, self._busy_seconds),
        )

    def _next_event(self) -> float:
        times = [at for at in self._wake_at if at > self._now + _SETTLED]
        self._wake_at = set(times)
        if self._next_arrival < len(self._works):
            times.append(max(self._now, self._works[self._next_arrival].arrival_s))
        for run in self._all():
            left_s = run.work.duration_s - run.done_s
            step_s = run.next_step_s()
            ahead_s = left_s if step_s is None else min(left_s, step_s)
            times.append(self._now + max(0.0, ahead_s) / run.rate)
        return min(times)

    def _all(self) -> list[_Run]:
        return [run for runs in self._runs.values() for run in runs]

    def _advance(self, to: float) -> None:
        passed = to - self._now
        for runs in self._runs.values():
            self._tenant_seconds += len(runs) * passed
            self._busy_seconds += passed if runs else 0.0
            for run in runs:
                run.done_s += passed * run.rate
                run.tenant_seconds += len(runs) * passed
                run.was_alone = run.was_alone and len(runs) == 1
        self._now = to

    def _finish_and_grow(self) -> float:
        """End and grow the jobs that are due. Returns when the last of them ended, else 0."""
        last_end = 0.0
        for key, runs in self._runs.items():
            for run in list(runs):
                if run.done_s >= run.work.duration_s - _SETTLED * run.work.duration_s:
                    runs.remove(run)
                    self.spans.append(Span(run.number, key, run.begun, self._now))
                    self._learn(run)
                    last_end = self._now
                    continue
                step_s = run.next_step_s()
                if step_s is not None and step_s <= _SETTLED * run.work.duration_s:
                    self._grow(key, run)
        self._revise()
        self._set_rates()
        return last_end

    def _grow(self, key: str, run: _Run) -> None:
        runs = self._runs[key]
        wanted = run.work.memory[run.step + 1][1]
        others = sum(other.held_bytes for other in runs if other is not run)
        over_cap = run.tenant.capped and wanted > run.tenant.reserved_bytes
        if over_cap or wanted + others > self._machine.mem_bytes:
            self._run_out(key, run, wanted)
            return
        run.step += 1
        run.grew_at = self._now
        if run.held_bytes > run.tenant.reserved_bytes:
            run.outgrew_at = self._now
        self._wake(self._rules.flat_s)
        self._wake(self._rules.ramp_flat_s)

    def _run_out(self, key: str, run: _Run, wanted: int) -> None:
        """Handle a job that found no memory: it waits again as the policy says, or is lost."""
        self._runs[key].remove(run)
        shared = len(self._runs[key]) > 0
        self._ooms += shared
        request = run.tenant.request
        before = self._failures.get(run.number, 0)
        self._failures[run.number] = before + 1
        total = self._machine.mem_bytes
        case = Case(
            reserved_bytes=run.tenant.reserved_bytes,
            shared=shared,
            capped=run.tenant.capped,
            total_bytes=total,
            largest_bytes=total,
            figures=OomFigures(tried_bytes=wanted - run.held_bytes, own_bytes=run.held_bytes),
            before=before,
        )
        verdict = judge_oom(case, self._rules)
        if not self._contender.recovers or verdict.remedy in (Remedy.FAIL, Remedy.LARGER):
            self._lost += 1
            return
        key_of = (request.kind, _MODEL)
        if not run.tenant.trial:
            known = self._profiles.get(key_of, Profile())
            self._profiles[key_of] = known.suffer_oom(self._now, self._rules)
        again = msgspec.structs.replace(
            request, need_bytes=verdict.need_bytes, alone=verdict.remedy is Remedy.ALONE
        )
        self._waiting.insert(0, again)

    def _learn(self, run: _Run) -> None:
        if self._contender.omniscient:
            return
        took_s = self._now - run.begun
        use = AttemptUse(
            mem_peak_bytes=run.work.peak_bytes,
            sm_mean_pct=run.work.sm * 100,
            alone=run.was_alone,
            samples=max(1, int(took_s)),  # one per second
        )
        key = (run.work.kind, _MODEL)
        tenants = run.tenant_seconds / took_s
        known = self._profiles.get(key, Profile())
        params = run.work.params if self._contender.by_parameter else ()
        self._profiles[key] = known.learn(use, took_s, tenants, self._rules, params)

    def _arrive(self) -> None:
        while (
            self._next_arrival < len(self._works)
            and self._works[self._next_arrival].arrival_s <= self._now
        ):
            number, work = self._next_arrival, self._works[self._next_arrival]
            self._next_arrival += 1
            kind, declared = work.kind, work.declared_bytes
            if self._contender.omniscient:
                kind, declared = f"{kind} {number}", work.peak_bytes
                self._profiles[kind, _MODEL] = Profile(sm=(work.sm,))
            self._waiting.append(
                ShareRequest(
                    job=number,
                    kind=kind,
                    params=work.params if self._contender.by_parameter else (),
                    can_be_capped=work.can_be_capped,
                    share=work.share or self._contender.share,
                    declared_bytes=declared,
                    since_s=self._now,
                )
            )

    def _fill(self) -> None:
        if not self._waiting or self._now < self._may_start_at:
            return
        requests = self._waiting
        known = self._knowledge()
        gpus = [self._view(key) for key in self._runs]
        if self._contender.pace_s:
            packing = self._first_of(requests, gpus, known)
        else:
            packing = pack(requests, gpus, known, self._rules)
        started = {joining.job for joining in packing.joinings}
        by_number = {request.job: request for request in requests if request.job in started}
        for joining in packing.joinings:
            request = by_number[joining.job]
            gpu = self._view(joining.gpu)
            tenant = tenant_of(request, gpu, joining.reservation, known, self._rules)
            capped = request.can_be_capped and joining.reservation.can_be_capped
            tenant = msgspec.structs.replace(tenant, capped=capped)
            run = _Run(request.job, self._works[request.job], tenant, self._now)
            self._runs[joining.gpu].append(run)
            if joining.reservation.source is Source.LEARNED:
                self._judge_learned(run.work, joining.reservation.bytes)
            if tenant.cold:
                self._wake(self._rules.probe_s)
            self._wake(self._rules.ramp_flat_s)
        if started:
            self._waiting = [request for request in self._waiting if request.job not in started]
            self._set_rates()

    def _judge_learned(self, work: Work, reserved_bytes: int) -> None:
        """Count a start with a learned reservation, and whether the run will need more."""
        is_too_small = work.peak_bytes > reserved_bytes
        self._learned += 1
        self._too_small += is_too_small
        points = self._profiles[work.kind, _MODEL].points
        if sizes_of(work.params) not in {sizes_of(point.params) for point in points}:
            self._predicted += 1
            self._underestimated += is_too_small

    def _first_of(
        self, requests: list[ShareRequest], gpus: list[SharedGpu], known: Knowledge
    ) -> Packing:
        """Start one job at a time, as a program that polls the GPUs does."""
        for gpu in gpus:
            made = pack(requests[:1], [gpu], known, self._rules)
            if made.joinings:
                self._may_start_at = self._now + self._contender.pace_s
                self._wake(self._contender.pace_s)
                return made
        return Packing((), {})

    def _knowledge(self) -> Knowledge:
        probes: dict[tuple[str, str], Probe] = {}
        for run in self._all():
            key = (run.work.kind, _MODEL)
            use = self._use_of(run)
            if key not in probes or probes[key].use.watched_s < use.watched_s:
                probes[key] = Probe(use, run.tenant.request.params)
        return Knowledge(profiles=self._profiles, probes=probes, now_s=self._now, day_s=self._now)

    def _use_of(self, run: _Run) -> JobUse:
        return JobUse(
            key=str(run.number),
            watched_s=self._now - run.begun,
            flat_s=self._now - run.grew_at,
            sm_pct=run.work.sm * 100 if run.step or len(run.work.memory) == 1 else 0.0,
            so_far=AttemptUse(mem_peak_bytes=run.held_bytes, sm_mean_pct=run.work.sm * 100),
        )

    def _view(self, key: str) -> SharedGpu:
        runs = self._runs[key]
        frozen = any(self._now - run.outgrew_at < self._rules.flat_s for run in runs)
        return SharedGpu(
            key=key,
            label=key,
            model=_MODEL,
            total_bytes=self._machine.mem_bytes,
            used_bytes=sum(run.held_bytes for run in runs),
            frozen="a job there needs more than expected" if frozen else None,
            tenants=tuple(
                msgspec.structs.replace(
                    run.tenant,
                    used_bytes=run.held_bytes,
                    fresh=False,
                    settled=self._use_of(run).has_settled(self._rules.ramp_flat_s),
                )
                for run in runs
            ),
        )

    def _revise(self) -> None:
        """Update the reservations with what is known by now."""
        known = self._knowledge()
        for key, runs in self._runs.items():
            gpu = self._view(key)
            for run, tenant in zip(runs, gpu.tenants, strict=True):
                run.tenant = revise(tenant, gpu, known, self._rules)
                profile = known.profile(run.tenant.request.kind, _MODEL)
                run.tenant = msgspec.structs.replace(
                    run.tenant,
                    sm=sm_of(profile, self._rules),
                    brief=profile.is_brief(self._rules),
                )
            raised = raise_reservations(self._view(key), self._rules)
            for run in runs:
                if run.number in raised:
                    run.tenant = msgspec.structs.replace(
                        run.tenant, reserved_bytes=raised[run.number]
                    )

    def _set_rates(self) -> None:
        for runs in self._runs.values():
            load = max(1.0, sum(run.work.sm for run in runs))
            for run in runs:
                run.rate = 1.0 / (load * (1.0 + _SWITCHING * (len(runs) - 1)))

    def _wake(self, after_s: float) -> None:
        self._wake_at.add(self._now + after_s)
