"""A trial of a study, with its run."""

from __future__ import annotations

import msgspec

from stoker.sweeps.plan import Run


class Trial(msgspec.Struct, frozen=True):
    """A trial that has not ended, with its run; `job` if one was queued for it."""

    number: int
    run: Run
    job: int | None = None
