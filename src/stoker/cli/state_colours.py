"""The colours of the states: the same wherever Stoker speaks of jobs."""

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
    State.DONE: "green",
    State.FAILED: "bold red",
    State.KILLED: "magenta",
    State.LOST: "bold yellow on red",
    State.SKIPPED: "red",
    State.PREEMPTED: "yellow",
}

# How a count of jobs reads, past to future.
ORDER = (
    State.DONE,
    State.FAILED,
    State.KILLED,
    State.LOST,
    State.SKIPPED,
    State.RUNNING,
    State.STARTING,
    State.PAUSED,
    State.WAITING,
    State.BLOCKED,
    State.DELAYED,
    State.HELD,
)
BAD = (State.FAILED, State.KILLED, State.LOST, State.SKIPPED)


def sum_up(counts: dict[State, int]) -> list[tuple[str, str]]:
    """`1,204 done`, `3 failed`, …: each with its colour, without those of which there are none."""
    return [
        (f"{counts[state]:,} {state.value}", STYLES[state]) for state in ORDER if counts.get(state)
    ]
