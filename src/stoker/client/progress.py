"""Waiting for jobs through restarts of the daemon, for every client, whatever it makes of the answers."""

from __future__ import annotations

from stoker.client.session import make_target
from stoker.client.transport import BrokenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stoker import wire
    from stoker.client.session import Session


def follow_progress(
    session: Session,
    selection: wire.Selection | None,
    decode: Callable[[bytes], wire.Progress],
    on_notice: Callable[[str], None] | None,
    *,
    unfinished: bool,
) -> Iterator[wire.Progress]:
    """Yield the progress of jobs: now, after each change, and when none is left.

    With `unfinished` instead of a selection: of the jobs that wait or run now, without held ones.
    """
    target = make_target("wait", selection, unfinished=unfinished or None)
    while True:
        try:
            for line in session.lines(target):
                progress = decode(line)
                yield progress
                if not progress.left:
                    return
                if unfinished:
                    target = make_target(
                        "wait", unfinished=True, since=progress.since, last=progress.last
                    )
        except BrokenError:
            session.wait_for_daemon(on_notice)
