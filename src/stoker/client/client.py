"""The queue, from Python: every verb of the command line as a method, with the wire's own types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

import msgspec

from stoker import wire
from stoker.client import log_stream as logs
from stoker.client.query import make_query
from stoker.client.session import Session
from stoker.client.submission_parts import split_submission
from stoker.client.submit import begin
from stoker.client.transport import BrokenError

T = TypeVar("T")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Client:
    """Talks to the daemon of a home; for one thread, and best in a `with` block.

    `home` is the state folder, by default the user's own. With `start` the daemon is started where
    none runs. One that died is started again when it is needed in any case, unless `restart` is
    false; one that was stopped is not. Every method raises StokerError
    when it cannot do its work: UsageError for what makes no sense, NotFoundError for what does not
    exist, ConflictError for what is in no state for it, NoDaemonError where no daemon runs, and
    BrokenError where it went away before it had answered. Where `wait` or a followed log has to wait
    for a daemon that was stopped, `tell` is called with a line that says so.

        with Client(start=True) as client:
            jobs = [NewJob(command="python train.py --lr 0.1")]
            [added] = client.add(Submission(request_id="", jobs=jobs, cwd="/data"))
            for progress in client.wait(Selection(ids=str(added.first))):
                print(progress.left, "left")
    """

    def __init__(
        self,
        home: str | None = None,
        start: bool = False,
        *,
        restart: bool = True,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if home is None:
            from stoker.home import find_home

            home = find_home()
        self.home = home
        self._tell = tell
        self._session = Session(home, start=start, restart=restart)

    def __enter__(self) -> Client:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the next call connects again."""
        self._session.close()

    def add(self, submission: wire.Submission) -> list[wire.Added]:
        """Put jobs into the queue; they are on disk when this returns.

        An empty request id is replaced by a new one. More than 100,000 jobs, or too many bytes, are
        sent in several requests, in the order of the jobs, with one answer for each. A daemon that
        dies meanwhile does no harm: what is sent again with the same request id is added once.
        """
        return self.begin_add(submission)()

    def begin_add(self, submission: wire.Submission) -> Callable[[], list[wire.Added]]:
        """Send jobs as `add` does, without waiting; what is returned waits until they are on disk."""
        first, *others = split_submission(submission)
        answer = self._begin(first)
        return lambda: [answer(), *(self._begin(part)() for part in others)]

    def _begin(self, part: wire.Submission) -> Callable[[], wire.Added]:
        answer = begin(self.home, _encode(part), part.request_id, start=self._session.start)
        return lambda: _decode(answer(), type=wire.Added)

    def ls(
        self,
        selection: wire.Selection | None = None,
        *,
        text: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> wire.Page:
        """One page of the jobs selected (of all, by default), at most 1000 of them.

        `after` is the `next` of the page before; `text` must occur in a job's name or command.
        NotFoundError for a project that no job was ever added to.
        """
        strict = selection is not None and selection.project is not None
        query = make_query(selection, text=text, strict=strict or None, after=after, limit=limit)
        return _decode(self._session.get(f"/v1/ls{query}"), type=wire.Page)

    def jobs(
        self, selection: wire.Selection | None = None, *, text: str | None = None
    ) -> Iterator[wire.Job]:
        """All jobs selected, fetched a page at a time."""
        after = None
        while True:
            page = self.ls(selection, text=text, after=after, limit=1000)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def sweep(self, name: str, cwd: str, *, params: bool = False) -> Iterator[wire.SweepRun]:
        """The runs of a sweep that was submitted from a folder, the oldest first; a page at a time."""
        after: int | None = None
        while True:
            query = make_query(name=name, cwd=cwd, after=after, limit=10_000, params=params or None)
            page = _decode(self._session.get(f"/v1/sweep{query}"), type=wire.SweepPage)
            yield from page.runs
            after = page.next
            if after is None:
                return

    def web(self, order: wire.WebOrder) -> wire.WebPlace | None:
        """Open the web page, or close it; where it is, if it is open."""
        answer = self._session.request("POST", "/v1/web", _encode(order))
        return _decode(answer, type=wire.WebPlace | None)

    def show(self, job: str | int) -> wire.JobDetail:
        """Everything about one job: its id, `@` for the last one, or its name."""
        query = make_query(job=str(job))
        return _decode(self._session.get(f"/v1/show{query}"), type=wire.JobDetail)

    def log(
        self,
        job: str | int,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """The output of a job in pieces, byte for byte; `daemon` for the daemon's own log.

        It is that of the last attempt, or of the one named, and of that the last `tail` lines. With
        `follow` it goes on until the job is over: through further attempts unless one was named, and
        through a new start of the daemon.
        """
        if not follow:
            return logs.read_log(self._session, str(job), attempt, tail)
        return logs.follow_log(self._session, str(job), attempt, tail, self._tell)

    def kill(self, order: wire.Kill) -> wire.Changed:
        """End jobs, each with everything it has started."""
        return self._change("POST", "kill", order, wire.Changed)

    def rm(self, order: wire.Remove) -> wire.Changed:
        """Forget jobs and their logs."""
        return self._change("POST", "rm", order, wire.Changed)

    def retry(self, order: wire.Retry) -> wire.Changed:
        """Let jobs that are over run once more."""
        return self._change("POST", "retry", order, wire.Changed)

    def hold(self, order: wire.Hold) -> wire.Changed:
        """Let jobs that have not begun wait until they are released."""
        return self._change("POST", "hold", order, wire.Changed)

    def release(self, order: wire.Release) -> wire.Changed:
        """Let held jobs go on."""
        return self._change("POST", "release", order, wire.Changed)

    def pause(self, order: wire.Pause) -> wire.Changed:
        """Stop running jobs where they are; or let the queue, or a project, start nothing more."""
        return self._change("POST", "pause", order, wire.Changed)

    def resume(self, order: wire.Resume) -> wire.Changed:
        """Let paused jobs, the queue, or a project's part of it go on."""
        return self._change("POST", "resume", order, wire.Changed)

    def start(self, order: wire.Start) -> wire.Changed:
        """Let jobs start as the very next."""
        return self._change("POST", "start", order, wire.Changed)

    def preempt(self, order: wire.Preempt) -> wire.Changed:
        """Let running jobs make room and wait again."""
        return self._change("POST", "preempt", order, wire.Changed)

    def move(self, order: wire.Move) -> wire.Moved:
        """Put a waiting job at a position of the queue."""
        return self._change("POST", "move", order, wire.Moved)

    def set(self, order: wire.Set) -> wire.Changed:
        """Change what jobs ask for."""
        return self._change("POST", "set", order, wire.Changed)

    def why(self, job: str | int) -> wire.Why:
        """Why a job stands where it stands."""
        query = make_query(job=str(job))
        return _decode(self._session.get(f"/v1/why{query}"), type=wire.Why)

    def gpus(self, order: wire.GpuOrder) -> wire.GpuChange:
        """Add a slot, drain it or remove it."""
        return self._change("POST", "gpus", order, wire.GpuChange)

    def read_gpus(self) -> list[wire.GpuInfo]:
        """How every GPU is, on whichever machine."""
        return _decode(self._session.get("/v1/gpus"), type=list[wire.GpuInfo])

    def nodes(self) -> list[wire.NodeInfo]:
        """Every machine of the cluster."""
        return _decode(self._session.get("/v1/nodes"), type=list[wire.NodeInfo])

    def forget_node(self, name: str) -> list[wire.NodeInfo]:
        """Expect a node no more; answered with those that are left."""
        order = wire.NodeOrder(action="forget", node=name)
        return self._change("POST", "nodes", order, list[wire.NodeInfo])

    def wait(
        self, selection: wire.Selection | None = None, *, unfinished: bool = False
    ) -> Iterator[wire.Progress]:
        """How far jobs are: now, after each change, and for the last time when none is left.

        With `unfinished` instead of a selection: those that wait or run now, without held ones. Changes
        that follow each other quickly are told as one. It outlasts a new start of the daemon.
        """
        target = f"/v1/wait{make_query(selection, unfinished=unfinished or None)}"
        while True:
            try:
                for line in self._session.lines(target):
                    progress = _decode(line, type=wire.Progress)
                    yield progress
                    if not progress.left:
                        return
                    if unfinished:
                        query = make_query(
                            unfinished=True, since=progress.since, last=progress.last
                        )
                        target = f"/v1/wait{query}"
            except BrokenError:
                self._session.wait_for_daemon(self._tell)

    def status(self) -> wire.Status:
        """How the daemon is: its slots, how many jobs stand where, what a person should know."""
        return _decode(self._session.get("/v1/status"), type=wire.Status)

    def config(self) -> list[wire.Setting]:
        """Every entry of the configuration."""
        return _decode(self._session.get("/v1/config"), type=list[wire.Setting])

    def set_config(self, setting: wire.NewSetting) -> wire.Setting:
        """Change one entry of the configuration; most count at once, others after a restart."""
        return self._change("PATCH", "config", setting, wire.Setting)

    def events(self) -> Iterator[wire.StreamEvent]:
        """What happens to jobs and slots from now on; BrokenError when the daemon goes."""
        lines = self._session.lines("/v1/events")
        return (_decode(line, type=wire.StreamEvent) for line in lines)

    def stop(self, *, kill: bool = False) -> None:
        """End the daemon. Jobs that run go on, unless `kill` ends them too."""
        self._session.request("POST", "/v1/stop", _encode(wire.Stop(kill=kill)))
        self.close()

    def _change(self, method: str, verb: str, order: msgspec.Struct, kind: type[T]) -> T:
        return _decode(self._session.request(method, f"/v1/{verb}", _encode(order)), type=kind)
