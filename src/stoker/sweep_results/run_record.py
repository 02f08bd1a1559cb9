"""Record of one run, read from its folder."""

from __future__ import annotations

from typing import Any

import msgspec

# A run of unknown state counts.
_COUNTING = (None, "done", "running", "starting", "paused", "suspended")


class RunRecord(msgspec.Struct, kw_only=True):
    """A run: its parameters, its metrics, and what the queue knows about it.

    `metrics` are the last reported values; `facts` come from the queue, if it knows the run; `problem` says
    what of its folder could not be read.
    """

    dir: str
    id: str
    params: dict[str, Any]
    metrics: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    problem: str | None = None

    @property
    def state(self) -> str | None:
        """Its state in the queue; None if unknown."""
        return self.facts.get("state")

    @property
    def counts(self) -> bool:
        """Whether its metrics count in means and as the best.

        Those of a failed run do not, nor those that an earlier attempt of a waiting run left.
        """
        return self.state in _COUNTING

    def get(self, name: str) -> Any:
        """Return the metric, parameter or fact of this name; None if there is none. `run` is the id."""
        for source in (self.metrics, self.params, self.facts):
            if name in source:
                return source[name]
        return self.id if name == "run" else None
