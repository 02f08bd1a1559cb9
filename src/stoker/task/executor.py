"""`stoker.Executor`: concurrent.futures, with a fresh process and GPUs of its own for every call."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

from stoker.core.sharing.rules import AUTO, NEVER
from stoker.errors import StokerError
from stoker.task import messages
from stoker.task.call_files import (
    call_argv,
    name_of,
    remove_call,
    take_result,
    trace_of,
    write_call,
)
from stoker.task.engine_session import EngineSession, Gpus
from stoker.task.job import Job
from stoker.task.run import places
from stoker.task.share_options import read_gpu_mem, read_share

P = ParamSpec("P")
T = TypeVar("T")


class Future(futures.Future[T]):
    """A future with the job behind it: its GPUs, its process, its times, how it ended."""

    job: Job

    def __init__(self, cancel: Callable[[Job], None]) -> None:
        super().__init__()
        self._cancel = cancel

    def cancel(self) -> bool:
        """Cancel a call that has not begun; True if it never will."""
        cancelled = super().cancel()
        if cancelled:
            self._cancel(self.job)
        return cancelled


class Executor(futures.Executor):
    """Makes calls in fresh processes, each with its own GPU in CUDA_VISIBLE_DEVICES before any import.

        with stoker.Executor(gpus="0,1") as executor:
            for accuracy in executor.map(train, [1e-3, 1e-4]):
                print(accuracy)

    `gpus` is as for `stoker run --gpus`, by default every GPU that nobody else is using. A call gets
    `gpus_per_job` of them; with 0 it needs none, and `max_workers` are made at once. Functions and
    arguments travel by cloudpickle: those of scripts and notebooks work too. What a call prints goes
    where this process prints, or with `logs` to a file each in that folder. A call that ends without
    an answer (a crash, a kill, its `timeout_s`) is tried `retries` more times. From the second call of
    a function on, its process finds imported what the first has imported, unless `warm` is false.

    Calls of one `map` share GPUs: when the first has shown what it needs, as many run side by side as
    fit. `share` says how, `"never"` for a GPU to each call; given, it counts for `submit` too.
    `gpu_mem="10G"` tells what a call needs, so that none has to be tried first.

    All processes end with this one, however it ends.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        gpus: Gpus | None = None,
        gpus_per_job: int = 1,
        jobs_per_gpu: int = 1,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        logs: str | None = None,
        timeout_s: float | None = None,
        retries: int = 0,
        warm: bool = True,
        share: str | None = None,
        gpu_mem: str | None = None,
    ) -> None:
        self._gpus_per_job = gpus_per_job
        self._share = read_share(share or NEVER.text)
        self._map_share = read_share(share or AUTO.text)
        self._logs = None if logs is None else os.path.abspath(logs)
        self._timeout_s = timeout_s
        self._retries = retries
        self._warm = warm
        if self._logs is not None:
            os.makedirs(self._logs, exist_ok=True)
        session = EngineSession(
            gpus="" if gpus_per_job == 0 else gpus,
            jobs_per_gpu=jobs_per_gpu,
            cpu_places=places(max_workers, gpus_per_job),
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            gpu_mem=read_gpu_mem(gpu_mem),
        )
        self._desk = _Desk(session)
        self._finalizer = weakref.finalize(self, self._desk.close)
        self._finalizer.atexit = False  # `_finish_all` does that, and waits

    @property
    def slots(self) -> list[str]:
        """The GPUs that calls are made on, a slot each; empty if they need none."""
        return list(self._desk.session.slots)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a call made; TypeError if it cannot be sent to another process."""
        return self._submit(self._share, fn, *args, **kwargs)

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Any) -> Iterator[T]:
        """Have a call made for each of the arguments; as `concurrent.futures.Executor.map`.

        Such calls are of one kind, so they share GPUs unless `share` says otherwise.
        """
        return _Mapper(functools.partial(self._submit, self._map_share)).map(
            fn, *iterables, **options
        )

    def _submit(
        self, share: str | None, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        desk = self._desk
        desk.check_open()
        number = desk.session.take_number()
        path = desk.path_of(number)
        future: Future[T] = Future(desk.cancel)
        shared = share if self._gpus_per_job == 1 else None
        write_call(path, fn, args, kwargs, is_loud=self._logs is not None)
        with desk.taking(future, number):
            future.job = desk.session.submit(
                name_of(fn),
                number=number,
                argv=call_argv(path),
                log=None if self._logs is None else os.path.join(self._logs, f"{number}.log"),
                slots=self._gpus_per_job,
                timeout_s=self._timeout_s,
                retries=self._retries,
                warm=name_of(fn) if self._warm else None,
                share=shared,
                trace=trace_of(path) if self._logs is None and shared is not None else None,
            )
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those that are there, or cancel those that have not begun."""
        self._desk.close(cancel=cancel_futures)
        if wait:
            self._desk.wait()


class _Mapper(futures.Executor):
    """Maps as all executors do, over a way to submit."""

    def __init__(self, submit: Callable[..., futures.Future[Any]]) -> None:
        self._submit = submit

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Have a call made."""
        return self._submit(fn, *args, **kwargs)


class _Desk:
    """What goes on when nobody holds the executor any more: the session, its futures, the thread."""

    def __init__(self, session: EngineSession) -> None:
        self.session = session
        self._folder = os.path.join(session.folder, "calls")
        os.mkdir(self._folder, 0o700)
        self._futures: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._broken: StokerError | None = None
        self._thread = threading.Thread(target=self._work, name="stoker-executor", daemon=True)
        self._thread.start()
        _desks.add(self)

    def path_of(self, number: int) -> str:
        """Where a call lies."""
        return os.path.join(self._folder, str(number))

    @contextlib.contextmanager
    def taking(self, future: Future[Any], number: int) -> Iterator[None]:
        """Remember a future before anything of its job can be heard."""
        with self._lock:
            try:
                self.check_open()
                self._futures[number] = future
                yield
            except BaseException:
                self._futures.pop(number, None)
                remove_call(self.path_of(number))
                raise

    def cancel(self, job: Job) -> None:
        """Take a job out whose future was cancelled."""
        self.session.cancel(job, running=True)

    def close(self, *, cancel: bool = False) -> None:
        """Take no more calls."""
        with self._lock:
            self._closed = True
            pending = list(self._futures.values()) if cancel else []
        for future in pending:
            future.cancel()
        self.session.close()

    def wait(self) -> None:
        """Return when every future has its end."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def check_open(self) -> None:
        """Raise what keeps new calls from being taken."""
        self.session.check_owner()
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _work(self) -> None:
        try:
            for event, job in self.session.events():
                if job is not None:
                    self._heed(event, job)
        except StokerError as error:
            with self._lock:
                self._broken = error
                left, self._futures = self._futures, {}
            for future in left.values():
                if _has_begun(future):
                    future.set_exception(error)
        finally:
            _desks.discard(self)

    def _heed(self, event: messages.Event, job: Job) -> None:
        with self._lock:  # whoever submits has it until the future has its job
            future = self._futures.get(job.number)
        if isinstance(event, messages.Started):
            if future is not None and not _has_begun(future):
                del self._futures[job.number]
                self.session.cancel(job, running=True)
        elif isinstance(event, messages.Ended) and not event.retried:
            self._futures.pop(job.number, None)
            path = self.path_of(job.number)
            if future is None or not _has_begun(future):
                remove_call(path)
                return
            try:
                future.set_result(take_result(path, job))
            except BaseException as error:
                future.set_exception(error)


def _has_begun(future: Future[Any]) -> bool:
    """Let a future be running, unless it was cancelled."""
    return future.running() or future.set_running_or_notify_cancel()


_desks: set[_Desk] = set()


def _finish_all() -> None:
    """Finish what was asked for before this process ends, as executors do."""
    for desk in list(_desks):
        desk.close()
        desk.wait()


def _forget_all() -> None:
    _desks.clear()


atexit.register(_finish_all)
os.register_at_fork(after_in_child=_forget_all)
