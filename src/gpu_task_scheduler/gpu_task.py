"""`GPUTask`: base class of a task. It imports little, for every task's process imports it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class GPUTask:
    """One test instance: `_config` has its parameters, `_work_dir` is the folder of its results."""

    def __init__(self, config: dict[str, Any], work_dir: str) -> None:
        self._config = config
        self._work_dir = work_dir

    def required_env(self) -> Mapping[str, Any]:
        """Return environment variables that `main` needs; called before its process starts."""
        return {}

    def main(self) -> object:
        """Run the test, in its own process that sees only its GPUs."""
        raise NotImplementedError("a task class must define main(self)")
