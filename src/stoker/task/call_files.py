"""Python calls as jobs: pickled here, made in a fresh process, their results read back here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoker.errors import StokerError
from stoker.task.job import Job
from stoker.task.worker import RESULT, RETURNED, TRACE, UNPICKLABLE, read_result

# The folder of the program comes first on a script's path, and a module there could hide one of ours.
_BOOTSTRAP = (
    "import sys; root = sys.argv.pop(1); sys.path = [each for each in sys.path if each];"
    "root in sys.path or sys.path.append(root);"
    "from stoker.task.worker import main; main()"
)
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class RemoteTraceback(Exception):  # noqa: N818 - it is no error of its own, but where one came from
    """What the process of a call printed of its exception: that exception's `__cause__`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class JobError(StokerError):
    """A job did not succeed; `job` tells which, and how it ended."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job


class RemoteError(JobError):
    """A call raised an exception that cannot be brought over, or returned such a value."""


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called, module included."""
    inner = getattr(
        function, "func", None
    )  # functools.partial and its kin have no name of their own
    named = function if inner is None or hasattr(function, "__qualname__") else inner
    module = getattr(named, "__module__", None) or type(named).__module__
    return f"{module}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def call_argv(path: str) -> list[str]:
    """The words that make the call which lies in a file."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return [sys.executable, *flags, "-c", _BOOTSTRAP, _ROOT, path]


def trace_of(path: str) -> str:
    """Where the call that lies in a file tells of its exception, unless it is loud."""
    return f"{path}{TRACE}"


def write_call(
    path: str,
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    is_loud: bool = False,
) -> None:
    """Write a call to a file; TypeError, with the cause, if it cannot be pickled.

    If it `is_loud`, an exception is also printed where the call prints: that is for logs.
    """
    import cloudpickle

    try:
        call = cloudpickle.dumps((function, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise TypeError(
            f"{name_of(function)} or its arguments cannot be sent to another process:"
            f" {type(error).__name__}: {error}"
        ) from error
    with open(path, "wb") as file:
        # An empty entry means the folder that is current: it may be another by then.
        pickle.dump(([os.path.abspath(each) for each in sys.path], is_loud), file)
        file.write(call)


def take_result(path: str, job: Job) -> Any:
    """What a call returned; raises what it raised, with its traceback as the cause.

    JobError if it came to no end of its own. Its files are removed.
    """
    try:
        with open(f"{path}{RESULT}", "rb") as file:
            how, story, body = read_result(file)
    except FileNotFoundError:
        raise JobError(f"{job.command}: {job.reason or 'left no result'}", job) from None
    finally:
        remove_call(path)
    if how == RETURNED:
        return _load(body, job, "what it returned")
    assert story is not None
    name, message, trace = story
    if how == UNPICKLABLE:
        raise RemoteError(
            f"{job.command}: the {name} it returned cannot be sent back ({message});"
            " return plain values or arrays, or write a file",
            job,
        )
    raise _exception(body, job, f"{name}: {message}") from RemoteTraceback(trace)


def remove_call(path: str) -> None:
    """Remove the files of a call, those that there are."""
    for each in (path, f"{path}{RESULT}", trace_of(path)):
        try:
            os.unlink(each)
        except FileNotFoundError:
            continue


def _exception(body: bytes, job: Job, text: str) -> BaseException:
    try:
        error = pickle.loads(body) if body else None  # noqa: S301 - from our own worker
    except Exception:
        error = None  # its class wants other arguments than it keeps, or is not to be had here
    if isinstance(error, BaseException):
        return error
    return RemoteError(f"{job.command} raised {text}", job)


def _load(body: bytes, job: Job, what: str) -> Any:
    try:
        return pickle.loads(body)  # noqa: S301 - from our own worker
    except Exception as error:
        raise RemoteError(
            f"{job.command}: {what} cannot be read here: {type(error).__name__}: {error}", job
        ) from error
