"""Colours and order of the states of jobs, for tables and counts."""

from __future__ import annotations

from stoker.core.lifecycle import State

STYLES = {
    State.WAITING: "yellow",
    State.HELD: "blue",
    State.BLOCKED: "blue",
    State.DELAYED: "blue",
    State.STARTING: "cyan",
    State.RUNNING: "bold cyan",
    State.PAUSED: "bold yellow",
    State.SUSPENDED: "bold yellow",
    State.DONE: "green",
    State.FAILED: "bold red",
    State.KILLED: "magenta",
    State.LOST: "bold yellow on red",
    State.SKIPPED: "red",
    State.PREEMPTED: "yellow",
    State.PRUNED: "cyan",
}

MARKED = "bold magenta"  # a running job that wastes its GPU

# The order of counts, from past to future.
ORDER = (
    State.DONE,
    State.PRUNED,
    State.FAILED,
    State.KILLED,
    State.LOST,
    State.SKIPPED,
    State.RUNNING,
    State.STARTING,
    State.PAUSED,
    State.SUSPENDED,
    State.WAITING,
    State.BLOCKED,
    State.DELAYED,
    State.HELD,
)
BAD = (State.FAILED, State.KILLED, State.LOST, State.SKIPPED)


def format_counts(counts: dict[State, int]) -> list[tuple[str, str]]:
    """Format the counts that are not zero, each with its colour: `1,204 done`, `3 failed`."""
    return [
        (f"{counts[state]:,} {state.value}", STYLES[state]) for state in ORDER if counts.get(state)
    ]
