"""Client for the verbs of every day: it answers as `Client` does, without the interface's types.

Their import takes three times as long as the start of Python, and `stoker ls` is typed all day.
"""

from __future__ import annotations

from stoker.client.fast_json import dumps, loads
from stoker.client.progress import follow_progress
from stoker.client.session import Session, make_target
from stoker.core.lifecycle import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


class _Use(_Facts):
    """What an attempt has used; what was not measured is not told."""

    mem_peak_bytes = sm_mean_pct = None


class LightClient:
    """Reads and changes jobs at the daemon of a home; use it in a `with` block.

    `on_notice` is called as that of `Client`.
    """

    def __init__(
        self, home: str | None = None, *, on_notice: Callable[[str], None] | None = None
    ) -> None:
        if home is None:
            from stoker.home import find_home

            home = find_home()
        self._on_notice = on_notice
        self._session = Session(home)

    def __enter__(self) -> LightClient:  # noqa: PYI034 - typing has Self, and costs too much
        return self

    def __exit__(self, *_details: object) -> None:
        self._session.close()

    def ls(
        self, selection: Selection | None = None, *, after: str | None = None, limit: int = 100
    ) -> wire.Page:
        """Return one page of the selected jobs."""
        strict = (selection is not None and selection.project is not None) or None
        page = _Facts(self._get("ls", selection, strict=strict, after=after, limit=limit))
        page.jobs = [read_job(fields) for fields in page.jobs]  # type: ignore[attr-defined]
        return page  # type: ignore[return-value]

    def jobs(self, selection: Selection) -> Iterator[wire.Job]:
        """Yield all selected jobs."""
        after = None
        while True:
            page = self.ls(selection, after=after, limit=_PAGE)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def show(self, job: str) -> wire.JobDetail:
        """Return everything about one job."""
        return read_detail(self._get("show", job=job))  # type: ignore[return-value]

    def status(self) -> wire.Status:
        """Return the state of the queue."""
        return read_status(self._get("status"))  # type: ignore[return-value]

    def wait(
        self, selection: Selection | None = None, *, unfinished: bool = False
    ) -> Iterator[wire.Progress]:
        """Yield the progress of jobs until none is left, as `Client.wait` does."""
        return follow_progress(
            self._session,
            selection,
            lambda line: _counted(loads(line.decode())),  # type: ignore[arg-type,return-value]
            self._on_notice,
            unfinished=unfinished,
        )

    def change(self, verb: str, order: dict[str, Any]) -> wire.Changed:
        """Let a verb change jobs; `order` has the fields of the verb's type in `wire.changes`."""
        answer = self._session.request("POST", f"/v1/{verb}", dumps(order).encode())
        fields = loads(answer.decode())
        fields["refused"] = [_Facts(each) for each in fields["refused"]]
        return _Facts(fields)  # type: ignore[return-value]

    def _get(self, verb: str, selection: Selection | None = None, **query: Any) -> Any:
        answer = self._session.get(make_target(verb, selection, **query))
        return loads(answer.decode())


def read_job(fields: dict[str, Any]) -> _Job:
    """Return a job of an answer, with the attributes of `wire.Job`."""
    fields["state"] = State(fields["state"])
    if fields.get("mark") is not None:
        mark = _Facts(fields["mark"])
        mark.kind = _Facts({"value": fields["mark"]["kind"]})  # type: ignore[attr-defined]
        fields["mark"] = mark
    return _Job(fields)


def read_detail(fields: dict[str, Any]) -> _Job:
    """Return a job of an answer, with the attributes of `wire.JobDetail`."""
    fields["attempts"] = [_read_attempt(each) for each in fields["attempts"]]
    fields["needs"] = [_read_state(each) for each in fields["needs"]]
    if fields["argv"] is not None:
        fields["argv"] = [_read_object(each) for each in fields["argv"]]
    for name in ("cwd", "git", "line", "log", "options", "sweep"):
        fields[name] = _read_object(fields.get(name))
    return read_job(fields)


def read_status(fields: dict[str, Any]) -> _Facts:
    """Return the state of the queue of an answer, with the attributes of `wire.Status`."""
    for slot in fields["slots"]:
        slot["shared"] = _read_object(slot.get("shared"))
    for name in ("slots", "warm"):
        fields[name] = [_Facts(each) for each in fields[name]]
    return _counted(fields)


def _read_attempt(fields: dict[str, Any]) -> _Facts:
    fields["log"] = _read_object(fields["log"])
    if fields.get("gpu_use") is not None:
        fields["gpu_use"] = _Use(fields["gpu_use"])
    return _read_state(fields)


def _read_object(value: Any) -> Any:
    """Return an object with its fields as attributes; text, and None, as they are."""
    return _Facts(value) if isinstance(value, dict) else value


def _read_state(fields: dict[str, Any]) -> _Facts:
    if fields["state"] is not None:
        fields["state"] = State(fields["state"])
    return _Facts(fields)


def _counted(fields: dict[str, Any]) -> _Facts:
    fields["counts"] = {State(name): count for name, count in fields["counts"].items()}
    return _Facts(fields)
