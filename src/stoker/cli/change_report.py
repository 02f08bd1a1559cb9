"""What a verb has done to jobs, told to a person; what it could not do makes the exit code 1."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoker.cli.selection import name_jobs

if TYPE_CHECKING:
    from stoker.wire import Changed

_REASONS_SHOWN = 20


def tell(changed: Changed, done: str, nothing: str) -> int:
    """Print what was done and why the rest was not; the exit code."""
    if changed.ids:
        print(f"{done} {name_jobs(changed.ids)}")
    elif not changed.refused:
        print(nothing)
    sys.stdout.flush()
    if changed.notice is not None:
        sys.stderr.write(f"stoker: {changed.notice}\n")
    for refusal in changed.refused[:_REASONS_SHOWN]:
        sys.stderr.write(f"stoker: {refusal.reason}\n")
    if len(changed.refused) > _REASONS_SHOWN:
        left = len(changed.refused) - _REASONS_SHOWN
        sys.stderr.write(f"stoker: … and {left:,} more that could not be\n")
    return 1 if changed.refused else 0
