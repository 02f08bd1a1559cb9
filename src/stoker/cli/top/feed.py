"""What `stoker top` shows, fetched from the daemon by a thread: at each change, and once a second."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from stoker.cli.event_listener import EventListener
from stoker.cli.job_overview import JobOverview, fetch_overview
from stoker.cli.safe_text import clean
from stoker.client.client import Client
from stoker.core.lifecycle import State, is_live
from stoker.errors import NotFoundError, StokerError
from stoker.wire import GpuInfo, Job, Selection, Status, SweepInfo

_TICK_S = 1.0
_SHORTEST_PAUSE_S = 0.25
_LISTS_AGAIN_S = 5.0  # memory and expected ends change without an event
_SWEEPS_AGAIN_S = 3.0
_SAMPLE_AGAIN_S = 0.9
_PAST = 300
_JOBS = 120
_SWEEPS = 8
LOG_LINES = 200
_LOG_CHARACTERS = 500
_STATES = frozenset(state.value for state in State)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at one moment. `why` and `log` are those of the job `about`.

    `utilisation` has the last minutes of each GPU, by label, a value per second.
    """

    status: Status
    jobs: list[Job]
    left_out: list[str]
    gpus: list[GpuInfo]
    sweeps: list[SweepInfo]
    utilisation: dict[str, tuple[float | None, ...]]
    about: int | None = None
    why: str = ""
    log: tuple[str, ...] = ()


class Feed(threading.Thread):
    """Passes snapshots to `show` and errors to `fail`, both called in this thread."""

    def __init__(self, show: Callable[[Snapshot], None], fail: Callable[[str], None]) -> None:
        super().__init__(name="feed", daemon=True)
        self._show = show
        self._fail = fail
        self._wake = threading.Event()
        self._about: int | None = None
        self._text = ""
        self._stopping = False

    def look_at(self, job: int | None, text: str) -> None:
        """Fetch the log of this job, and the jobs that contain this text."""
        if (job, text) != (self._about, self._text):
            self._about, self._text = job, text
            self._wake.set()

    def hurry(self) -> None:
        """Fetch everything now: the user has changed something."""
        self._wake.set()

    def stop(self) -> None:
        """Fetch nothing more."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Fetch until stopped; while the daemon does not answer, try once a second."""
        while not self._stopping:
            try:
                with Client() as client:
                    self._follow(client)
            except StokerError as error:
                self._fail(f"trying again every second: {error}")
                self._wake.wait(_TICK_S)
                self._wake.clear()

    def _follow(self, client: Client) -> None:
        events = EventListener()
        events.changed = self._wake  # one event wakes this thread, whatever the reason
        source = _Source(client)
        is_first = True
        while not self._stopping:
            is_change = self._wake.is_set()
            self._wake.clear()
            if events.is_over:  # a request would wait for the daemon to come back
                raise StokerError("the daemon has stopped: stoker daemon start starts it")
            self._show(source.fetch(self._about, self._text, is_change=is_change))
            if is_first:
                events.start()  # after the first screen, which is urgent
                is_first = False
            time.sleep(_SHORTEST_PAUSE_S)
            self._wake.wait(_TICK_S - _SHORTEST_PAUSE_S)


class _Source:
    """Fetches each part of a snapshot as often as it can change."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._gpus: list[GpuInfo] = []
        self._pasts: dict[str, deque[float | None]] = {}
        self._status: Status | None = None
        self._listing = JobOverview([], [])
        self._sweeps: list[SweepInfo] = []
        self._subject: int | None = None
        self._why = ""
        self._log: tuple[str, ...] = ()
        self._listed_at = self._swept_at = self._sampled_at = -math.inf

    def fetch(self, about: int | None, text: str, *, is_change: bool) -> Snapshot:
        """Fetch what may differ from the snapshot before."""
        now = time.monotonic()
        if is_change or self._status is None or now - self._listed_at > _LISTS_AGAIN_S:
            self._listed_at = now
            self._status, self._listing = self._client.status(), self._list_jobs(text)
        if now - self._swept_at > _SWEEPS_AGAIN_S:
            self._swept_at = now
            self._sweeps = self._client.sweeps(_SWEEPS)
        if now - self._sampled_at > _SAMPLE_AGAIN_S:
            self._sample(is_first=not self._gpus)
            self._sampled_at = now
        jobs = self._listing.jobs
        subject = next((job for job in jobs if job.id == about), jobs[0] if jobs else None)
        self._read_detail(subject, is_change=is_change)
        return Snapshot(
            status=self._status,
            jobs=jobs,
            left_out=self._listing.left_out,
            gpus=self._gpus,
            sweeps=self._sweeps,
            utilisation={label: tuple(past) for label, past in self._pasts.items()},
            about=None if subject is None else subject.id,
            why=self._why,
            log=self._log,
        )

    def _list_jobs(self, text: str) -> JobOverview:
        """Return the jobs of a state, those that contain a text, or an overview of all."""
        if not text:
            return fetch_overview(self._client, Selection(), _JOBS)
        if text in _STATES:
            page = self._client.ls(Selection(states=[State(text)]), limit=_JOBS)
        else:
            page = self._client.ls(text=text, limit=_JOBS)
        return JobOverview(page.jobs, ["more that match"] if page.next else [])

    def _sample(self, *, is_first: bool) -> None:
        self._gpus = self._client.read_gpus(history=is_first)
        for gpu in self._gpus:
            past = self._pasts.setdefault(gpu.label, deque(maxlen=_PAST))
            past.extend(gpu.history.utilisation_pct if is_first else [gpu.utilisation_pct])

    def _read_detail(self, job: Job | None, *, is_change: bool) -> None:
        """Read why a job is in its state, and the last lines of its log, if they can have changed."""
        if job is None:
            self._subject, self._why, self._log = None, "", ()
            return
        is_other, self._subject = job.id != self._subject, job.id
        with contextlib.suppress(NotFoundError):
            if is_other or is_change:
                self._why = self._client.why(job.id).text
            if is_other or is_change or is_live(job.state):
                found = b"".join(self._client.log(job.id, tail=LOG_LINES)) if job.attempt else b""
                self._log = tuple(_lines_of(found))


def _lines_of(log: bytes) -> list[str]:
    """Return the lines of a log as a terminal shows them: hostile sequences are removed."""
    text = log.decode(errors="replace").rstrip("\n")
    # A carriage return starts a line over: only the last part is visible.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")] if text else []
    return [clean(line)[:_LOG_CHARACTERS] for line in lines[-LOG_LINES:]]
