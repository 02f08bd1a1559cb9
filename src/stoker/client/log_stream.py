"""Logs that are followed to the very end: over further attempts, and over daemons that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stoker.client.query import make_query
from stoker.client.session import Session
from stoker.client.transport import BrokenError
from stoker.errors import NotFoundError


def read_log(session: Session, job: str, attempt: int | None, tail: int | None) -> Iterator[bytes]:
    """What a log holds now."""
    query = make_query(job=job, attempt=attempt, tail=tail)
    return session.stream(f"/v1/log{query}")[1]


def follow_log(
    session: Session,
    job: str,
    attempt: int | None,
    tail: int | None,
    tell: Callable[[str], None] | None = None,
) -> Iterator[bytes]:
    """What a log holds and gets; with the attempts that follow, unless one was named."""
    query = make_query(job=job, attempt=attempt, tail=tail, follow=True)
    headers, chunks = session.stream(f"/v1/log{query}")
    return _follow(session, job, attempt, headers, chunks, tell)


def _follow(
    session: Session,
    job: str,
    attempt: int | None,
    headers: dict[str, str],
    chunks: Iterator[bytes],
    tell: Callable[[str], None] | None,
) -> Iterator[bytes]:
    number = int(headers["stoker-job"])
    who = str(number) if number else job  # a name may come to mean another job meanwhile
    current = int(headers["stoker-attempt"])
    offset = int(headers["stoker-offset"])
    while True:
        try:
            for chunk in chunks:
                offset += len(chunk)
                yield chunk
        except BrokenError:
            session.wait_for_daemon(tell)
        else:
            if attempt is not None or not number:
                return
            current, offset = current + 1, 0
        query = make_query(job=who, attempt=current or None, offset=offset, follow=True)
        try:
            _headers, chunks = session.stream(f"/v1/log{query}")
        except NotFoundError:
            return
