"""What a sweep that was written on a page comes to."""

from __future__ import annotations

import itertools
import os

from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.files import read_toml, read_yaml
from stoker.sweeps.plan import Sweep, plan_sweep
from stoker.sweeps.tree import Map
from stoker.wire import PlannedRun, SweepDraft, SweepPlan

_SHOWN = 200
_SETTINGS = ("name", "method", "samples", "seed", "repeats")


def plan(home: str, draft: SweepDraft) -> SweepPlan:
    """How many runs a draft has, which of them are to be queued, and the first of those."""
    sweep = read_draft(draft)
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


def read_draft(draft: SweepDraft) -> Sweep:
    """The sweep of a draft, checked whole; what is wrong with it names the field it stands in."""
    if not os.path.isabs(draft.cwd) or "\0" in draft.cwd or not os.path.isdir(draft.cwd):
        raise UsageError(
            f"there is no folder {draft.cwd!r}: name one of this machine, from / on", field="cwd"
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
    """Where a mistake probably stands: in the parameters if the command is fine without them."""
    if draft.form != "words" or not words:
        return "text"
    from stoker.sweeps.inline import read_word

    try:
        names = {name for word in words for name in read_word(word).names}
    except UsageError:
        return "words"
    used = all(f"{{{name}" in draft.text for name in names)
    return "words" if used or "{args}" in draft.text else "text"
