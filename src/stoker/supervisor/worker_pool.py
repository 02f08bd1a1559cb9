"""Pool of warm workers: starts them on demand, lets them fork jobs, and replaces outdated ones."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stoker.supervisor import process_tree, reports
from stoker.supervisor.job_reports import JobReports
from stoker.supervisor.signals import RESET_SIGNALS
from stoker.supervisor.slot_queues import Attempt, AttemptContext
from stoker.supervisor.warm_worker import NoWarmStartError, WarmWorker, WorkerState
from stoker.warm import messages
from stoker.warm.messages import ForkJob, Prepare, Ready, Unfit

if TYPE_CHECKING:
    from stoker.warm.messages import FileStamp

_WORKER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "warm")
# The package under a name of its own: Stoker need not be installed where jobs run.
_BOOT = (
    "import sys, importlib.util as u; s = u.spec_from_file_location('_stoker_warm',"
    " sys.argv[1] + '/__init__.py', submodule_search_locations=[sys.argv[1]]);"
    " m = sys.modules[s.name] = u.module_from_spec(s); s.loader.exec_module(m);"
    " from _stoker_warm.worker import main; main()"
)
_PASSED_FD = 3
_IDLE_S = 600.0
_UNFIT_FOR_S = 600.0
_MAX_LOST = 3  # workers for one key in a row that were lost before they forked a job
_MAX_LEFT_OUT = 8  # packages; with more, something else is wrong
_MAX_WORKERS = 4
_MAX_READY_BYTES = 16 * messages.MAX_BYTES
_ARGV_ROOM_BYTES = 2048  # for the arguments of a job, as other processes see them
_MARK_ROOM_BYTES = 512  # for the variables that other processes must see, beside the cookie
# Variables of a terminal, a login, a folder or a run, on which no import depends. Those that differ between
# the runs of a sweep have to be here: otherwise each run needs a worker of its own.
_IRRELEVANT = frozenset(
    b"PWD OLDPWD SHLVL _ TERM COLUMNS LINES WINDOWID TMUX TMUX_PANE STY DISPLAY SSH_TTY SSH_CLIENT"
    b" SSH_CONNECTION SSH_AUTH_SOCK XDG_SESSION_ID DBUS_SESSION_BUS_ADDRESS PS1"
    b" CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES STOKER_GPU_UUIDS CUDA_MPS_PIPE_DIRECTORY"
    b" WANDB_DIR MLFLOW_TRACKING_URI".split()
)


class LeftOut(NamedTuple):
    """Packages that workers of a key do not import, and why the first of them is left out."""

    packages: list[str]
    reason: str


Key = tuple[object, ...]


class WorkerPool:
    """All workers of a supervisor, each for the attempts of one interpreter, environment and list of modules.

    `report` sends a report to the client, and `resume` starts an attempt that has waited for its worker.
    When a running attempt has learned of imports that its worker lacks, a successor of the worker makes them;
    the worker serves until the successor is ready.
    """

    def __init__(
        self,
        poll: select.epoll,
        report: Callable[[str], None],
        resume: Callable[[Attempt], None],
        cookie_bytes: int,
        *,
        idle_s: float = _IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mark_room_bytes = cookie_bytes + _MARK_ROOM_BYTES
        self._idle_s = idle_s
        self._clock = clock
        self._poll = poll
        self._report = report
        self._resume = resume
        self._workers: dict[Key, WarmWorker] = {}
        self._successors: dict[Key, WarmWorker] = {}
        self.job_reports = JobReports()
        self._learners: dict[str, Attempt] = {}  # running attempts that report what they import
        self._reports: dict[str, FileStamp] = {}  # their files, as they were last seen
        self._unfit: dict[Key, tuple[str, float]] = {}
        self._lost: dict[Key, int] = {}
        self._left_out: dict[Key, LeftOut] = {}
        self._by_fd: dict[int, tuple[Key, WarmWorker]] = {}

    def __contains__(self, fd: int) -> bool:
        """Whether a descriptor belongs to a worker."""
        return fd in self._by_fd

    def must_wait(self, attempt: Attempt) -> bool:
        """Whether an attempt has to wait until its worker is ready or gone; then `resume` is called."""
        key = _key_of(attempt)
        if self._why_unfit(key) is not None:
            return False
        worker = self._workers.get(key)
        assert attempt.warm is not None
        successor = self._successors.get(key)
        if successor is not None and (worker is None or attempt.warm.learned is not None):
            successor.waiting.append(attempt)
            return True
        if worker is not None and worker.can_fork and worker.lacks(attempt.warm.learned):
            self._end_worker(key)
            worker = None
        if worker is not None and worker.can_fork and worker.is_outdated():
            if worker.state is WorkerState.READY:
                self._count_loss(key, "its modules change each time they are imported")
            self._end_worker(key)
            if self._why_unfit(key) is not None:
                return False
            worker = None
        if worker is None:
            try:
                worker = self._workers[key] = self._start(key, attempt)
            except OSError as error:
                self._unfit[key] = (f"no warm worker could be started ({error})", self._clock())
                return False
        if worker.can_fork:
            return False
        worker.waiting.append(attempt)
        return True

    def fork(
        self,
        attempt: Attempt,
        env: dict[bytes, bytes],
        log_fd: int,
        leases: list[int],
        place: Callable[[int], None] | None = None,
    ) -> int:
        """Fork an attempt as a child of this process and return its pid; may raise NoWarmStartError.

        `place` gets the pid before the attempt runs.
        """
        warm = attempt.warm
        assert warm is not None
        key = _key_of(attempt)
        reason = self._why_unfit(key)
        if reason is not None:
            raise NoWarmStartError(reason)
        worker = self._workers.get(key)
        if worker is None or not worker.can_fork:
            raise NoWarmStartError("its warm worker was killed")
        worker.used_at = self._clock()
        shown = (
            process_tree.COOKIE_BYTES,
            process_tree.LINGER.encode(),
            process_tree.ON_CUT.encode(),
        )
        order = ForkJob(
            request=warm,
            cold=attempt.argv,
            cwd=attempt.context.cwd,
            variables=_text(item for item in env.items() if worker.env.get(item[0]) != item[1]),
            unset=[os.fsdecode(name) for name in worker.env.keys() - env.keys()],
            shown=_text((name, env[name]) for name in shown if name in env),
            report=self.job_reports.open(attempt.key),
        )
        try:
            fds = [*((log_fd, log_fd) if log_fd >= 0 else (1, 2)), *leases]
            pid = worker.fork(order, fds, place)
        except NoWarmStartError:
            self.job_reports.take(attempt.key)
            self._end_worker(key)
            raise
        if warm.learn is not None:
            self._learners[attempt.key] = attempt
        worker.state = WorkerState.HAS_FORKED
        self._lost.pop(key, None)
        if key in self._left_out:
            self._report(reports.partly_warm(attempt.key, self._left_out[key].reason))
        return pid

    def revoke(self, key: str) -> Attempt | None:
        """Remove an attempt that waits for its worker, and return it."""
        for worker in self._all():
            for attempt in worker.waiting:
                if attempt.key == key:
                    worker.waiting.remove(attempt)
                    return attempt
        return None

    def forget_waiting(self) -> None:
        """Remove all attempts that wait for a worker."""
        for worker in self._all():
            worker.waiting.clear()

    def receive(self, fd: int) -> None:
        """Handle a worker's message or end, and resume the attempts that wait for it."""
        key, worker = self._by_fd[fd]
        try:
            packet = worker.connection.recv(_MAX_READY_BYTES)
        except OSError:
            packet = b""
        message = messages.decode(packet) if packet else None
        if isinstance(message, Ready):
            self._on_ready(key, worker, message)
        elif self._successors.get(key) is worker:
            self._on_failed_successor(key, worker, message)
        else:
            if isinstance(message, Unfit):
                self._note_unfit(key, message)
            elif not worker.can_fork:
                self._count_loss(key, "its warm worker was killed while it imported")
            self._end_worker(key)
        waiting, worker.waiting = worker.waiting, []
        for attempt in waiting:
            self._resume(attempt)

    def review(self) -> None:
        """Renew the workers of running attempts that have reported what they import."""
        for attempt in list(self._learners.values()):
            assert attempt.warm is not None
            learn = attempt.warm.learn or ""
            stamp = messages.stamp_file(learn)
            if stamp is not None and stamp != self._reports.get(learn):
                self._reports[learn] = stamp
                self._renew(attempt)

    def forget(self, key: str) -> None:
        """Forget an attempt that has ended."""
        if self._learners.pop(key, None) is not None and not self._learners:
            self._reports.clear()

    def _on_ready(self, key: Key, worker: WarmWorker, message: Ready) -> None:
        worker.state = WorkerState.READY
        worker.modules, worker.stamps = message.modules, message.stamps
        worker.import_s = self._clock() - worker.started_at
        if self._successors.get(key) is worker:
            del self._successors[key]
            left_out = self._left_out.get(key)
            if left_out is not None and left_out.packages == [messages.LATE]:
                del self._left_out[key]  # a run has shown them
            if key in self._workers:
                self._end_worker(key)
            self._workers[key] = worker
        self._report_worker(key, worker)

    def _on_failed_successor(self, key: Key, worker: WarmWorker, message: object) -> None:
        """Try again without the packages that are to blame; otherwise the present worker stays."""
        waiting, worker.waiting = worker.waiting, []
        self._close_worker(self._successors.pop(key))
        if isinstance(message, Unfit) and self._leave_out(key, message):
            self._start_successor(key, worker.asked_by)
        if key in self._successors:
            self._successors[key].waiting = waiting
        else:
            worker.waiting = waiting

    def _renew(self, attempt: Attempt) -> None:
        """Start a successor of an attempt's worker, if the attempt has learned of imports worth that."""
        assert attempt.warm is not None
        key, learned = _key_of(attempt), attempt.warm.learn
        worker, successor = self._workers.get(key), self._successors.get(key)
        if worker is None or not worker.can_fork or self._why_unfit(key) is not None:
            return  # the next worker will have them
        waiting: list[Attempt] = []
        if successor is not None:
            if not successor.lacks(learned):
                return
            waiting = successor.waiting
            self._close_worker(self._successors.pop(key))
        elif not worker.lacks(learned):
            return
        self._start_successor(key, attempt._replace(warm=attempt.warm._replace(learned=learned)))
        if key in self._successors:
            self._successors[key].waiting = waiting
            return
        for each in waiting:
            self._resume(each)

    def _start_successor(self, key: Key, attempt: Attempt) -> None:
        with contextlib.suppress(OSError):  # the worker stays
            self._successors[key] = self._start(key, attempt)

    def _all(self) -> list[WarmWorker]:
        return [*self._workers.values(), *self._successors.values()]

    def report_all(self) -> None:
        """Report to a new client which workers there are."""
        for key, worker in self._workers.items():
            if worker.can_fork:
                self._report_worker(key, worker)

    def close(self) -> None:
        """End all workers."""
        for key in list(self._workers):
            self._end_worker(key)
        for key in list(self._successors):
            self._close_worker(self._successors.pop(key))
        self._learners.clear()
        self.job_reports.close()

    def _report_worker(self, key: Key, worker: WarmWorker) -> None:
        left_out = self._left_out.get(key)
        reason = "" if left_out is None else left_out.reason
        self._report(reports.warmed(worker.pid, worker.modules, reason))

    def _note_unfit(self, key: Key, message: Unfit) -> None:
        """Leave out the packages after whose import no job can be forked; else give up for a while."""
        if not self._leave_out(key, message):
            self._unfit[key] = (message.reason, self._clock())

    def _leave_out(self, key: Key, message: Unfit) -> bool:
        """Leave out further packages from now on; False if there are none, or too many."""
        known = self._left_out.get(key, LeftOut([], message.reason))
        packages = [*dict.fromkeys([*known.packages, *message.culprits])]
        if not len(known.packages) < len(packages) <= _MAX_LEFT_OUT:
            return False
        self._left_out[key] = LeftOut(packages, known.reason)
        return True

    def _why_unfit(self, key: Key) -> str | None:
        """Return why no job can be forked for a key. Forgets the reason after a while: users fix things."""
        found = self._unfit.get(key)
        if found is None:
            return None
        reason, since = found
        if self._clock() - since < _UNFIT_FOR_S:
            return reason
        del self._unfit[key]
        self._left_out.pop(key, None)
        return None

    def _count_loss(self, key: Key, reason: str) -> None:
        """Count a worker that ended before it forked a job; after several in a row, give up for a while."""
        lost = self._lost.pop(key, 0) + 1
        if lost < _MAX_LOST:
            self._lost[key] = lost
        else:
            self._unfit[key] = (reason, self._clock())

    def _start(self, key: Key, attempt: Attempt) -> WarmWorker:
        warm, context = attempt.warm, attempt.context
        assert warm is not None
        self._make_room()
        given = {**context.env, **(attempt.env or {})}
        env = {name: value for name, value in given.items() if name not in _IRRELEVANT}
        mark = {process_tree.MARKER.encode(): b"warm".ljust(self._mark_room_bytes, b".")}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        interpreter = warm.words[: warm.script_at]
        with theirs:
            try:
                os.chdir(context.cwd)
                pid = os.posix_spawn(
                    interpreter[0],
                    [*interpreter, "-c", _BOOT, _WORKER, " " * _ARGV_ROOM_BYTES],
                    {**mark, **env},
                    file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _PASSED_FD)],
                    setsid=True,
                    setsigmask=[],
                    setsigdef=RESET_SIGNALS,
                )
            except OSError:
                ours.close()
                raise
            finally:
                os.chdir("/")
        without = self._left_out[key].packages if key in self._left_out else []
        ours.send(messages.encode(Prepare(warm, self._idle_s, process_tree.MARKER, without)))
        ours.setblocking(False)
        worker = WarmWorker(pid, attempt, ours, env, self._clock())
        worker.take_learned(warm.learned)
        self._by_fd[ours.fileno()] = (key, worker)
        self._poll.register(ours.fileno(), select.EPOLLIN)
        return worker

    def _make_room(self) -> None:
        """End the workers that were used longest ago, until there is room for one more."""
        while len(self._all()) >= _MAX_WORKERS:
            idle = [(each.used_at, key) for key, each in self._workers.items() if each.can_fork]
            if not idle:
                return
            self._end_worker(min(idle, key=lambda item: item[0])[1])

    def _end_worker(self, key: Key) -> None:
        self._close_worker(self._workers.pop(key))

    def _close_worker(self, worker: WarmWorker) -> None:
        fd = worker.connection.fileno()
        self._poll.unregister(fd)
        del self._by_fd[fd]
        worker.end()
        if worker.can_fork:
            self._report(reports.cooled(worker.pid))


def _key_of(attempt: Attempt) -> Key:
    warm, context = attempt.warm, attempt.context
    assert warm is not None
    interpreter = tuple(warm.words[: warm.script_at])
    # The same worker serves the run that learns and those that follow it.
    modules = (*warm.modules, warm.learned or warm.learn)
    own = frozenset(_relevant_variables(attempt.env or {}))
    return (interpreter, warm.path, modules, context.cwd, _relevant(context), own)


def _relevant(context: AttemptContext) -> frozenset[tuple[bytes, bytes]]:
    if context.relevant is None:
        context.relevant = frozenset(_relevant_variables(context.env))
    return context.relevant


def _relevant_variables(env: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return the variables on which an import may depend."""
    for name, value in env.items():
        if name not in _IRRELEVANT and not name.startswith(b"STOKER_"):
            yield name, value


def _text(variables: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables}
