"""The life of a job, as one table: which event leads from which states to which.

    waiting ──claim──▶ starting ──start──▶ running ──succeed──▶ done
       ▲ │                │ │                 │  ├─────fail──▶ failed
       ├─│────revoke──────┘ └──(any end)──▶   │  ├─────kill──▶ killed ◀──cancel─┐
       │ └────────────────────────────────────│──│──────────────────────────────┘
       └──retry── failed, killed, lost        │  └─────lose──▶ lost

An end may come before its start was noticed, so every end also leads out of `starting`. What is done
runs again (rerun, to waiting) only when a person says so.
"""

from __future__ import annotations

import enum


class State(str, enum.Enum):
    """Where a job stands; the value is what people and the database see."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"


class Event(enum.Enum):
    """What can happen to a job."""

    CLAIM = "claim"
    REVOKE = "revoke"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    KILL = "kill"
    LOSE = "lose"
    RETRY = "retry"
    CANCEL = "cancel"
    RERUN = "rerun"


_LIVE = (State.STARTING, State.RUNNING)
_UNDONE = (State.FAILED, State.KILLED, State.LOST)

# event: (states it may come in, state it leads to)
TABLE: dict[Event, tuple[tuple[State, ...], State]] = {
    Event.CLAIM: ((State.WAITING,), State.STARTING),
    Event.REVOKE: ((State.STARTING,), State.WAITING),
    Event.START: ((State.STARTING,), State.RUNNING),
    Event.SUCCEED: (_LIVE, State.DONE),
    Event.FAIL: (_LIVE, State.FAILED),
    Event.KILL: (_LIVE, State.KILLED),
    Event.LOSE: (_LIVE, State.LOST),
    Event.RETRY: (_UNDONE, State.WAITING),
    Event.CANCEL: ((State.WAITING,), State.KILLED),
    Event.RERUN: ((State.DONE,), State.WAITING),
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


def is_final(state: State) -> bool:
    """Whether nothing more happens by itself."""
    return state is State.DONE or state in _UNDONE
