"""Plans a sweep that was written on the page: the number of its runs, and the first of them."""

from __future__ import annotations

import itertools
import os

from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.files import read_toml, read_yaml
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.sweeps.tree import Map, as_tree
from stoker.wire import PlannedRun, SweepDraft, SweepPlan

_SHOWN = 200
_SETTINGS = ("name", "method", "samples", "seed", "repeats")


def plan(home: str, draft: SweepDraft) -> SweepPlan:
    """Return how many runs a draft has, how many would be queued, and the first of these."""
    sweep = read_draft(draft)
    if sweep.is_adaptive:
        return _plan_adaptive(sweep)
    with Client(home, restart=False) as client:
        history = EarlierRuns(client.sweep(sweep.name, draft.cwd))
    rerun = Rerun(draft.rerun)
    shown = list(itertools.islice(history.choose(sweep, rerun), _SHOWN))
    todo = len(shown)
    if todo == _SHOWN:
        todo = sum(1 for _run in history.choose(sweep, rerun))
    return SweepPlan(
        name=sweep.name,
        count=sweep.count,
        todo=todo,
        root=sweep.root,
        varied=sweep.varied,
        metric=sweep.metric.name if sweep.metric else None,
        notes=sweep.notes,
        runs=[PlannedRun(id=run.id, command=run.command, params=run.params) for run in shown],
    )


def _plan_adaptive(sweep: Sweep) -> SweepPlan:
    """Return the plan of a sweep whose parameters are not known before its runs."""
    assert sweep.metric is not None
    return SweepPlan(
        name=sweep.name,
        count=sweep.count,
        todo=sweep.count,
        root=sweep.root,
        varied=sweep.varied,
        metric=sweep.metric.name,
        notes=[*sweep.notes, "each run is chosen by the results so far"],
        runs=[],
    )


def read_draft(draft: SweepDraft) -> Sweep:
    """Return the checked sweep of a draft; a UsageError names the field of the form."""
    if not os.path.isabs(draft.cwd) or "\0" in draft.cwd or not os.path.isdir(draft.cwd):
        raise UsageError(
            f"no folder {draft.cwd!r}: write the absolute path of one on this machine", field="cwd"
        )
    words = [word for word in draft.words if word.strip()]
    try:
        tree = _tree(draft)
        for key in _SETTINGS:
            value = getattr(draft, key)
            if value is not None:
                tree.pop("run_cap" if key == "samples" else key, None)
                tree.lines.pop(key, None)
                tree[key] = value
        if draft.metric is not None:
            tree["metric"] = as_tree({"name": draft.metric, "goal": draft.goal or "minimize"})
            tree.lines.pop("metric", None)
        return plan_sweep(tree, words, draft.cwd)
    except UsageError as error:
        error.field = error.field or _field(draft, words)
        raise


def _tree(draft: SweepDraft) -> Map:
    if draft.form == "yaml":
        return read_yaml(draft.text, "sweep.yaml")
    if draft.form == "toml":
        return read_toml(draft.text, "sweep.toml")
    if not draft.text.strip():
        raise UsageError(
            "no command was given; an example: python train.py --lr {lr}", field="text"
        )
    tree = Map()
    tree.put("command", draft.text.strip())
    return tree


def _field(draft: SweepDraft, words: list[str]) -> str:
    """Return the form field that is probably wrong: the parameters if the command uses them all."""
    if draft.form != "words" or not words:
        return "text"
    from stoker.sweeps.inline import read_word

    try:
        names = {name for word in words for name in read_word(word).names}
    except UsageError:
        return "words"
    used = all(f"{{{name}" in draft.text for name in names)
    return "words" if used or "{args}" in draft.text else "text"
