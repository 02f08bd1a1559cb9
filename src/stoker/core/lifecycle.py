"""Life of a job as one table: which event leads from which states to which.

    held ◀──hold── waiting ──claim──▶ starting ──start──▶ running ──succeed──▶ done
    blocked ─ready──▶ ▲ │                │ │               │  ▲ ├────fail──▶ failed
    delayed ─ready──▶ │ │                │ │         pause ▼  │ ├────kill──▶ killed ◀──cancel── (what
                      ├─│────revoke──────┘ └─(any end)▶   paused├────lose──▶ lost        has not begun)
    skipped ◀──skip───│─┘ (when blocked)               (resume) └──preempt─▶ preempted
                      └──retry── failed, killed, lost, skipped, preempted

A running job can also be suspended (suspend, to suspended) and restored (restore, to running). A waiting
job whose last attempt was given up with its node has that attempt again (revive, to starting) if the node
returns first. A sweep stops runs early: they are pruned if they have begun (prune), or have not (discard).

An end may be reported before the start, so every end also leads out of `starting`. A job that is done
runs again (rerun, to waiting) only when a user asks. No job stays `preempted`: it is `waiting` again
in the same transaction, and only its attempt keeps that state.
"""

from __future__ import annotations

import enum


class State(str, enum.Enum):
    """State of a job. Users and the database see the value."""

    WAITING = "waiting"
    HELD = "held"
    BLOCKED = "blocked"
    DELAYED = "delayed"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"
    SKIPPED = "skipped"
    PREEMPTED = "preempted"
    PRUNED = "pruned"


MEANING = {
    State.WAITING: "is in the queue and starts when there is room",
    State.HELD: "waits until a user releases it",
    State.BLOCKED: "waits for other jobs to end",
    State.DELAYED: "waits for its start time",
    State.STARTING: "has its slots; its process is being started",
    State.RUNNING: "has a running process",
    State.PAUSED: "has a stopped process; it keeps its GPUs",
    State.SUSPENDED: "has a stopped process; its GPU memory is in host RAM, and its GPUs are free",
    State.DONE: "ended with exit code 0",
    State.FAILED: "ended with another exit code or by a signal, or could not start",
    State.KILLED: "was ended by request, by a time limit, or before it began",
    State.LOST: "has ended, but its exit status is unknown",
    State.SKIPPED: "never began, because a job it needs did not succeed",
    State.PREEMPTED: "made room for another job, and waits again (of attempts only)",
    State.PRUNED: "was stopped early by its sweep: others are better, or the target is reached",
}


class Event(enum.Enum):
    """What can happen to a job."""

    CLAIM = "claim"
    REVOKE = "revoke"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    KILL = "kill"
    LOSE = "lose"
    PREEMPT = "preempt"
    PRUNE = "prune"
    RETRY = "retry"
    CANCEL = "cancel"
    DISCARD = "discard"
    RERUN = "rerun"
    HOLD = "hold"
    BLOCK = "block"
    DELAY = "delay"
    READY = "ready"
    SKIP = "skip"
    PAUSE = "pause"
    RESUME = "resume"
    SUSPEND = "suspend"
    RESTORE = "restore"
    REVIVE = "revive"


_LIVE = (State.STARTING, State.RUNNING, State.PAUSED, State.SUSPENDED)
_UNDONE = (State.FAILED, State.KILLED, State.LOST, State.SKIPPED, State.PRUNED)
_PENDING = (State.WAITING, State.HELD, State.BLOCKED, State.DELAYED)


def _others(state: State) -> tuple[State, ...]:
    return tuple(pending for pending in _PENDING if pending is not state)


# event: (states in which it is allowed, state that follows)
TABLE: dict[Event, tuple[tuple[State, ...], State]] = {
    Event.CLAIM: ((State.WAITING,), State.STARTING),
    Event.REVOKE: ((State.STARTING,), State.WAITING),
    Event.START: ((State.STARTING,), State.RUNNING),
    Event.SUCCEED: (_LIVE, State.DONE),
    Event.FAIL: (_LIVE, State.FAILED),
    Event.KILL: (_LIVE, State.KILLED),
    Event.LOSE: (_LIVE, State.LOST),
    Event.PREEMPT: (_LIVE, State.PREEMPTED),
    Event.PRUNE: (_LIVE, State.PRUNED),
    Event.RETRY: ((*_UNDONE, State.PREEMPTED), State.WAITING),
    Event.CANCEL: (_PENDING, State.KILLED),
    Event.DISCARD: (_PENDING, State.PRUNED),
    Event.RERUN: ((State.DONE,), State.WAITING),
    Event.HOLD: (_others(State.HELD), State.HELD),
    Event.BLOCK: (_others(State.BLOCKED), State.BLOCKED),
    Event.DELAY: (_others(State.DELAYED), State.DELAYED),
    Event.READY: (_others(State.WAITING), State.WAITING),
    Event.SKIP: ((State.BLOCKED,), State.SKIPPED),
    Event.PAUSE: ((State.RUNNING,), State.PAUSED),
    Event.RESUME: ((State.PAUSED,), State.RUNNING),
    Event.SUSPEND: ((State.RUNNING,), State.SUSPENDED),
    Event.RESTORE: ((State.SUSPENDED,), State.RUNNING),
    Event.REVIVE: ((State.WAITING,), State.STARTING),
}


class IllegalEventError(Exception):
    """An event that the table does not allow in the current state."""


def after(state: State, event: Event) -> State:
    """Return the state that follows; raise IllegalEventError if the table does not allow the event."""
    sources, target = TABLE[event]
    if state not in sources:
        raise IllegalEventError(f"event {event.value} is not allowed for a {state.value} job")
    return target


def is_live(state: State) -> bool:
    """Whether a process of the job may exist."""
    return state in _LIVE


def is_pending(state: State) -> bool:
    """Whether the job has not begun and may still begin."""
    return state in _PENDING


def is_final(state: State) -> bool:
    """Whether the job has ended and does not start again by itself."""
    return state is State.DONE or state in _UNDONE
