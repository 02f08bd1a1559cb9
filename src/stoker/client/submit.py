"""Sends jobs so that none is lost and none doubled, whatever happens to the daemon meanwhile."""

from __future__ import annotations

from stoker.client.transport import BrokenError, Connection, NoDaemonError
from stoker.errors import StokerError
from stoker.submit_context import new_request_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE_S = 30.0

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


def submit(home: str, submission: dict[str, Any]) -> dict[str, Any]:
    """Add jobs: a wire.Submission and its wire.Added as plain dictionaries.

    The daemon is started if none runs. A submission without a request id gets one.
    """
    from stoker.client.fast_json import dumps, loads

    submission.setdefault("request_id", new_request_id())
    added = send(home, dumps(submission).encode(), submission["request_id"])
    return loads(added.decode())  # type: ignore[no-any-return]


def send(home: str, body: bytes, request_id: str, *, start: bool = True) -> bytes:
    """Send a submission until it is answered; it is one submission, however often it is sent."""
    return begin(home, body, request_id, start=start)()


def begin(home: str, body: bytes, request_id: str, *, start: bool = True) -> Callable[[], bytes]:
    """Send a submission; what is returned waits for the answer, and sends it again if need be."""
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

    deadline = time.monotonic() + PATIENCE_S
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
                    f" {PATIENCE_S:.0f} s: they may or may not have been added; stoker ls shows them."
                    f" Sent again with the request id {request_id} they are added once"
                ) from error
