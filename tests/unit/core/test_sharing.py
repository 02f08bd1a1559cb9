"""What is set aside for a job, and who is let in beside whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stoker.core.host_room import HostNeed, HostPlan, HostRoom, HostRooms
from stoker.core.sharing.packing import Knowledge, pack, revise, why_not
from stoker.core.sharing.parameters import mask
from stoker.core.sharing.profile import Point, Profile
from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.reservation import Probe, Source, reservation_for
from stoker.core.sharing.rules import (
    AUTO,
    NEVER,
    Mode,
    Share,
    SharingRules,
    gpulimit_rules,
    parse_share,
)
from stoker.core.sharing.shared_gpu import SharedGpu, Tenant
from stoker.core.usage import AttemptUse, JobUse

GIB = 1 << 30
RULES = SharingRules()
KNOWN = Profile(peaks=(5 * GIB,) * 3, sm=(0.2,))


def gpu(*tenants: Tenant, **facts: Any) -> SharedGpu:
    used = sum(tenant.used_bytes for tenant in tenants)
    given = {"key": "A", "label": "0", "model": "M", "total_bytes": 24 * GIB, "used_bytes": used}
    return SharedGpu(**{**given, **facts}, tenants=tenants)


def tenant(job: int, reserved: float, used: float = 0.0, **facts: Any) -> Tenant:
    return Tenant(
        request=ShareRequest(job=job, kind="k"),
        reserved_bytes=int(reserved * GIB),
        used_bytes=int(used * GIB),
        **facts,
    )


def knowledge(profile: Profile = KNOWN, **facts: Any) -> Knowledge:
    return Knowledge(profiles={("k", "M"): profile}, probes={}, **facts)


def room(
    request: ShareRequest, profile: Profile, probe: JobUse | None = None
) -> tuple[float, Source]:
    running = None if probe is None else Probe(probe)
    found = reservation_for(request, gpu(), profile, running, RULES, day_s=1000.0)
    return round(found.bytes / GIB, 2), found.source


def test_declared_memory_is_reserved_whatever_was_learned() -> None:
    request = ShareRequest(job=1, kind="k", declared_bytes=3 * GIB)
    assert room(request, KNOWN) == (3.0, Source.DECLARED)


def test_three_finished_runs_determine_the_reservation() -> None:
    request = ShareRequest(job=1, kind="k")
    assert room(request, Profile(peaks=(4 * GIB, 5 * GIB, 3 * GIB))) == (5.5, Source.LEARNED)


def test_one_or_two_runs_give_a_larger_reservation() -> None:
    request = ShareRequest(job=1, kind="k")
    assert room(request, Profile(peaks=(4 * GIB,))) == (5.4, Source.LEARNED)


@pytest.mark.parametrize(
    ("watched_s", "flat_s", "knows"), [(120, 60, 1), (119, 60, 0), (500, 59, 0)]
)
def test_a_running_job_that_no_longer_grows_determines_the_reservation(
    watched_s: float, flat_s: float, knows: int
) -> None:
    seen = AttemptUse(mem_peak_bytes=4 * GIB)
    probe = JobUse(key="1.1", watched_s=watched_s, flat_s=flat_s, so_far=seen)
    found = room(ShareRequest(job=1, kind="k"), Profile(), probe)
    assert found == ((6.2, Source.PROBE) if knows else (23.28, Source.WHOLE))


def test_an_unknown_kind_gets_the_whole_gpu() -> None:
    assert room(ShareRequest(job=1, kind="k"), Profile()) == (23.28, Source.WHOLE)


def test_a_job_that_does_not_share_gets_the_whole_gpu() -> None:
    assert room(ShareRequest(job=1, kind="k", share=NEVER), KNOWN) == (23.28, Source.WHOLE)


def test_a_job_that_ran_out_of_memory_gets_the_memory_it_needs() -> None:
    assert room(ShareRequest(job=1, kind="k", need_bytes=7 * GIB), KNOWN) == (7.0, Source.NEEDED)


def test_two_failures_of_a_kind_within_ten_minutes_make_it_run_alone() -> None:
    once = KNOWN.suffer_oom(400.0, RULES)
    assert room(ShareRequest(job=1, kind="k"), once)[1] is Source.LEARNED
    assert room(ShareRequest(job=1, kind="k"), once.suffer_oom(900.0, RULES))[1] is Source.WHOLE
    assert room(ShareRequest(job=1, kind="k"), once.suffer_oom(1001.0, RULES))[1] is Source.LEARNED


def test_a_kind_runs_alone_for_an_hour_also_if_the_clock_was_set_back() -> None:
    twice = KNOWN.suffer_oom(400.0, RULES).suffer_oom(900.0, RULES)
    assert twice.is_exclusive(400.0 + 3600)
    assert not twice.is_exclusive(900.0 + 3601)
    assert not twice.is_exclusive(-9000.0)


def test_always_divides_a_gpu_into_equal_parts() -> None:
    request = ShareRequest(job=1, kind="k", share=Share(Mode.ALWAYS, 4))
    assert room(request, Profile()) == (5.82, Source.EQUAL)


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (gpu(tenant(7, 20.0)), "20.0 GiB of 23.3 GiB are set aside for 1 there"),
        (gpu(tenant(7, 5.0, 5.0), used_bytes=19 * GIB), "of 5.0 GiB free 0.0 GiB are promised"),
        (gpu(tenant(7, 16.0), driver_bytes=2 * GIB), "16.0 GiB of 21.3 GiB are set aside"),
        (
            gpu(tenant(7, 5.0, 5.0), used_bytes=17 * GIB, driver_bytes=GIB),
            "of 6.0 GiB free 0.0 GiB are promised",
        ),
        (gpu(tenant(7, 5.0, sm=1.15)), "it keeps 20% of a GPU busy and the jobs there 115%"),
        (gpu(tenant(7, 23.0, cold=True)), "job 7 has the whole GPU"),
        (gpu(tenant(7, 5.0), foreign="ada"), "not shared while ada computes there"),
        (gpu(tenant(7, 5.0), releasing=True), "not released yet"),
        (gpu(tenant(7, 5.0), frozen="a job outgrew"), "a job outgrew"),
        (gpu(tenant(7, 5.0), blind="the driver hides it"), "the driver hides it"),
        (gpu(*(tenant(n, 0.1) for n in range(16))), "has 16 jobs, and 16 is the limit"),
        (gpu(tenant(7, 5.0, most=1)), "has 1 job, and 1 is the limit"),
    ],
)
def test_every_refusal_gives_its_reason(there: SharedGpu, says: str) -> None:
    found = why_not(ShareRequest(job=9, kind="k"), there, knowledge(), RULES)
    assert found is not None
    assert says in found


def test_too_little_ram_keeps_jobs_from_joining() -> None:
    found = why_not(
        ShareRequest(job=9, kind="k"), gpu(tenant(7, 5.0)), knowledge(host_free=0.04), RULES
    )
    assert found == "4% of the RAM is free; 5% must stay free"


def test_on_an_idle_gpu_every_job_starts_that_fits() -> None:
    idle = gpu(foreign="ada", foreign_bytes=GIB)
    assert why_not(ShareRequest(job=9, kind="k"), idle, knowledge(Profile()), RULES) is None
    large = ShareRequest(job=9, kind="k", above_bytes=24 * GIB)
    assert why_not(large, idle, knowledge(), RULES) == "too small: it needs more than 24.0 GiB"


def test_the_first_runs_go_one_to_a_gpu_and_then_four_share_each() -> None:
    machine = [gpu(key=key) for key in "ABCD"]
    requests = [ShareRequest(job=n, kind="k") for n in range(40)]
    first = pack(requests, machine, knowledge(Profile()), RULES)
    assert sorted(joining.gpu for joining in first.joinings) == list("ABCD")
    later = pack(requests, machine, knowledge(), RULES)
    assert sorted(joining.gpu for joining in later.joinings) == sorted("ABCD" * 4)


def test_a_job_joins_the_least_busy_gpu() -> None:
    machine = [gpu(tenant(1, 5.0, sm=0.5), key="A"), gpu(tenant(2, 9.0, sm=0.1), key="B")]
    made = pack([ShareRequest(job=9, kind="k")], machine, knowledge(), RULES)
    assert [joining.gpu for joining in made.joinings] == ["B"]


def test_short_runs_share_more_tightly_among_themselves() -> None:
    brief = Profile(peaks=(GIB,) * 3, sm=(0.7,), alone_s=(3.0,))
    requests = [ShareRequest(job=number, kind="k") for number in range(16)]

    made = pack(requests, [gpu()], knowledge(brief), RULES)
    assert len(made.joinings) == 5  # 70% each, and 400% is the most

    lasting = gpu(tenant(99, 1, 1, sm=0.7))
    says = why_not(requests[0], lasting, knowledge(brief), RULES)
    assert says is not None
    assert "together more than 130%" in says


def test_a_run_that_was_over_before_it_held_memory_teaches_nothing() -> None:
    glimpsed = AttemptUse(mem_peak_bytes=0, samples=1)
    assert Profile().learn(glimpsed, 1.0, 1.0, RULES) == Profile()
    watched = AttemptUse(mem_peak_bytes=0, samples=60)
    assert Profile().learn(watched, 60.0, 1.0, RULES).finished == 1


def test_a_gpu_is_kept_for_a_job_that_has_waited_long() -> None:
    machine = [gpu(tenant(1, 5.0), key="A"), gpu(tenant(2, 5.0), tenant(3, 5.0), key="B")]
    whole = ShareRequest(job=8, kind="big", share=NEVER, since_s=0.0)
    small = [ShareRequest(job=n, kind="k", since_s=0.0) for n in (10, 11, 12, 13)]
    soon = pack([whole, *small], machine, knowledge(now_s=30.0), RULES)
    assert {joining.gpu for joining in soon.joinings} == {"A", "B"}
    assert not soon.kept
    later = pack([whole, *small], machine, knowledge(now_s=60.0), RULES)
    assert later.kept["A"] == 8
    assert {joining.gpu for joining in later.joinings} == {"B"}


def test_no_gpu_is_kept_for_an_unknown_kind_while_a_probe_runs() -> None:
    probe = Tenant(request=ShareRequest(job=1, kind="new"), reserved_bytes=23 * GIB, cold=True)
    machine = [gpu(probe, key="A"), gpu(tenant(2, 5.0), key="B")]
    made = pack([ShareRequest(job=8, kind="new")], machine, knowledge(now_s=900.0), RULES)
    assert not made.kept


def test_a_tenant_gives_back_memory_that_it_does_not_need() -> None:
    cold = tenant(7, 23.2, 5.0, cold=True)
    kept = revise(cold, gpu(cold), knowledge(), RULES)
    assert (kept.reserved_bytes, kept.cold) == (int(5.5 * GIB), False)
    assert revise(cold, gpu(cold), knowledge(Profile()), RULES) is cold


def test_sharing_without_speedup_is_given_up() -> None:
    alone, beside = AttemptUse(mem_peak_bytes=GIB), AttemptUse(mem_peak_bytes=GIB, alone=False)
    profile = Profile()
    for _ in range(3):
        profile = profile.learn(alone, 100.0, 1.0, RULES)
    gaining = profile
    for _ in range(3):
        gaining = gaining.learn(beside, 120.0, 3.0, RULES)
        profile = profile.learn(beside, 290.0, 3.0, RULES)
    assert gaining.most is None
    assert profile.most == 2
    assert why_not(
        ShareRequest(job=1, kind="k"), gpu(tenant(1, 2), tenant(2, 2)), knowledge(profile), RULES
    )


def test_gpulimits_thresholds_are_settings_of_the_same_rule() -> None:
    rules = gpulimit_rules(0.5, 0.2, most=64)
    assert (
        why_not(ShareRequest(job=9, kind="k"), gpu(tenant(7, 0, 11.0)), knowledge(Profile()), rules)
        is None
    )
    found = why_not(
        ShareRequest(job=9, kind="k"), gpu(tenant(7, 0, 13.0)), knowledge(Profile()), rules
    )
    assert found == "46% of its memory is free; 50% must stay free"
    low = why_not(ShareRequest(job=9, kind="k"), gpu(tenant(7, 0)), knowledge(host_free=0.1), rules)
    assert low == "10% of the RAM is free; 20% must stay free"


def test_a_template_is_a_command_without_its_varying_parts() -> None:
    one = mask(
        ["python", "t.py", "--lr", "1e-3", "--out", "/r/lr=1,s-0a1b2c3d"], "/r/lr=1,s-0a1b2c3d"
    )
    two = mask(
        ["python", "t.py", "--lr", "0.05", "--out", "/r/lr=2,s-99ffab10"], "/r/lr=2,s-99ffab10"
    )
    assert one.text == two.text == "python t.py --lr # --out @"
    assert (one.params, two.params) == ((("lr", 1e-3),), (("lr", 0.05),))
    assert mask(["t", "--model", "vgg"]) != mask(["t", "--model", "vit"])


def test_runs_that_carry_their_number_in_a_name_are_of_one_kind() -> None:
    assert mask(["t", "--out", "run3", "20240101T1200"]).text == "t --out run# #T#"


@pytest.mark.parametrize("text", ["auto", "never", "free", "always:4"])
def test_a_way_to_share_is_read_as_it_is_written(text: str) -> None:
    assert parse_share(text).text == text


@pytest.mark.parametrize(
    "text", ["", "yes", "always", "always:0", "always:65", "always:x", "auto:2"]
)
def test_what_is_no_way_to_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="auto, never, free or always:N"):
        parse_share(text)


def test_auto_is_the_default_mode() -> None:
    assert ShareRequest(job=1, kind="k").share is AUTO


def sized(job: int, bs: int, **facts: Any) -> ShareRequest:
    return ShareRequest(job=job, kind="k", params=(("bs", float(bs)),), **facts)


def taught(*peaks: tuple[int, float]) -> Profile:
    points = tuple(Point((("bs", float(bs)),), int(gib * GIB)) for bs, gib in peaks)
    return Profile(peaks=tuple(each.peak_bytes for each in points), points=points, sm=(0.2,))


def test_memory_is_reserved_by_parameter() -> None:
    profile = taught((8, 1.0), (16, 1.5), (32, 2.5), (64, 4.5))
    found = reservation_for(sized(1, 32), gpu(), profile, None, RULES, day_s=0.0)
    assert found.source is Source.LEARNED
    assert found.because == "2.5 GiB for bs=32, from 1 run"
    assert found.bytes == int(2.5 * GIB * RULES.few_factor)
    between = reservation_for(sized(1, 48), gpu(), profile, None, RULES, day_s=0.0)
    assert 3.5 * GIB < between.bytes < 4.5 * GIB
    assert between.because.endswith("GiB for bs=48, from 4 runs")


def test_a_larger_run_that_cannot_be_capped_is_a_probe() -> None:
    found = reservation_for(sized(1, 64), gpu(), taught((8, 1.0)), None, RULES, day_s=0.0)
    assert found.source is Source.WHOLE


def test_a_larger_run_that_can_be_capped_gets_a_cap_that_grows_with_its_size() -> None:
    request = sized(1, 64, can_be_capped=True)
    found = reservation_for(request, gpu(), taught((8, 1.0)), None, RULES, day_s=0.0)
    assert (found.source, found.bytes) == (Source.TRIAL, int(8 * RULES.few_factor * GIB))
    assert found.can_be_capped


def test_the_cap_of_another_seed_is_no_larger() -> None:
    points = (Point((("bs", 8.0), ("seed", 0.0)), GIB),)
    profile = Profile(peaks=(GIB,), points=points, sm=(0.2,))
    params = (("bs", 16.0), ("seed", 1337.0))
    request = ShareRequest(job=1, kind="k", params=params, can_be_capped=True)
    found = reservation_for(request, gpu(), profile, None, RULES, day_s=0.0)
    assert (found.source, found.bytes) == (Source.TRIAL, int(2 * RULES.few_factor * GIB))


def computing(flat_s: float, sm_pct: float = 50.0) -> Probe:
    seen = AttemptUse(mem_peak_bytes=2 * GIB)
    return Probe(JobUse(key="1.1", watched_s=9, flat_s=flat_s, sm_pct=sm_pct, so_far=seen))


@pytest.mark.parametrize(
    ("probe", "source"),
    [
        (computing(2.0), Source.RAMP),
        (computing(1.9), Source.WHOLE),
        (computing(30.0, sm_pct=0.0), Source.WHOLE),
    ],
)
def test_a_job_that_computes_with_flat_memory_lets_capped_ones_join(
    probe: Probe, source: Source
) -> None:
    request = ShareRequest(job=2, kind="k", can_be_capped=True)
    found = reservation_for(request, gpu(), Profile(), probe, RULES, day_s=0.0)
    assert found.source is source


def test_jobs_of_unknown_need_double() -> None:
    known = Knowledge(profiles={}, probes={("k", "M"): computing(5.0)})
    joined = []
    for settled, fresh in ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2)):
        there = [tenant(n, 2.7, 2.0, settled=True) for n in range(settled)]
        there += [tenant(10 + n, 2.7, 0.0) for n in range(fresh)]
        request = ShareRequest(job=99, kind="k", can_be_capped=True)
        joined.append(why_not(request, gpu(*there), known, RULES) is None)
    assert joined == [True, False, True, True, False]


def test_a_first_job_keeps_a_part_of_its_gpu_to_grow() -> None:
    known = Knowledge(profiles={}, probes={("k", "M"): computing(5.0)})
    first = msgspec.structs.replace(
        tenant(1, 23.28, 2.0, cold=True),
        request=ShareRequest(job=1, kind="k", can_be_capped=True),
    )
    revised = revise(first, gpu(first), known, RULES)
    assert not revised.cold
    assert revised.reserved_bytes == int(gpu().capacity(RULES) * RULES.ramp_share)


def hosts(gib: int, used_gib: int = 0, cpus: int = 16) -> HostPlan:
    """A machine of which so much RAM is set aside."""
    room = HostRoom(cpus=cpus, mem_bytes=gib * GIB, used_bytes=used_gib * GIB)
    return HostPlan(HostRooms({"": room}))


def runs_with_ram(*gib: int) -> Profile:
    profile = KNOWN
    for each in gib:
        profile = profile.learn_ram(each * GIB)
    return profile


@pytest.mark.parametrize(
    ("gib", "need"),
    [((), None), ((10,), 13.5), ((10, 4), 13.5), ((4, 10, 6), 11.0), ((99, *(1,) * 20), 1.1)],
)
def test_the_ram_of_a_kind_is_that_of_its_last_runs(
    gib: tuple[int, ...], need: float | None
) -> None:
    found = runs_with_ram(*gib).ram_need(RULES)
    assert (None if found is None else round(found / GIB, 1)) == need


def test_a_job_joins_only_where_the_ram_of_its_kind_fits() -> None:
    request, there = ShareRequest(job=9, kind="k"), gpu(tenant(7, 5.0))
    known = knowledge(runs_with_ram(10, 10, 10))

    assert why_not(request, there, known, RULES, hosts(64, 50)) is None
    assert why_not(request, there, known, RULES, hosts(64, 54)) == (
        "it needs 11 GiB of RAM, and 10 GiB of 64 GiB are not set aside (learned from 3 runs)"
    )


def test_what_a_job_declares_counts_instead_of_what_was_learned() -> None:
    there, known = gpu(tenant(7, 5.0)), knowledge(runs_with_ram(10, 10, 10))
    little = ShareRequest(job=9, kind="k", host=HostNeed(None, 2 * GIB))
    cpus = ShareRequest(job=9, kind="k", host=HostNeed(17, 2 * GIB))

    assert why_not(little, there, known, RULES, hosts(64, 60)) is None
    assert why_not(cpus, there, known, RULES, hosts(64)) == (
        "it needs 17 CPUs, and 16 of 16 are not set aside"
    )


def test_a_user_s_own_number_of_jobs_on_a_gpu_does_not_depend_on_learned_ram() -> None:
    request = ShareRequest(job=9, kind="k", share=Share(Mode.ALWAYS, 4))
    there = gpu(tenant(7, 5.0))
    assert why_not(request, there, knowledge(runs_with_ram(50)), RULES, hosts(64, 60)) is None


def test_jobs_that_join_together_fit_into_the_ram_together() -> None:
    requests = [ShareRequest(job=n, kind="k") for n in range(10)]
    known = knowledge(runs_with_ram(10, 10, 10))
    there = [gpu(tenant(70, 1.0)), gpu(tenant(71, 1.0), key="B")]
    made = pack(requests, there, known, RULES, hosts(64, 30))

    assert [each.job for each in made.joinings] == [0, 1, 2]


def test_jobs_behind_one_that_lacks_ram_do_not_take_it_by_joining() -> None:
    wants = [
        ShareRequest(job=1, kind="k", host=HostNeed(None, 50 * GIB)),
        ShareRequest(job=2, kind="k", host=HostNeed(None, 5 * GIB)),
        ShareRequest(job=3, kind="k"),
    ]
    made = pack(wants, [gpu(tenant(7, 1.0))], knowledge(), RULES, hosts(64, 30))

    assert [each.job for each in made.joinings] == [3]
