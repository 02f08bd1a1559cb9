"""Queueing of a sweep's runs in parts, so that a million runs are never in memory at once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stoker.client.client import Client
from stoker.core.durations import parse_duration
from stoker.core.sharing.rules import AUTO
from stoker.errors import UsageError
from stoker.submit_context import build_submission, new_request_id
from stoker.sweeps.plan import Run, Sweep
from stoker.wire import Added, NewJob, NewRun, SearchOrder, Submission, to_wire

_PART = 20_000


@contextlib.contextmanager
def submission_lock(
    home: str, name: str, cwd: str, on_wait: Callable[[str], None] = lambda _text: None
) -> Iterator[None]:
    """Lock out other submissions of the same sweep: a run that is queued twice would run twice.

    A second process waits, after a call of `on_wait`, and then sees what the first has queued.
    """
    folder = os.path.join(home, "locks")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    key = hashlib.sha256(os.fsencode(f"{name}\0{cwd}")).hexdigest()[:32]
    file = os.open(os.path.join(folder, key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait(f"another process is submitting sweep {name}: waiting until it has finished")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def describe_runs(
    sweep: Sweep,
    folder: bytes,
    given: Mapping[str, Any],
    environment: dict[str, Any] | None = None,
) -> Submission:
    """Return a submission with the options of all runs; `queue_runs` replaces its jobs.

    An option has its `given` value, or that of the definition, or the default. Runs share GPUs by default.
    `timeout` is a duration in the user's notation; all other options are fields of a Submission.
    """
    options: dict[str, Any] = {
        "share": AUTO.text,
        "warm": sweep.warm,
        **msgspec.structs.asdict(sweep.resources),
        **{name: value for name, value in given.items() if value is not None},
        "sweep": sweep.name,
        "project": sweep.name,
    }
    if options.get("image") is not None and "warm" not in given and sweep.is_warm_by_default:
        options["warm"] = ()  # a container starts nothing that was forked here
    timeout = options.pop("timeout")
    if timeout is not None:
        options["timeout_s"] = parse_duration(timeout)
    jobs = [NewJob(command="of a part")]
    try:
        message = build_submission(jobs, folder, options, environment)
        message["env"] = {**message.get("env", {}), **sweep.variables}
        return msgspec.convert(message, Submission)
    except msgspec.ValidationError as error:
        raise UsageError(f"a wrong option of the sweep: {error}") from None


def make_search_order(sweep: Sweep, cwd: str, common: Submission) -> SearchOrder:
    """Return the order to steer a sweep while it runs."""
    return SearchOrder(
        name=sweep.name,
        cwd=cwd,
        definition=sweep.source.definition,
        words=sweep.source.words,
        portable=sweep.source.portable,
        submission=msgspec.structs.replace(common, request_id=new_request_id()),
    )


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
    while jobs := [job_of(run) for run in itertools.islice(rest, _PART)]:
        yield msgspec.structs.replace(common, request_id=new_request_id(), jobs=jobs)


def job_of(run: Run) -> NewJob:
    """Return the job of a run, for a submission."""
    folder = run.dir if run.dir.isascii() else to_wire(os.fsencode(run.dir))
    return NewJob(
        command=run.command, run=NewRun(identity=run.identity, dir=folder, params=run.params_json)
    )
