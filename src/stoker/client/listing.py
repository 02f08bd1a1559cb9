"""Lists of jobs for a table: as `Client` reads them, without the import of the interface's types.

That import takes three times as long as the start of Python, and `stoker ls` is typed all day.
"""

from __future__ import annotations

from stoker.client.fast_json import loads
from stoker.client.session import Session, make_target
from stoker.core.lifecycle import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stoker import wire
    from stoker.wire import Selection as Selection
else:

    class Selection:
        """The jobs that a verb is about, as `wire.Selection`."""

        def __init__(self, ids=None, states=(), project=None, all=False) -> None:  # noqa: A002
            self.ids = ids
            self.states = states
            self.project = project
            self.all = all


_PAGE = 1000


class _Facts:
    """An object of an answer, with its fields as attributes."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)


class _Job(_Facts):
    """A job; what an older daemon does not tell has the default of `wire.Job`."""

    begin_at = failure = ends_at = reserved_bytes = gpu_bytes = mark = None
    capped = False


class Listing:
    """Reads jobs and the state of the queue from the daemon of a home; use it in a `with` block."""

    def __init__(self, home: str) -> None:
        self._session = Session(home)

    def __enter__(self) -> Listing:  # noqa: PYI034 - typing has Self, and costs too much
        return self

    def __exit__(self, *_details: object) -> None:
        self._session.close()

    def ls(
        self, selection: Selection | None = None, *, after: str | None = None, limit: int = 100
    ) -> wire.Page:
        """Return one page of the selected jobs."""
        strict = (selection is not None and selection.project is not None) or None
        page = self._get("ls", selection, strict=strict, after=after, limit=limit)
        page.jobs = [read_job(fields) for fields in page.jobs]
        return page  # type: ignore[no-any-return]

    def jobs(self, selection: Selection) -> Iterator[wire.Job]:
        """Yield all selected jobs."""
        after = None
        while True:
            page = self.ls(selection, after=after, limit=_PAGE)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def status(self) -> wire.Status:
        """Return the state of the queue."""
        status = self._get("status")
        status.counts = {State(name): count for name, count in status.counts.items()}
        return status  # type: ignore[no-any-return]

    def _get(self, verb: str, selection: Selection | None = None, **query: Any) -> Any:
        answer = self._session.get(make_target(verb, selection, **query))
        return _Facts(loads(answer.decode()))


def read_job(fields: dict[str, Any]) -> _Job:
    """Return a job of an answer, with the attributes of `wire.Job`."""
    fields["state"] = State(fields["state"])
    if fields.get("mark") is not None:
        mark = _Facts(fields["mark"])
        mark.kind = _Facts({"value": fields["mark"]["kind"]})  # type: ignore[attr-defined]
        fields["mark"] = mark
    return _Job(fields)
