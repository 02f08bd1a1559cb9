"""Settings that steer: limits and GPUs of projects, and who plans."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from stoker.core.planner import Plan, Start
from stoker.errors import NotFoundError, UsageError
from unit.engine.engine_harness import Harness, MakeHarness


class TestLimits:
    def test_no_more_of_a_project_run_than_its_limit(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=4)
        harness.config("limit.p", "2")
        harness.add(*"abcd", project="p")
        harness.add("other")
        assert sorted(harness.executor.running) == ["1.1", "2.1", "5.1"]
        harness.now += 5
        harness.end("1.1")
        assert sorted(harness.executor.running) == ["2.1", "3.1", "5.1"]

        harness.config("limit.p", None)
        assert len(harness.executor.running) == 4

    def test_they_count_over_all_classes_of_a_project(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=4, cpu_places=4)
        harness.config("limit.p", "2")
        harness.add("a", project="p", timeout_s=60)
        harness.add("b", "c", project="p", gpus=0)
        harness.add("d", project="p")

        assert sorted(harness.executor.running) == ["1.1", "2.1"]

    def test_they_count_after_a_restart_too(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=4)
        harness.config("limit.p", "1")
        harness.add("a", "b", project="p")
        harness.restart()
        harness.settle()

        assert harness.executor.running == ["1.1"]

    @pytest.mark.parametrize("value", ["0", "-1", "many", ""])
    def test_a_limit_of_nothing_is_refused(self, harness: Harness, value: str) -> None:
        with pytest.raises(UsageError, match=r"limit\.p cannot be"):
            harness.config("limit.p", value)
        assert harness.context.admission.limits == {}


class TestGpus:
    def test_a_project_runs_on_its_gpus_alone(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=3)
        harness.config("gpus.p", "0,2")
        harness.add("a", "b", "c", project="p")
        harness.add("d")

        assert {launch.key: launch.slots for launch in harness.executor.launched} == {
            "1.1": (0,),
            "2.1": (2,),
            "4.1": (1,),
        }

    def test_a_job_that_is_too_big_for_them_never_blocks_others(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("big", project="p", gpus=2, hold=True)
        harness.config("gpus.p", "0")
        harness.release("1")
        harness.add("a", "b")

        assert sorted(harness.executor.running) == ["2.1", "3.1"]
        with pytest.raises(UsageError, match=r"project p may use 1 \(stoker config gpus\.p\)"):
            harness.add("big", project="p", gpus=2)

    @pytest.mark.parametrize("value", ["7", "0,7", "none", ",", ""])
    def test_unknown_gpus_are_refused(self, harness: Harness, value: str) -> None:
        with pytest.raises(UsageError, match="this queue has the GPUs 0, 1"):
            harness.config("gpus.p", value)


class TestPolicy:
    @pytest.fixture
    def install(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
        """Return a place where policies are installed by name."""
        found: dict[str, object] = {}

        class Point:
            def __init__(self, name: str) -> None:
                self.name = name

            def load(self) -> object:
                if isinstance(found[self.name], Exception):
                    raise found[self.name]  # type: ignore[misc]
                return found[self.name]

        monkeypatch.setattr(metadata, "entry_points", lambda group: [Point(name) for name in found])
        return found

    def test_a_policy_of_ones_own_decides(
        self, make_harness: MakeHarness, install: dict[str, object]
    ) -> None:
        def backwards(waiting, *, free, **_rest):  # type: ignore[no-untyped-def]
            chosen = sorted(waiting, key=lambda job: -job.id)
            return Plan(tuple(Start(j.id, (s,)) for j, s in zip(chosen, free, strict=False)))

        install["backwards"] = backwards
        harness = make_harness(gpus=1)
        harness.pause(queue=True)
        harness.add("a")
        harness.add("b", project="p", timeout_s=60)
        harness.config("policy", "backwards")
        harness.resume(queue=True)

        assert harness.executor.running == ["2.1"]
        harness.restart()
        harness.settle()
        assert harness.notices() == ""

    def test_the_one_in_the_docs_serves_projects_in_turn(
        self, make_harness: MakeHarness, install: dict[str, object]
    ) -> None:
        text = (Path(__file__).parents[3] / "docs/explanation/policies.md").read_text()
        names: dict[str, object] = {}
        exec(text.partition("```python\n")[2].partition("```")[0], names)
        install["fair"] = names["fair"]
        harness = make_harness(gpus=3)
        harness.pause(queue=True)
        harness.add("a", "b", "c", project="p")
        harness.add("d", project="q")
        harness.config("policy", "fair")
        harness.resume(queue=True)

        assert sorted(harness.executor.running) == ["1.1", "2.1", "4.1"]
        assert harness.notices() == ""

    @pytest.mark.parametrize(
        ("plan", "complaint"),
        [
            (Plan((Start(99, (0,)),)), "job 99 is planned but is not waiting"),
            (Plan((Start(1, (0, 1)),)), "job 1 needs 1 slots and gets 2"),
            (Plan((Start(1, (5,)),)), "not all of them free"),
            (Plan((Start(1, (0,)), Start(2, (0,)))), "not all of them free"),
            (Plan((), reserved_for=77), "is not waiting"),
            (Plan((Start(1, (), in_advance=True),)), "needs 1 slots and gets 0"),
            (None, "it failed with AttributeError"),
            (ZeroDivisionError("oops"), "it failed with ZeroDivisionError"),
        ],
    )
    def test_nonsense_is_refused_said_once_and_the_default_takes_over(
        self,
        make_harness: MakeHarness,
        install: dict[str, object],
        plan: object,
        complaint: str,
    ) -> None:
        def planner(_waiting: object, **_rest: object) -> object:
            if isinstance(plan, Exception):
                raise plan
            return plan

        install["mine"] = planner
        harness = make_harness(gpus=1)
        harness.config("policy", "mine")
        harness.add("a", "b", "c")
        for key in ("1.1", "2.1"):
            harness.now += 5
            harness.end(key)

        assert harness.executor.running == ["3.1"]
        assert len(harness.context.publisher.notices) == 1
        assert complaint in harness.notices()
        assert "the default policy plans from now on" in harness.notices()

    def test_one_that_is_not_installed_is_refused(
        self, harness: Harness, install: dict[str, object]
    ) -> None:
        install["good"] = None
        install["bad"] = ImportError("no torch")
        with pytest.raises(
            UsageError, match="no policy 'mine' is installed; there are: default, bad"
        ):
            harness.config("policy", "mine")
        with pytest.raises(UsageError, match="the policy 'bad' cannot be loaded: no torch"):
            harness.config("policy", "bad")

    def test_one_that_is_gone_when_the_daemon_starts_is_no_reason_not_to(
        self, harness: Harness, install: dict[str, object]
    ) -> None:
        install["mine"] = lambda *_args, **_rest: Plan(())
        harness.config("policy", "mine")
        del install["mine"]
        harness.restart()
        harness.add("a")

        assert harness.executor.running == ["1.1"]
        assert "no policy 'mine' is installed" in harness.notices()


def test_what_does_not_exist_is_told(harness: Harness) -> None:
    with pytest.raises(NotFoundError, match=r"limit\.PROJECT, gpus\.PROJECT"):
        harness.config("limits", "1")
    with pytest.raises(UsageError, match="stoker gpus add"):
        harness.config("gpus-drained", "1")
