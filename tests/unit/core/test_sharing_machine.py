"""Whatever comes, grows, ends, crashes or restarts: no GPU is promised beyond what it has."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stoker.core.failure import OomFigures
from stoker.core.sharing.overrun import Case, Remedy, judge_oom, raise_reservations
from stoker.core.sharing.packing import Knowledge, pack, revise, tenant_of
from stoker.core.sharing.profile import Profile
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.reservation import Probe
from stoker.core.sharing.rules import Share, SharingRules, parse_share
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.usage import AttemptUse, JobUse

GIB = 1 << 30
RULES = SharingRules()
KINDS = ("a", "b", "c")
SHARES = [parse_share(text) for text in ("auto", "auto", "never", "always:3")]


class Packed(RuleBasedStateMachine):
    """GPUs whose tenants lie about their needs; what was promised is on record, the rest is forgotten."""

    @initialize(
        sizes=st.lists(st.integers(2, 80), min_size=1, max_size=3),
        foreign=st.integers(0, 4),
        driver=st.floats(0, 0.5),
    )
    def begin(self, sizes: list[int], foreign: int, driver: float) -> None:
        self.now = 0.0
        self.jobs = 0
        self.waiting: list[ShareRequest] = []
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.gpus = {
            str(n): SharedGpu(
                key=str(n),
                label=str(n),
                model="M",
                total_bytes=size * GIB,
                driver_bytes=int(driver * GIB),
                foreign_bytes=min(foreign, size // 2) * GIB,
            )
            for n, size in enumerate(sizes)
        }

    def known(self) -> Knowledge:
        probes = {
            (each.request.kind, "M"): Probe(
                JobUse(
                    key="",
                    watched_s=200,
                    flat_s=70,
                    so_far=AttemptUse(mem_peak_bytes=each.used_bytes),
                )
            )
            for gpu in self.gpus.values()
            for each in gpu.tenants
        }
        return Knowledge(profiles=self.profiles, probes=probes, now_s=self.now, day_s=self.now)

    def replace(self, gpu: SharedGpu, tenants: list[Tenant]) -> None:
        used = sum(tenant.used_bytes for tenant in tenants) + gpu.foreign_bytes
        self.gpus[gpu.key] = msgspec.structs.replace(gpu, tenants=tuple(tenants), used_bytes=used)

    @rule(
        kind=st.sampled_from(KINDS),
        share=st.sampled_from(SHARES),
        declared=st.none() | st.integers(1, 30),
        count=st.integers(1, 6),
    )
    def arrive(self, kind: str, share: Share, declared: int | None, count: int) -> None:
        for _ in range(count):
            self.jobs += 1
            size = None if declared is None else declared * GIB
            request = ShareRequest(
                job=self.jobs, kind=kind, share=share, declared_bytes=size, since_s=self.now
            )
            self.waiting.append(request)

    @rule(passed=st.floats(0, 500))
    def start(self, passed: float) -> None:
        self.now += passed
        known = self.known()
        made = pack(self.waiting, self.gpus.values(), known, RULES)
        requests = {request.job: request for request in self.waiting}
        for joining in made.joinings:
            gpu, request = self.gpus[joining.gpu], requests.pop(joining.job)
            tenant = tenant_of(request, gpu, joining.reservation, known, RULES)
            self.replace(gpu, [*gpu.tenants, tenant])
        self.waiting = list(requests.values())

    @rule(data=st.data(), amount=st.integers(0, 20 * 1024))
    def grow(self, data: st.DataObject, amount: int) -> None:
        """One takes more, as far as the GPU has it; else it runs out, and is tried otherwise."""
        gpu, tenant = self.pick(data)
        if tenant is None:
            return
        more = amount << 20
        others = [each for each in gpu.tenants if each is not tenant]
        if gpu.used_bytes + more > gpu.total_bytes:
            case = Case(
                reserved_bytes=tenant.reserved_bytes,
                shared=bool(others),
                total_bytes=gpu.total_bytes,
                largest_bytes=max(each.total_bytes for each in self.gpus.values()),
                figures=OomFigures(tried_bytes=more, own_bytes=tenant.used_bytes),
                before=int(tenant.request.need_bytes is not None),
            )
            verdict = judge_oom(case, RULES)
            self.replace(gpu, others)
            if verdict.remedy is not Remedy.FAIL:
                again = msgspec.structs.replace(
                    tenant.request,
                    need_bytes=verdict.need_bytes or tenant.request.need_bytes,
                    alone=verdict.remedy is Remedy.ALONE,
                    above_bytes=verdict.above_bytes,
                )
                self.waiting.insert(0, again)
            return
        used = tenant.used_bytes + more
        self.replace(gpu, [*others, msgspec.structs.replace(tenant, used_bytes=used)])
        self.mend(gpu.key)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        gpu, tenant = self.pick(data)
        if tenant is None:
            return
        self.replace(gpu, [each for each in gpu.tenants if each is not tenant])
        use = AttemptUse(mem_peak_bytes=max(1, tenant.used_bytes), alone=len(gpu.tenants) == 1)
        key = (tenant.request.kind, "M")
        profile = self.profiles.get(key, Profile())
        self.profiles[key] = profile.learn(use, 60.0, len(gpu.tenants), RULES)
        for each in self.gpus:
            self.mend(each)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        gpu, tenant = self.pick(data)
        if tenant is not None:
            self.replace(gpu, [each for each in gpu.tenants if each is not tenant])

    @rule()
    def restart(self) -> None:
        """Only what is on record comes back: what is set aside for whom. What they use is seen again."""
        for gpu in list(self.gpus.values()):
            back = [
                Tenant(
                    request=each.request,
                    reserved_bytes=each.reserved_bytes,
                    used_bytes=each.used_bytes,
                    cold=each.cold,
                    most=each.most,
                )
                for each in gpu.tenants
            ]
            self.replace(gpu, back)

    def pick(self, data: st.DataObject) -> tuple[SharedGpu, Tenant | None]:
        gpu = self.gpus[data.draw(st.sampled_from(sorted(self.gpus)))]
        return gpu, data.draw(st.sampled_from(gpu.tenants)) if gpu.tenants else None

    def mend(self, key: str) -> None:
        gpu = self.gpus[key]
        self.replace(gpu, [revise(each, gpu, self.known(), RULES) for each in gpu.tenants])
        gpu = self.gpus[key]
        raised = raise_reservations(gpu, RULES)
        self.replace(
            gpu,
            [
                msgspec.structs.replace(
                    each, reserved_bytes=raised.get(each.job, each.reserved_bytes)
                )
                for each in gpu.tenants
            ],
        )

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        for gpu in getattr(self, "gpus", {}).values():
            margin = RULES.margin_of(gpu.total_bytes)
            others = gpu.driver_bytes + gpu.foreign_bytes
            assert gpu.reserved_bytes + others + margin <= gpu.total_bytes or len(gpu.tenants) <= 1

    @invariant()
    def strangers_are_alone(self) -> None:
        for gpu in getattr(self, "gpus", {}).values():
            cold = [each for each in gpu.tenants if each.cold]
            assert not cold or len(gpu.tenants) == 1


Packed.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPacked = Packed.TestCase
