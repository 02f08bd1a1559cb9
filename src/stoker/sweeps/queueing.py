"""Queueing of a sweep's runs in parts, so that a million runs are never in memory at once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator

import msgspec

from stoker.client.client import Client
from stoker.client.submit import new_request_id
from stoker.sweeps.plan import Run
from stoker.wire import Added, NewJob, NewRun, Submission, to_wire

_PART = 20_000


@contextlib.contextmanager
def alone(home: str, name: str, cwd: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Lock out other submissions of the same sweep: a run that is queued twice would run twice.

    A second process is told so by `tell`, waits, and then sees what the first has queued.
    """
    folder = os.path.join(home, "locks")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    key = hashlib.sha256(os.fsencode(f"{name}\0{cwd}")).hexdigest()[:32]
    file = os.open(os.path.join(folder, key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"sweep {name} is being submitted by another process: waiting for that")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def queue_runs(client: Client, runs: Iterable[Run], common: Submission) -> Iterator[Added]:
    """Add runs to the queue. All but the jobs and the request id is taken from `common`.

    Each part is on disk when its answer arrives: after an interruption, submitting the sweep again
    finishes it. The next part is made while the daemon writes the current one.
    """
    wait: Callable[[], list[Added]] | None = None
    for part in _parts(runs, common):
        if wait is not None:
            yield from wait()
        wait = client.begin_add(part)
    if wait is not None:
        yield from wait()


def _parts(runs: Iterable[Run], common: Submission) -> Iterator[Submission]:
    rest = iter(runs)
    while jobs := [_job(run) for run in itertools.islice(rest, _PART)]:
        yield msgspec.structs.replace(common, request_id=new_request_id(), jobs=jobs)


def _job(run: Run) -> NewJob:
    folder = run.dir if run.dir.isascii() else to_wire(os.fsencode(run.dir))
    return NewJob(
        command=run.command, run=NewRun(identity=run.identity, dir=folder, params=run.params_json)
    )
