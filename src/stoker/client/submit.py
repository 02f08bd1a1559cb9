"""Submits jobs exactly once, also if the daemon dies meanwhile, and in parts if they are very many."""

from __future__ import annotations

from stoker.client.transport import BrokenError, Connection, NoDaemonError
from stoker.errors import StokerError
from stoker.submit_context import new_request_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from stoker import wire

RETRY_TIMEOUT_S = 30.0

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
# Half of the daemon's limit: the environment and escaped characters come on top.
_MAX_BYTES = 32 * 1024 * 1024


def submit(home: str, submission: dict[str, Any]) -> dict[str, Any]:
    """Add jobs: a wire.Submission and its wire.Added as plain dictionaries.

    The daemon is started if none runs. A submission without a request id gets one.
    """
    from stoker.client.fast_json import dumps, loads

    submission.setdefault("request_id", new_request_id())
    added = begin(home, dumps(submission).encode(), submission["request_id"])()
    return loads(added.decode())  # type: ignore[no-any-return]


def begin(home: str, body: bytes, request_id: str, *, start: bool = True) -> Callable[[], bytes]:
    """Send a submission; the returned function waits for the answer.

    It sends the submission again if the daemon goes away: the request id makes both one submission.
    """
    connect = _ensure if start else Connection

    def ask() -> Connection:
        connection = connect(home)
        connection.ask("POST", "/v1/add", body)
        return connection

    connection = ask()

    def finish() -> bytes:
        try:
            return _answer(connection)
        except BrokenError:
            return _send_again(lambda: _answer(ask()), request_id)

    return finish


def _ensure(home: str) -> Connection:
    try:
        return Connection(home)
    except NoDaemonError:
        from stoker.client.autostart import ensure_daemon

        return ensure_daemon(home)


def _answer(connection: Connection) -> bytes:
    try:
        return connection.answer().body
    finally:
        connection.close()


def _send_again(attempt: Callable[[], bytes], request_id: str) -> bytes:
    import time

    deadline = time.monotonic() + RETRY_TIMEOUT_S
    pause_s = _FIRST_PAUSE_S
    while True:
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        try:
            return attempt()
        except (BrokenError, NoDaemonError) as error:
            if time.monotonic() + pause_s > deadline:
                raise StokerError(
                    f"the daemon went away while it was taking the jobs, and did not answer within"
                    f" {RETRY_TIMEOUT_S:.0f}s: they may or may not have been added; stoker ls shows them."
                    f" Sent again with the request id {request_id} they are added once"
                ) from error


def split_submission(submission: wire.Submission) -> Iterator[wire.Submission]:
    """Yield the submission, or parts of it that fit into a request, each with its own request id.

    The same submission always gives the same parts and ids: the daemon recognises parts that are
    sent again.
    """
    import msgspec

    request_id = submission.request_id or new_request_id()
    for number, jobs in enumerate(_parts(submission.jobs)):
        own_id = request_id if len(jobs) == len(submission.jobs) else _part_id(request_id, number)
        yield msgspec.structs.replace(submission, request_id=own_id, jobs=jobs)


def _parts(jobs: list[wire.NewJob]) -> Iterator[list[wire.NewJob]]:
    from stoker.wire import MAX_JOBS

    first = size = 0
    for index, job in enumerate(jobs):
        job_bytes = _size_of(job)
        if index > first and (index - first >= MAX_JOBS or size + job_bytes > _MAX_BYTES):
            yield jobs[first:index]
            first, size = index, 0
        size += job_bytes
    yield jobs[first:]


def _size_of(job: wire.NewJob) -> int:
    if type(job.command) is str:
        size = 104 + len(job.command)
    else:
        words = job.command if isinstance(job.command, list) else [job.command]
        size = 100 + sum(4 + len(word if isinstance(word, str) else word.b64) for word in words)
    run = job.run
    return size if run is None else size + 300 + 2 * len(run.params)


def _part_id(request_id: str, number: int) -> str:
    import hashlib

    return hashlib.sha256(f"{request_id}/{number}".encode()).hexdigest()[:32]
