"""`GPUTask`: what a test's code inherits from. Light, for the process of every task imports it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class GPUTask:
    """One test instance: `_config` holds its parameters, `_work_dir` is the folder of its results."""

    def __init__(self, config: dict[str, Any], work_dir: str) -> None:
        self._config = config
        self._work_dir = work_dir

    def required_env(self) -> Mapping[str, Any]:
        """Environment variables that `main` needs; called before its process is started."""
        return {}

    def main(self) -> object:
        """The test itself, in a process of its own that sees its GPUs alone."""
        raise NotImplementedError("a task class must define main(self)")
