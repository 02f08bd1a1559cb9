"""Results of `GPUTaskScheduler.start`, and the error it raises."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.errors import StokerError

DONE = "done"
SKIPPED = "skipped"


@dataclass(frozen=True)
class TaskResult:
    """Result of a test instance: `state` is done, skipped, failed, killed or lost."""

    name: str
    work_dir: str
    state: str
    gpu: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Result:
    """Results of all test instances."""

    tasks: list[TaskResult]

    @property
    def failed(self) -> list[TaskResult]:
        """The results of instances that did not succeed."""
        return [task for task in self.tasks if task.state not in (DONE, SKIPPED)]

    @property
    def summary(self) -> str:
        """The counts as text."""
        done, skipped = ([task.state for task in self.tasks].count(s) for s in (DONE, SKIPPED))
        return f"{done} done, {skipped} skipped, {len(self.failed)} failed"

    @property
    def ok(self) -> bool:
        """Whether all instances have succeeded, now or earlier."""
        return not self.failed


class TasksFailedError(StokerError):
    """Some test instances did not succeed; `result` has all results."""

    def __init__(self, result: Result) -> None:
        first = result.failed[0]
        super().__init__(
            f"{len(result.failed)} of {len(result.tasks)} tasks failed, the first:"
            f" {first.name}: {first.reason}"
        )
        self.result = result
