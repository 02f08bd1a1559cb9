"""`stoker.Executor`: a concurrent.futures executor that gives each call a fresh process and GPUs."""

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

from stoker.core.job import Request
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
from stoker.task.engine_session import EngineSession
from stoker.task.job import Job
from stoker.task.options import GpuOptions, Gpus
from stoker.task.progress import Progress, View, find_view

P = ParamSpec("P")
T = TypeVar("T")


class Future(futures.Future[T]):
    """A future with its job: GPUs, process, times and end."""

    job: Job

    def __init__(self, cancel: Callable[[Job], None]) -> None:
        super().__init__()
        self._cancel = cancel

    def cancel(self) -> bool:
        """Cancel a call that has not started; True if it will never start."""
        cancelled = super().cancel()
        if cancelled:
            self._cancel(self.job)
        return cancelled


class Executor(futures.Executor):
    """Makes calls in fresh processes that have their own GPU in CUDA_VISIBLE_DEVICES from the start.

        with stoker.Executor(gpus="0,1") as executor:
            for accuracy in executor.map(train, [1e-3, 1e-4]):
                print(accuracy)

    `gpus` is as for `stoker run --gpus`; the default is every GPU that no other process uses. A call
    gets `gpus_per_job` of them; with 0 it needs none, and `max_workers` calls run at once. Functions and
    arguments are sent by cloudpickle: those of scripts and notebooks work too. A call prints to the
    output of this process; with `logs`, to its own file in that folder, as with `stoker.run`. A call
    that ends without a result (a crash, a kill, its `timeout_s`) is repeated up to `retries` times. From
    the second call of a function on, its process starts with the modules that the first one imported,
    unless `warm` is false.

    Calls of one `map` share GPUs: when the first has shown what it needs, as many run at once as fit.
    `share` sets how, `"never"` gives each call a whole GPU; if set, it is valid for `submit` too.
    `gpu_mem="10G"` declares what a call needs, so that none has to be tried first.

    In a notebook, and if standard error is a terminal, a bar shows the progress; `progress` turns it on or
    off.

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
        progress: bool | None = None,
    ) -> None:
        options = GpuOptions(gpus, gpus_per_job, jobs_per_gpu, max_workers)
        make_request = functools.partial(
            options.make_request, timeout_s=timeout_s, retries=retries, gpu_mem=gpu_mem
        )
        self._request = make_request(share=share or NEVER.text)
        self._map_request = make_request(share=share or AUTO.text)
        self._logs = None if logs is None else os.path.abspath(logs)
        self._warm = warm
        if self._logs is not None:
            os.makedirs(self._logs, exist_ok=True)
        opening = options.make_open(self._request.gpu_mem, env, cwd)
        self._calls = _PendingCalls(EngineSession(opening), find_view(progress))
        self._finalizer = weakref.finalize(self, self._calls.close)
        self._finalizer.atexit = False  # `_finish_all` does that, and waits

    @property
    def slots(self) -> list[str]:
        """The slots that run calls, by their GPUs; empty if calls need no GPU."""
        return list(self._calls.session.slots)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; TypeError if it cannot be sent to another process."""
        return self._submit(self._request, fn, *args, **kwargs)

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Any) -> Iterator[T]:
        """Queue a call for each item, as `concurrent.futures.Executor.map`.

        The calls are of one kind, so they share GPUs, unless `share` forbids it.
        """
        submit = functools.partial(self._submit, self._map_request)
        return _Mapper(submit).map(fn, *iterables, **options)

    def _submit(
        self, request: Request, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        calls = self._calls
        calls.check_open()
        number = calls.session.take_number()
        path = calls.path_of(number)
        future: Future[T] = Future(calls.cancel)
        write_call(path, fn, args, kwargs, is_loud=self._logs is not None)
        has_trace = self._logs is None and request.share is not None
        with calls.registered(future, number):
            future.job = calls.session.submit(
                name_of(fn),
                request,
                number=number,
                argv=call_argv(path),
                log=None if self._logs is None else os.path.join(self._logs, f"{number}.log"),
                warm=name_of(fn) if self._warm else None,
                trace=trace_of(path) if has_trace else None,
            )
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. Wait for the present ones; optionally cancel those that have not started."""
        self._calls.close(cancel=cancel_futures)
        if wait:
            self._calls.wait()


class _Mapper(futures.Executor):
    """Gives `map` of concurrent.futures another way to submit."""

    def __init__(self, submit: Callable[..., futures.Future[Any]]) -> None:
        self._submit = submit

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Queue a call."""
        return self._submit(fn, *args, **kwargs)


class _PendingCalls:
    """The session, the futures and the event thread; they outlive the executor object."""

    def __init__(self, session: EngineSession, make_view: Callable[[], View] | None) -> None:
        self.session = session
        self._progress = None if make_view is None else Progress(make_view)
        self._folder = os.path.join(session.folder, "calls")
        os.mkdir(self._folder, 0o700)
        self._futures: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._broken: StokerError | None = None
        self._thread = threading.Thread(
            target=self._handle_events, name="stoker-executor", daemon=True
        )
        self._thread.start()
        _open_calls.add(self)

    def path_of(self, number: int) -> str:
        """Return the file of a call."""
        return os.path.join(self._folder, str(number))

    @contextlib.contextmanager
    def registered(self, future: Future[Any], number: int) -> Iterator[None]:
        """Register a future before the first event of its job can come."""
        with self._lock:
            try:
                self.check_open()
                self._futures[number] = future
                yield
                if self._progress is not None:
                    self._progress.on_submit()
            except BaseException:
                self._futures.pop(number, None)
                remove_call(self.path_of(number))
                raise

    def cancel(self, job: Job) -> None:
        """Cancel the job of a cancelled future."""
        self.session.cancel(job, running=True)

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more calls."""
        with self._lock:
            self._closed = True
            pending = list(self._futures.values()) if cancel else []
        for future in pending:
            future.cancel()
        self.session.close()

    def wait(self) -> None:
        """Wait until all futures are done."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def check_open(self) -> None:
        """Raise an error if no call can be accepted."""
        self.session.check_owner()
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _handle_events(self) -> None:
        try:
            for event, job in self.session.events():
                if job is not None:
                    self._on_event(event, job)  # it waits until the call is registered
                    self._show(event, job)
        except StokerError as error:
            with self._lock:
                self._broken = error
                left, self._futures = self._futures, {}
            for future in left.values():
                if _mark_running(future):
                    future.set_exception(error)
        finally:
            if self._progress is not None:
                self._progress.close()
            _open_calls.discard(self)

    def _show(self, event: messages.Event, job: Job) -> None:
        if self._progress is None:
            return
        if isinstance(event, messages.Started):
            self._progress.on_start(job.number)
        elif isinstance(event, messages.Ended):
            self._progress.on_end(job.number, is_good=job.ok, retried=event.retried)

    def _on_event(self, event: messages.Event, job: Job) -> None:
        with self._lock:  # `registered` holds it until the future has its job
            future = self._futures.get(job.number)
        if isinstance(event, messages.Started):
            if future is not None and not _mark_running(future):
                del self._futures[job.number]
                self.session.cancel(job, running=True)
        elif isinstance(event, messages.Ended) and not event.retried:
            self._futures.pop(job.number, None)
            path = self.path_of(job.number)
            if future is None or not _mark_running(future):
                remove_call(path)
                return
            try:
                future.set_result(take_result(path, job))
            except BaseException as error:
                future.set_exception(error)


def _mark_running(future: Future[Any]) -> bool:
    """Mark a future as running; False if it was cancelled."""
    return future.running() or future.set_running_or_notify_cancel()


_open_calls: set[_PendingCalls] = set()


def _finish_all() -> None:
    """Finish all calls before this process ends, as other executors do."""
    for calls in list(_open_calls):
        calls.close()
        calls.wait()


atexit.register(_finish_all)
os.register_at_fork(after_in_child=_open_calls.clear)
