"""Rules for allocations of a batch system: when to ask for one, when to give it back, when to stop asking.

An allocation is one node of the cluster for a limited time. A user sets up a *rule*: how large allocations
are, how long they last, and how many there may be. Everything here is decided from numbers; nothing is asked
or ended here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

MOST_FAILURES = 3
"""Starts in a row that may fail before a rule is paused."""
PATIENCE_S = 2.0
"""Jobs must have waited for so long before an allocation is asked for: they may start on what is there."""
LEAVE_S = 20.0
"""The time before the end of an allocation in which its node is given back."""
START_S = 60.0
"""The part of a new allocation's time that may pass before a job begins."""
GRACE_S = 60.0
"""The time that a job has for its last checkpoint, unless it has asked for more."""
USEFUL_S = 120.0
"""The shortest time for which a job starts that may be cut, with the grace at the end."""
JOIN_S = 600.0
"""The time after the start of an allocation in which its node must have joined."""
_MARGIN = 1.5  # jobs of one kind do not take equally long


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What allocations to ask for. The most recent failure is kept until a start succeeds."""

    id: int
    time_s: float
    gpus: int = 1
    most: int = 1
    idle_s: float = 300.0
    options: tuple[str, ...] = ()  # further options of sbatch
    setup: str | None = None  # a piece of shell: its variables are those of the node's jobs
    may_cut: bool = False  # jobs may start there that may not end in time
    failures: int = 0  # starts that failed, in a row
    failure: str | None = None
    paused: str | None = None
    is_removed: bool = False  # it asks for nothing more, and ends with its last allocation
    models: tuple[str, ...] = ()  # kinds of GPUs that its allocations had

    def after_failure(self, reason: str) -> Rule:
        """Count a start that failed; the third in a row pauses the rule."""
        failures = self.failures + 1
        paused = self.paused
        if failures >= MOST_FAILURES and paused is None:
            paused = f"{failures} starts in a row failed, the last one: {reason}"
        return msgspec.structs.replace(self, failures=failures, failure=reason, paused=paused)

    def after_success(self, models: Iterable[str]) -> Rule:
        """Note that an allocation has become a node, and which kinds of GPUs it has."""
        known = tuple(sorted({*self.models, *models}))
        return msgspec.structs.replace(self, failures=0, failure=None, models=known)

    def resumed(self) -> Rule:
        """Ask again."""
        return msgspec.structs.replace(self, failures=0, failure=None, paused=None)


class Stage(str, enum.Enum):
    """Where an allocation is on its way."""

    QUEUED = "queued"  # the batch system has not started it
    STARTING = "starting"  # it runs, and its node has not joined yet
    UP = "up"
    ENDING = "ending"  # no job starts there; it is given back when its jobs have ended
    CANCELLED = "cancelled"  # the batch system was told to end it


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An allocation that was asked for and is not over."""

    id: int  # of the batch system
    rule: int
    stage: Stage = Stage.QUEUED
    why: str | None = None  # why it is queued, or why it is given back
    began_at: float | None = None  # Unix time of its start

    @property
    def is_coming(self) -> bool:
        """Whether its GPUs will be there, but are not yet."""
        return self.stage in (Stage.QUEUED, Stage.STARTING)


class Need(NamedTuple):
    """What a waiting job needs of an allocation. `lasts_s` is None if the time is unknown."""

    gpus: int
    timeout_s: float | None = None
    expected_s: float | None = None
    may_be_cut: bool = False
    model: str | None = None  # part of the name of the kind of GPU
    elsewhere: bool = False  # it wants a node or a label that no allocation has


def needed_s(need: Need, *, may_cut: bool) -> float | None:
    """Return for how long a slot must last for a job to start there; None if that is unknown.

    A job fits by its time limit or by what its kind usually takes, with a margin. A job that may be cut,
    because it or the rule says so, needs a little time only.
    """
    if need.may_be_cut or may_cut:
        return USEFUL_S
    known = [] if need.timeout_s is None else [need.timeout_s]
    if need.expected_s is not None:
        known.append(need.expected_s * _MARGIN + GRACE_S)
    return min(known, default=None)


def why_unfit(rule: Rule, need: Need) -> str | None:
    """Return why a job cannot run on a new allocation of a rule; None if it can."""
    if need.elsewhere:
        return "the job wants another node"
    if need.gpus > rule.gpus:
        return f"the job needs {need.gpus} GPUs, and an allocation has {rule.gpus}"
    if need.model is not None and rule.models:
        wanted = need.model.lower()
        if not any(wanted in model.lower() for model in rule.models):
            return f"its GPUs are {', '.join(rule.models)}"
    seconds = needed_s(need, may_cut=rule.may_cut)
    if seconds is None:
        return "how long the job takes is not known (--timeout tells, --preemptible lets it be cut)"
    if seconds > rule.time_s - LEAVE_S - START_S:
        return "the job may take longer than an allocation lasts"
    return None


def count_wanted(rule: Rule, needs: Iterable[Need]) -> int:
    """Return how many GPUs waiting jobs could use on new allocations of a rule."""
    return sum(need.gpus for need in needs if why_unfit(rule, need) is None)


def should_ask(rule: Rule, allocations: Iterable[Allocation], wanted: int) -> bool:
    """Whether to ask for one more allocation: jobs could use it beside those that are coming."""
    if rule.paused is not None or rule.is_removed:
        return False
    own = [each for each in allocations if each.rule == rule.id]
    if len(own) >= rule.most or any(each.stage is Stage.QUEUED for each in own):
        return False
    return wanted > rule.gpus * sum(each.is_coming for each in own)


class NodeUse(NamedTuple):
    """How the node of an allocation is used now. Times are from now on."""

    idle_s: float | None = None  # since when it has no job; None if it has one
    left_s: float | None = None  # until the batch system ends it; None without an end


def why_give_back(rule: Rule | None, allocation: Allocation, use: NodeUse) -> str | None:
    """Return why an allocation that is up is to get no more jobs; None if it may go on."""
    if allocation.stage is not Stage.UP:
        return None
    if rule is None or rule.is_removed:
        return "its rule was removed"
    if use.left_s is not None and use.left_s <= LEAVE_S:
        return "its time is over"
    if use.idle_s is not None and use.idle_s >= rule.idle_s:
        return "it was idle"
    return None


def why_withdraw(
    rule: Rule | None, allocation: Allocation, unwanted_s: float | None, waited_s: float | None
) -> str | None:
    """Return why to cancel an allocation that is no node yet; None if it may go on.

    `unwanted_s`: for how long no job has wanted it; None if one wants it. `waited_s`: for how long it runs
    already without a node; None if it does not run.
    """
    if not allocation.is_coming:
        return None
    if rule is None or rule.is_removed:
        return "its rule was removed"
    if allocation.stage is Stage.QUEUED and unwanted_s is not None and unwanted_s >= rule.idle_s:
        return "no job waits for it any more"
    if waited_s is not None and waited_s > JOIN_S:
        return "its node did not join"
    return None


def find_stops(graces_s: Mapping[str, float], left_s: float | None) -> list[str]:
    """Return the attempts to end now, so that each has its grace before the node is given back.

    `graces_s` has the attempts that are not known to be over in time.
    """
    if left_s is None:
        return []
    return [key for key, grace_s in graces_s.items() if left_s <= LEAVE_S + grace_s]
