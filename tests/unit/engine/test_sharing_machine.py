"""Whatever is added, ends, fails, grows or crashes: no GPU is promised beyond what it has."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stoker.service.status import status
from unit.engine.engine_harness import FAILED, Harness
from unit.engine.test_sharing import Machine, run_out


class SharedQueue(RuleBasedStateMachine):
    """A daemon on two GPUs that is killed now and then; jobs share, or do not, and some lie."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stoker-sharing-"))
        self.harness = Harness(self.folder)
        self.machine = Machine(self.harness)

    @rule(
        count=st.integers(1, 8),
        share=st.sampled_from(["auto", "auto", "auto", "always:3", "free", None]),
        gpus=st.sampled_from([1, 1, 1, 2]),
        memory=st.none() | st.integers(1, 20),
    )
    def add(self, count: int, share: str | None, gpus: int, memory: int | None) -> None:
        asked = None if memory is None else memory << 30
        commands = [f"train {number}" for number in range(count)]
        self.harness.add(*commands, share=share, gpus=gpus, gpu_mem_bytes=asked)

    @rule(data=st.data(), seconds=st.floats(1, 90), fails=st.booleans())
    def end(self, data: st.DataObject, seconds: float, fails: bool) -> None:
        if key := self.pick(data):
            self.harness.now += seconds
            self.harness.end(key, FAILED if fails else 0)

    @rule(data=st.data())
    def run_out_of_memory(self, data: st.DataObject) -> None:
        if key := self.pick(data):
            run_out(self.harness, key)

    @rule(data=st.data(), held=st.integers(0, 12))
    def grow(self, data: st.DataObject, held: int) -> None:
        if key := self.pick(data):
            self.machine.held[self.harness.engine.slot_table.running[key].attempt.job] = held
            self.harness.settle()

    @rule(seconds=st.floats(1, 100))
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds)

    @rule(supervisor_too=st.booleans())
    def be_killed(self, supervisor_too: bool) -> None:
        self.harness.restart(supervisor_too=supervisor_too)
        self.machine.attach()
        self.harness.settle()

    def pick(self, data: st.DataObject) -> str | None:
        running = self.harness.engine.slot_table.running
        live = sorted(key for key, each in running.items() if each.pid is not None)
        return data.draw(st.sampled_from(live)) if live else None

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        for slot in status(self.harness.context).slots:
            if slot.shared is not None and len(slot.jobs) > 1:
                assert slot.shared.reserved_bytes <= slot.shared.capacity_bytes, slot

    @invariant()
    def a_gpu_is_whole_or_shared(self) -> None:
        places = self.harness.engine.slot_table.states
        for place in places:
            taken = sum(
                each.whole_slot == place.slot.index and each.current is not None for each in places
            )
            assert place.tenants == taken
            assert not (place.tenants and place.current is not None)

    @invariant()
    def what_is_on_record_is_what_is_there(self) -> None:
        sharing = self.harness.engine.gpus.sharing
        assert sharing is not None
        there = {
            running.attempt: tenancy.tenant.reserved_bytes
            for running in self.harness.engine.slot_table.running.values()
            if (tenancy := sharing.gpus.tenancies.get(running.key)) is not None
        }
        recorded = {attempt: each.bytes for attempt, each in sharing.gpus.records.live().items()}
        assert there == recorded
        self.harness.check()

    def teardown(self) -> None:
        self.harness.close()
        shutil.rmtree(self.folder)


SharedQueue.TestCase.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, derandomize=True
)
TestSharedQueue = SharedQueue.TestCase
