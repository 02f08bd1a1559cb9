"""From the words of a job of --sync to those that run it in a copy of its own, on this machine."""

from __future__ import annotations

import os
import sys

from stoker.core.job import Attempt, Options
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.staging.local_stage import LocalStage, visit_words
from stoker.store.submissions import JobEnvironment

COLD = "it runs in a copy of its own (--sync)"


def make_words_sync(
    words: list[str],
    attempt: Attempt,
    surroundings: JobEnvironment,
    options: Options,
    *,
    home: str,
    is_run: bool,
    limit_bytes: int | None,
) -> list[str]:
    """The words for one attempt. A sweep's run has its folder here: of that nothing is to be brought."""
    assert surroundings.snapshot is not None
    identity, _, inside = surroundings.snapshot.partition("/")
    visit = LocalStage(
        node_cache=os.path.join(home, "node_cache"),
        name=attempt.key,
        snapshot=os.path.join(home, "snapshots", identity),
        inside=inside,
        results=None if is_run else options.results,
        target=os.path.join(os.fsdecode(surroundings.cwd), options.results),
        limit_bytes=limit_bytes or sys.maxsize,
    )
    return visit_words(visit, words)


def transfer_of(
    words: list[str],
    surroundings: JobEnvironment,
    options: Options,
    *,
    home: str,
    run_dir: str | None,
    limit_bytes: int | None,
) -> AttemptTransfer:
    """What goes along where a job with a snapshot runs on another node; results only if it asked so."""
    assert surroundings.snapshot is not None
    identity, _, inside = surroundings.snapshot.partition("/")
    cwd = os.fsdecode(surroundings.cwd)
    run, results, target = None, options.results, os.path.join(cwd, options.results)
    if run_dir is not None:
        results, target = os.path.relpath(run_dir, cwd), run_dir
        run = (os.path.normpath(os.path.join(inside, results)), run_dir)
    return AttemptTransfer(
        argv=words,
        snapshot=os.path.join(home, "snapshots", identity),
        inside=inside,
        run=run,
        results=os.path.normpath(os.path.join(inside, results)) if options.sync else None,
        target=target,
        limit_bytes=limit_bytes or sys.maxsize,
    )
