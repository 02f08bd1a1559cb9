"""No job starts while an earlier or more urgent one waits for the same slots, whatever is claimed ahead."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from stoker.executors.contract import Started
from unit.engine.engine_harness import FAILED, Harness


class StartOrder(RuleBasedStateMachine):
    """Jobs of one slot each come with any priority, and end after next to no time or after long."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.harness = Harness(Path(self.folder.name), gpus=2)
        self.harness.config("brake", "0")  # failures in a row would pause the queue
        self.urgency: dict[int, tuple[int, int]] = {}  # of each job: where it stands in the queue
        self.over: set[int] = set()
        self.begun: set[int] = set()
        self.listen()

    def listen(self) -> None:
        """See every start at the moment it is made."""
        executor = self.harness.executor
        remember = executor._remember

        def look(report: object) -> None:
            if isinstance(report, Started):
                self.on_start(int(report.key.split(".")[0]))
            remember(report)  # type: ignore[arg-type]

        executor._remember = look  # type: ignore[method-assign]

    def on_start(self, job: int) -> None:
        waiting = [each for each in self.urgency if each not in self.begun | self.over]
        if job in self.urgency:
            before = [each for each in waiting if self.urgency[each] < self.urgency[job]]
            assert not before, f"job {job} starts before {before}"
        self.begun.add(job)

    @rule(count=st.integers(1, 6), priority=st.integers(0, 2))
    def add(self, count: int, priority: int) -> None:
        first = len(self.urgency) + 1
        for job in range(first, first + count):
            self.urgency[job] = (-priority, job)
        self.harness.add(*["train"] * count, priority=priority)

    @precondition(lambda self: self.harness.executor.running)
    @rule(
        data=st.data(),
        seconds=st.sampled_from([0.001, 0.01, 0.2, 5.0]),
        status=st.sampled_from([0, FAILED]),
    )
    def end(self, data: st.DataObject, seconds: float, status: int) -> None:
        key = data.draw(st.sampled_from(self.harness.executor.running))
        self.harness.now += seconds
        self.over.add(int(key.split(".")[0]))
        self.harness.end(key, status)

    @precondition(lambda self: self.harness.executor.running)
    @rule(count=st.integers(1, 6))
    def end_several_at_once(self, count: int) -> None:
        """Before the engine has heard of the first end, what waits in line has started and ended too."""
        for _ in range(count):
            running = self.harness.executor.running
            if not running:
                break
            self.harness.now += 0.001
            self.over.add(int(running[-1].split(".")[0]))
            self.harness.executor.end(running[-1])
        self.harness.settle()

    @rule(seconds=st.sampled_from([0.05, 0.2]))
    def wait(self, seconds: float) -> None:
        self.harness.wait(seconds)

    @rule()
    def restart(self) -> None:
        self.harness.restart()
        self.harness.settle()

    def teardown(self) -> None:
        """Nothing is forgotten."""
        for _ in range(len(self.urgency)):
            for key in self.harness.executor.running:
                self.over.add(int(key.split(".")[0]))
                self.harness.now += 1
                self.harness.end(key)
        assert set(self.harness.states()) == self.over
        self.harness.close()
        self.folder.cleanup()


TestStartOrder = StartOrder.TestCase
TestStartOrder.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
