"""What a sweep optimizes: its metrics, and the rule by which it stops runs early."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from stoker.core.durations import parse_duration
from stoker.core.early_stopping import ASHA, HYPERBAND, KINDS, MEDIAN, StopRule, bands_of
from stoker.errors import UsageError
from stoker.sweeps.parameters import plain
from stoker.sweeps.tree import Map, Seq, did_you_mean

IMPUTE = ("worst", "best", "latest")
_WHILE_RUNNING = "impute_while_running"  # of W&B: tpe keeps a distance to all runs that go on
_METRIC = ("name", "goal", "target", "regex", "impute", _WHILE_RUNNING)
_RULES = {
    HYPERBAND: ("min_iter", "max_iter", "s", "eta", "strict", "grace", "park"),
    ASHA: ("min_iter", "max_iter", "eta", "grace", "park"),
    MEDIAN: ("min_iter", "min_runs", "grace", "park"),
}
_EXAMPLE = "{type: hyperband, min_iter: 3}"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that compares runs. `regex` finds it in the log.

    The sweep ends once a run has reached `target`. `impute` is the value of a run that failed: the worst of
    all runs, or the best or the latest that it reported itself; without it such a run teaches nothing.
    """

    name: str
    goal: str = "minimize"
    regex: str | None = None
    target: float | None = None
    impute: str | None = None

    @property
    def is_maximized(self) -> bool:
        """Whether greater values are better."""
        return self.goal == "maximize"

    def reaches_target(self, value: float) -> bool:
        """Whether a value is as good as the target."""
        if self.target is None:
            return False
        return value >= self.target if self.is_maximized else value <= self.target


def read_metrics(tree: Map, notes: list[str]) -> tuple[Metric, ...]:
    """Parse `metric:`, a name, a mapping, or a list of mappings: several objectives. May add to `notes`."""
    given = tree.get("metric")
    if given is None:
        return ()
    items = list(given) if isinstance(given, Seq) else [given]
    if not items:
        tree.fail("metric", "metric is an empty list: {name: val_acc, goal: maximize}")
    found = tuple(_read_metric(tree, item, notes) for item in items)
    names = [metric.name for metric in found]
    for name in names:
        if names.count(name) > 1:
            tree.fail("metric", f"metric {name} is given twice")
    for metric in found:
        if len(found) > 1 and metric.target is not None:
            tree.fail("metric", "target needs one metric, and several are given: leave it out")
    return found


def _read_metric(tree: Map, given: Any, notes: list[str]) -> Metric:
    if isinstance(given, str):
        return Metric(name=given)
    if not isinstance(given, Map):
        tree.fail("metric", "metric must be a mapping: {name: val_acc, goal: maximize}")
    given.check_keys(_METRIC, "unknown key of metric")
    if _WHILE_RUNNING in given:
        notes.append(f"metric.{_WHILE_RUNNING}: has no effect here")
    name, goal, regex = given.get("name"), given.get("goal", "minimize"), given.get("regex")
    target, impute = given.get("target"), given.get("impute")
    if not isinstance(name, str):
        tree.fail("metric", "metric has no name: {name: val_acc, goal: maximize}")
    if goal not in ("minimize", "maximize"):
        given.fail("goal", f"goal is {goal!r}: it must be minimize or maximize")
    if regex is not None:
        try:
            re.compile(regex)
        except (re.error, TypeError) as error:
            given.fail("regex", f"cannot read the regex {regex!r}: {error}")
    if target is not None and not _is_number(target):
        given.fail("target", f"target is {plain(target)!r}: it must be a number")
    if impute is not None and impute not in IMPUTE:
        given.fail("impute", f"impute is {plain(impute)!r}: it must be worst, best or latest")
    return Metric(name=name, goal=goal, regex=regex, target=target, impute=impute)


def read_stop_rule(tree: Map, metrics: tuple[Metric, ...], notes: list[str]) -> StopRule | None:
    """Parse `early_terminate:`. May add to `notes`."""
    given = tree.get("early_terminate")
    if given is None:
        return None
    kind: Any = given
    if isinstance(given, str):
        given = Map()
    elif isinstance(given, Map):
        kind = given.get("type")
    else:
        tree.fail("early_terminate", f"early_terminate must be a mapping: {_EXAMPLE}")
    if not isinstance(kind, str) or kind not in KINDS:
        known = did_you_mean(str(kind), KINDS)
        tree.fail("early_terminate", f"no early_terminate type {plain(kind)!r}: {known}")
    if len(metrics) != 1:
        tree.fail(
            "early_terminate",
            "early_terminate compares runs by one metric: add metric: {name: val_acc, goal: maximize}"
            if not metrics
            else "early_terminate compares runs by one metric, and several are given: leave it out",
        )
    given.check_keys(("type", *_RULES[kind]), f"unknown key of {kind}")
    if given.get("strict") not in (None, False):
        notes.append("early_terminate.strict: has no effect here")
    rule = _make_rule(kind, given)
    if kind == HYPERBAND and not bands_of(rule):
        given.fail("max_iter", f"max_iter {rule.max_iter} leaves no iteration: increase it")
    return rule


def _make_rule(kind: Any, given: Map) -> StopRule:
    min_iter, max_iter, s = (_count(given, key) for key in ("min_iter", "max_iter", "s"))
    eta = given.get("eta", 3)
    if not _is_number(eta) or not eta > 1:
        given.fail("eta", f"eta is {plain(eta)!r}: it must be a number greater than 1")
    if kind == HYPERBAND and (min_iter is None) and (max_iter is None or s is None):
        raise UsageError(
            f"{given.place('type')}hyperband needs min_iter, or max_iter and s: {_EXAMPLE}"
        )
    rule = StopRule(
        kind=kind,
        min_iter=min_iter,
        # W&B takes max_iter if both are there.
        max_iter=max_iter if kind == ASHA or s is not None else None,
        s=s or 0,
        eta=float(eta),
        park=_switch(given, "park"),
    )
    min_runs, grace = _count(given, "min_runs"), given.get("grace")
    if min_runs is not None:
        rule = msgspec.structs.replace(rule, min_runs=min_runs)
    return rule if grace is None else msgspec.structs.replace(rule, grace_s=_seconds(given, grace))


def _switch(given: Map, key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        given.fail(key, f"{key} is {plain(value)!r}: write true or false")
    return value


def _count(given: Map, key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    whole = int(value) if _is_number(value) and float(value).is_integer() else 0
    if whole < 1:
        given.fail(key, f"{key} is {plain(value)!r}: it must be a whole number of at least 1")
    return whole


def _seconds(given: Map, grace: Any) -> float:
    try:
        return parse_duration(grace if isinstance(grace, str) else "")
    except (UsageError, ValueError):
        given.fail("grace", f"grace is {plain(grace)!r}: write 30s or 5m")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < float("inf")
