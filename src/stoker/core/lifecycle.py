"""The life of a job, as one table: which event leads from which states to which.

    held ◀──hold── waiting ──claim──▶ starting ──start──▶ running ──succeed──▶ done
    blocked ─ready──▶ ▲ │                │ │               │  ▲ ├────fail──▶ failed
    delayed ─ready──▶ │ │                │ │         pause ▼  │ ├────kill──▶ killed ◀──cancel── (what
                      ├─│────revoke──────┘ └─(any end)▶   paused├────lose──▶ lost        has not begun)
    skipped ◀──skip───│─┘ (when blocked)               (resume) └──preempt─▶ preempted
                      └──retry── failed, killed, lost, skipped, preempted

An end may come before its start was noticed, so every end also leads out of `starting`. What is done
runs again (rerun, to waiting) only when a person says so. Nothing rests as `preempted`: it waits again
in the same moment, and only its attempt keeps the word.
"""

from __future__ import annotations

import enum


class State(str, enum.Enum):
    """Where a job stands; the value is what people and the database see."""

    WAITING = "waiting"
    HELD = "held"
    BLOCKED = "blocked"
    DELAYED = "delayed"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"
    SKIPPED = "skipped"
    PREEMPTED = "preempted"


MEANING = {
    State.WAITING: "is in the queue and starts when there is room",
    State.HELD: "waits until somebody releases it",
    State.BLOCKED: "waits for other jobs to end",
    State.DELAYED: "waits until a time has come",
    State.STARTING: "has its slots; its process is being made",
    State.RUNNING: "is a process",
    State.PAUSED: "is a process that was stopped; it keeps its GPUs",
    State.DONE: "ended with exit 0",
    State.FAILED: "ended with another exit code or by a signal, or could not start",
    State.KILLED: "was ended by request, by a time limit, or before it began",
    State.LOST: "is over, and nobody knows how it ended",
    State.SKIPPED: "never began, because a job it needs did not succeed",
    State.PREEMPTED: "made room for another job, and waits again (of attempts only)",
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
    RETRY = "retry"
    CANCEL = "cancel"
    RERUN = "rerun"
    HOLD = "hold"
    BLOCK = "block"
    DELAY = "delay"
    READY = "ready"
    SKIP = "skip"
    PAUSE = "pause"
    RESUME = "resume"


_LIVE = (State.STARTING, State.RUNNING, State.PAUSED)
_UNDONE = (State.FAILED, State.KILLED, State.LOST, State.SKIPPED)
_PENDING = (State.WAITING, State.HELD, State.BLOCKED, State.DELAYED)


def _others(state: State) -> tuple[State, ...]:
    return tuple(pending for pending in _PENDING if pending is not state)


# event: (states it may come in, state it leads to)
TABLE: dict[Event, tuple[tuple[State, ...], State]] = {
    Event.CLAIM: ((State.WAITING,), State.STARTING),
    Event.REVOKE: ((State.STARTING,), State.WAITING),
    Event.START: ((State.STARTING,), State.RUNNING),
    Event.SUCCEED: (_LIVE, State.DONE),
    Event.FAIL: (_LIVE, State.FAILED),
    Event.KILL: (_LIVE, State.KILLED),
    Event.LOSE: (_LIVE, State.LOST),
    Event.PREEMPT: (_LIVE, State.PREEMPTED),
    Event.RETRY: ((*_UNDONE, State.PREEMPTED), State.WAITING),
    Event.CANCEL: (_PENDING, State.KILLED),
    Event.RERUN: ((State.DONE,), State.WAITING),
    Event.HOLD: (_others(State.HELD), State.HELD),
    Event.BLOCK: (_others(State.BLOCKED), State.BLOCKED),
    Event.DELAY: (_others(State.DELAYED), State.DELAYED),
    Event.READY: (_others(State.WAITING), State.WAITING),
    Event.SKIP: ((State.BLOCKED,), State.SKIPPED),
    Event.PAUSE: ((State.RUNNING,), State.PAUSED),
    Event.RESUME: ((State.PAUSED,), State.RUNNING),
}


class IllegalEventError(Exception):
    """An event came in a state that the table does not list for it."""


def after(state: State, event: Event) -> State:
    """The state that follows; raises IllegalEventError where the table knows no way."""
    sources, target = TABLE[event]
    if state not in sources:
        raise IllegalEventError(f"{event.value} of a job that is {state.value}")
    return target


def is_live(state: State) -> bool:
    """Whether a process of the job may exist."""
    return state in _LIVE


def is_pending(state: State) -> bool:
    """Whether the job has not begun and may still do so by itself or when released."""
    return state in _PENDING


def is_final(state: State) -> bool:
    """Whether nothing more happens by itself."""
    return state is State.DONE or state in _UNDONE
