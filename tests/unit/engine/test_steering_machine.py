"""Any sequence of steering: every job is always where its hold, its needs and its time put it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stoker.core.lifecycle import State, is_pending
from stoker.core.readiness import find_cycle, pending_state
from stoker.errors import StokerError
from unit.engine.engine_harness import FAILED, Harness

KINDS = ("after", "after_any")


class Steering(RuleBasedStateMachine):
    """Verbs in any order, ends of any kind, crashes at any time."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.harness = Harness(Path(self.folder.name), gpus=2, cpu_places=1)

    def jobs(self, *states: str) -> list[int]:
        return [
            job for job, state in self.harness.states().items() if not states or state in states
        ]

    def draw(self, data: st.DataObject, *states: str) -> str | None:
        found = self.jobs(*states)
        return str(data.draw(st.sampled_from(found))) if found else None

    @rule(data=st.data(), hold=st.booleans(), later=st.booleans(), gpus=st.integers(0, 2))
    def add(self, data: st.DataObject, hold: bool, later: bool, gpus: int) -> None:
        common: dict[str, Any] = {"hold": hold, "gpus": gpus}
        if later:
            common["begin_at"] = time.time() + 1e6
        needs = data.draw(st.lists(st.sampled_from(self.jobs()), max_size=3)) if self.jobs() else []
        if needs:
            kind = data.draw(st.sampled_from(KINDS))
            common[kind] = ",".join(map(str, needs))
        self.harness.add("x", **common)

    @rule(data=st.data(), verb=st.sampled_from(["hold", "release", "start", "kill", "retry"]))
    def steer(self, data: st.DataObject, verb: str) -> None:
        job = self.draw(data)
        if job is not None:
            getattr(self.harness, verb)(job)

    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "preempt"]))
    def stop_and_go(self, data: st.DataObject, verb: str) -> None:
        job = self.draw(data, "running", "paused")
        if job is not None:
            getattr(self.harness, verb)(job)

    @rule(data=st.data(), kind=st.sampled_from(KINDS), none=st.booleans())
    def set_needs(self, data: st.DataObject, kind: str, none: bool) -> None:
        job, needed = self.draw(data), self.draw(data)
        if job is not None:
            with contextlib.suppress(StokerError):
                self.harness.set(job, **{kind: None if none else needed})

    @rule(data=st.data(), position=st.integers(1, 9))
    def move(self, data: st.DataObject, position: int) -> None:
        job = self.draw(data, "waiting")
        if job is not None:
            self.harness.move(job, position)

    @rule(data=st.data(), status=st.sampled_from([0, 0, FAILED]))
    def end(self, data: st.DataObject, status: int) -> None:
        running = self.harness.executor.running
        if running:
            self.harness.now += 1
            self.harness.end(data.draw(st.sampled_from(running)), status)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job = self.draw(data, "done", "failed", "killed", "skipped", "held", "blocked", "waiting")
        if job is not None:
            self.harness.rm(job)

    @rule()
    def pause_queue(self) -> None:
        self.harness.pause(queue=True)

    @precondition(lambda self: self.harness.context.admission.queue_paused is not None)
    @rule()
    def resume_queue(self) -> None:
        self.harness.resume(queue=True)

    @rule()
    def crash(self) -> None:
        self.harness.restart()
        self.harness.settle()

    @invariant()
    def everyone_is_where_they_belong(self) -> None:
        harness = self.harness
        harness.check()
        graph: dict[int, list[int]] = {}
        for job, word in harness.states().items():
            state = State(word)
            needs = harness.context.pending.needs_of(job)
            graph[job] = [need.id for need in needs]
            if is_pending(state) or state is State.SKIPPED:
                facts = harness.jobs.facts(job)
                assert state is pending_state(
                    held=bool(facts.held),
                    needs=needs,
                    begin_at_us=facts.begin_at_us,
                    now_us=time.time_ns() // 1000,
                )
                assert (harness.column("reason", job) is None) is (state is State.WAITING)
            assert harness.why(job).startswith(f"job {job} ")
        assert not any(find_cycle(job, graph) for job in graph)

    @invariant()
    def nothing_waits_that_could_run(self) -> None:
        harness = self.harness
        if harness.context.admission.queue_paused is None and harness.jobs.count(State.WAITING):
            taken = [
                place for place in harness.engine.slot_table.states if place.current is not None
            ]
            assert taken or len(harness.engine.slot_table.without_slot) >= harness.cpu_places

    def teardown(self) -> None:
        self.harness.close()
        self.folder.cleanup()


TestSteering = Steering.TestCase
TestSteering.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
