"""Client of the daemon: each verb of the command line is a method, with the types of wire.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

import msgspec

from stoker import wire
from stoker.client.progress import follow_progress
from stoker.client.session import Session, Value, make_target
from stoker.client.submit import begin, split_submission
from stoker.client.transport import BrokenError
from stoker.errors import NotFoundError

T = TypeVar("T")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Client:
    """Sends requests to the daemon of a home; for one thread, and best in a `with` block.

    `home` is the state folder, by default the user's own. `start` starts the daemon if none runs.
    A daemon that died is started again when it is needed, unless `restart` is false; one that was
    stopped is not. Every method raises StokerError if it fails: UsageError for a wrong request,
    NotFoundError for what does not exist, ConflictError for a job or queue in the wrong state,
    NoDaemonError if no daemon runs, and BrokenError if it went away before it answered. `on_notice`
    is called with a line of text when `wait` or a followed log waits for a stopped daemon.

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
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        if home is None:
            from stoker.home import find_home

            home = find_home()
        self.home = home
        self._on_notice = on_notice
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
        """Close the connection; the next call connects again."""
        self._session.close()

    def add(self, submission: wire.Submission) -> list[wire.Added]:
        """Add jobs to the queue; they are on disk when this returns.

        An empty request id is replaced by a new one. More than 100,000 jobs, or too many bytes, are
        sent in several requests, in the order of the jobs, with one answer for each. If the daemon
        dies meanwhile, the request is sent again; the same request id is added only once.
        """
        return self.begin_add(submission)()

    def begin_add(self, submission: wire.Submission) -> Callable[[], list[wire.Added]]:
        """Send jobs as `add` does; the returned function waits until they are on disk."""
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
        """Return one page of the selected jobs (by default of all), at most 1000 of them.

        `after` is the `next` of the page before; `text` must occur in a job's name or command.
        Raises NotFoundError for a project that never had a job.
        """
        strict = (selection is not None and selection.project is not None) or None
        return self._get(
            "ls", wire.Page, selection, text=text, strict=strict, after=after, limit=limit
        )

    def jobs(
        self, selection: wire.Selection | None = None, *, text: str | None = None
    ) -> Iterator[wire.Job]:
        """Yield all selected jobs, fetched a page at a time."""
        after = None
        while True:
            page = self.ls(selection, text=text, after=after, limit=1000)
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def sweep(
        self, name: str, cwd: str, *, params: bool = False, after: int | None = None
    ) -> Iterator[wire.SweepRun]:
        """Yield the runs of a sweep that was submitted from the folder `cwd`, the oldest first.

        With `after` only those of later jobs.
        """
        while True:
            page = self._get(
                "sweep",
                wire.SweepPage,
                name=name,
                cwd=cwd,
                after=after,
                limit=10_000,
                params=params or None,
            )
            yield from page.runs
            after = page.next
            if after is None:
                return

    def sweep_folders(self, name: str) -> list[str]:
        """Return the folders from which a sweep was submitted, the last one first."""
        known = self.sweeps(200)
        return [os.fsdecode(wire.from_wire(each.cwd)) for each in known if each.name == name]

    def forecast(self, order: wire.WhatIf) -> wire.Prediction:
        """Return how jobs would run that are not in the queue."""
        return self._post("forecast", order, wire.Prediction)

    def search(self, order: wire.SearchOrder) -> wire.SearchBegun:
        """Let the daemon steer a sweep while it runs; the order is on disk when this returns."""
        return self._post("search", order, wire.SearchBegun)

    def prune(self, order: wire.Prune) -> wire.Changed:
        """Stop runs of a sweep early."""
        return self._post("prune", order, wire.Changed)

    def web(self, order: wire.WebOrder) -> wire.WebPlace | None:
        """Open the web page and return its address, or close it."""
        answer = self._session.request("POST", "/v1/web", _encode(order))
        return _decode(answer, type=wire.WebPlace | None)

    def show(self, job: str | int) -> wire.JobDetail:
        """Return everything about one job; `job` is its id, its name, or `@` for the last one."""
        return self._get("show", wire.JobDetail, job=str(job))

    def log(
        self,
        job: str | int,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """Yield the output of a job byte for byte; of the daemon's own log for `daemon`.

        It is that of the last attempt, or of `attempt`; with `tail` only its last lines. With
        `follow` it goes on until the job has ended: through further attempts unless one was named,
        and through restarts of the daemon.
        """
        target = make_target("log", job=str(job), attempt=attempt, tail=tail, follow=follow or None)
        headers, chunks = self._session.stream(target)
        return self._follow_log(str(job), attempt, headers, chunks) if follow else chunks

    def _follow_log(
        self, job: str, attempt: int | None, headers: dict[str, str], chunks: Iterator[bytes]
    ) -> Iterator[bytes]:
        number = int(headers["stoker-job"])
        job = str(number) if number else job  # another job may get the name meanwhile
        current = int(headers["stoker-attempt"])
        offset = int(headers["stoker-offset"])
        while True:
            try:
                for chunk in chunks:
                    offset += len(chunk)
                    yield chunk
            except BrokenError:
                self._session.wait_for_daemon(self._on_notice)
            else:
                if attempt is not None or not number:
                    return
                current, offset = current + 1, 0
            target = make_target(
                "log", job=job, attempt=current or None, offset=offset, follow=True
            )
            try:
                _headers, chunks = self._session.stream(target)
            except NotFoundError:
                return

    def kill(self, order: wire.Kill) -> wire.Changed:
        """End jobs with all their processes."""
        return self._post("kill", order, wire.Changed)

    def rm(self, order: wire.Remove) -> wire.Changed:
        """Remove jobs and their logs."""
        return self._post("rm", order, wire.Changed)

    def retry(self, order: wire.Retry) -> wire.Changed:
        """Run jobs that have ended again."""
        return self._post("retry", order, wire.Changed)

    def hold(self, order: wire.Hold) -> wire.Changed:
        """Keep jobs that have not begun from starting until they are released."""
        return self._post("hold", order, wire.Changed)

    def release(self, order: wire.Release) -> wire.Changed:
        """Release held jobs."""
        return self._post("release", order, wire.Changed)

    def pause(self, order: wire.Pause) -> wire.Changed:
        """Stop running jobs with SIGSTOP; or let the queue, or a project, start no more jobs."""
        return self._post("pause", order, wire.Changed)

    def suspend(self, order: wire.Suspend) -> wire.Changed:
        """Move the GPU memory of running jobs to host RAM."""
        return self._post("suspend", order, wire.Changed)

    def resume(self, order: wire.Resume) -> wire.Changed:
        """Resume paused and suspended jobs, the queue, or a project."""
        return self._post("resume", order, wire.Changed)

    def start(self, order: wire.Start) -> wire.Changed:
        """Start jobs before all others."""
        return self._post("start", order, wire.Changed)

    def preempt(self, order: wire.Preempt) -> wire.Changed:
        """End running jobs and let them wait again."""
        return self._post("preempt", order, wire.Changed)

    def move(self, order: wire.Move) -> wire.Moved:
        """Move a waiting job to a position of the queue."""
        return self._post("move", order, wire.Moved)

    def set(self, order: wire.Set) -> wire.Changed:
        """Change settings of jobs."""
        return self._post("set", order, wire.Changed)

    def why(self, job: str | int) -> wire.Why:
        """Explain the state of a job."""
        return self._get("why", wire.Why, job=str(job))

    def gpus(self, order: wire.GpuOrder) -> wire.GpuChange:
        """Add a slot, drain it or remove it."""
        return self._post("gpus", order, wire.GpuChange)

    def read_gpus(self, *, history: bool = False) -> list[wire.GpuInfo]:
        """Return the state of every GPU of all machines; with `history` also their last minutes."""
        return self._get("gpus", list[wire.GpuInfo], history=history or None)

    def sweeps(self, limit: int = 50) -> list[wire.SweepInfo]:
        """Return the sweeps, the newest first."""
        return self._get("sweeps", list[wire.SweepInfo], limit=limit)

    def reserve(self, order: wire.Reserve) -> wire.UserReservationInfo:
        """Keep GPUs of this machine for some time."""
        return self._post("reserve", order, wire.UserReservationInfo)

    def reservations(self) -> list[wire.UserReservationInfo]:
        """Return the reservations that have not ended."""
        return self._get("reserve", list[wire.UserReservationInfo])

    def end_reservation(self, order: wire.EndReservation) -> wire.UserReservationInfo:
        """End a reservation now."""
        return self._post("reserve/end", order, wire.UserReservationInfo)

    def nodes(self) -> list[wire.NodeInfo]:
        """Return every machine of the cluster."""
        return self._get("nodes", list[wire.NodeInfo])

    def change_node(self, order: wire.NodeOrder) -> list[wire.NodeInfo]:
        """Forget or drain a node; returns the nodes that are left."""
        return self._post("nodes", order, list[wire.NodeInfo])

    def allocations(self) -> list[wire.AllocationRule]:
        """Return the rules for allocations of Slurm."""
        return self._get("allocations", list[wire.AllocationRule])

    def add_allocation_rule(self, order: wire.NewAllocationRule) -> wire.AllocationRule:
        """Add a rule; Slurm is asked whether it would give such an allocation."""
        return self._post("allocations", order, wire.AllocationRule)

    def change_allocation_rule(self, order: wire.AllocationOrder) -> wire.AllocationRule:
        """Pause, resume or remove a rule."""
        return self._post("allocation", order, wire.AllocationRule)

    def wait(
        self, selection: wire.Selection | None = None, *, unfinished: bool = False
    ) -> Iterator[wire.Progress]:
        """Yield the progress of jobs: now, after each change, and when none is left.

        With `unfinished` instead of a selection: of the jobs that wait or run now, without held ones.
        Quick changes are combined to one. It goes on through restarts of the daemon.
        """
        return follow_progress(
            self._session,
            selection,
            lambda line: _decode(line, type=wire.Progress),
            self._on_notice,
            unfinished=unfinished,
        )

    def status(self) -> wire.Status:
        """Return the state of the daemon: its slots, counts of jobs, and notices."""
        return self._get("status", wire.Status)

    def config(self) -> list[wire.Setting]:
        """Return all settings of the queue."""
        return self._get("config", list[wire.Setting])

    def set_config(self, setting: wire.NewSetting) -> wire.Setting:
        """Change a setting of the queue; most take effect at once, some after a restart."""
        return _decode(
            self._session.request("PATCH", "/v1/config", _encode(setting)), type=wire.Setting
        )

    def events(self) -> Iterator[wire.StreamEvent]:
        """Yield what happens to jobs and slots from now on; BrokenError when the daemon goes."""
        lines = self._session.lines("/v1/events")
        return (_decode(line, type=wire.StreamEvent) for line in lines)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the daemon. Running jobs go on, unless `kill` ends them."""
        self._session.request("POST", "/v1/stop", _encode(wire.Stop(kill=kill)))
        self.close()

    def _get(
        self, verb: str, kind: type[T], selection: wire.Selection | None = None, **query: Value
    ) -> T:
        return _decode(self._session.get(make_target(verb, selection, **query)), type=kind)

    def _post(self, verb: str, order: msgspec.Struct, kind: type[T]) -> T:
        return _decode(self._session.request("POST", f"/v1/{verb}", _encode(order)), type=kind)
