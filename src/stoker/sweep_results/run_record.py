"""One run as its folder tells of it."""

from __future__ import annotations

from typing import Any

import msgspec

# Without a state nothing is known against a run.
_COUNTING = (None, "done", "running", "starting", "paused")


class RunRecord(msgspec.Struct, kw_only=True):
    """A run: what it was given, what it reported, and what the queue knows about it.

    `metrics` are the values reported last; `facts` come from the queue, where it knows the run;
    `problem` tells what of its folder could not be read.
    """

    dir: str
    id: str
    params: dict[str, Any]
    metrics: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    problem: str | None = None

    @property
    def state(self) -> str | None:
        """Where the queue says it stands."""
        return self.facts.get("state")

    @property
    def counts(self) -> bool:
        """Whether its metrics count in means and as the best.

        Not those of a run that ended without success, nor what an earlier try left of one that waits.
        """
        return self.state in _COUNTING

    def get(self, name: str) -> Any:
        """A metric, a parameter or a fact of this name; None where it has none."""
        for source in (self.metrics, self.params, self.facts):
            if name in source:
                return source[name]
        return None
