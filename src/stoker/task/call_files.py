"""Files of Python calls: the client pickles a call, a fresh process makes it, the client reads the result."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoker.errors import StokerError
from stoker.task.job import Job
from stoker.task.worker import RESULT, RETURNED, TRACE, UNPICKLABLE, read_result

# The current folder comes first on the path of `python -c`; a module there could hide one of ours.
_BOOTSTRAP = (
    "import sys; root = sys.argv.pop(1); sys.path = [each for each in sys.path if each];"
    "root in sys.path or sys.path.append(root);"
    "from stoker.task.worker import main; main()"
)
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class RemoteTraceback(Exception):  # noqa: N818 - only the cause of an error
    """The traceback in the process of a call: the `__cause__` of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class JobError(StokerError):
    """A job did not succeed. `job` has its state and reason."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job


class RemoteError(JobError):
    """A call raised an exception, or returned a value, that cannot be pickled."""


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function, with its module."""
    inner = getattr(function, "func", None)  # functools.partial has no name of its own
    named = function if inner is None or hasattr(function, "__qualname__") else inner
    module = getattr(named, "__module__", None) or type(named).__module__
    return f"{module}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def call_argv(path: str, name: str | None = None) -> list[str]:
    """Return the command that makes the call in a file.

    The command begins with the `name`, for people who read lists of jobs; every user of the machine can read
    it. In the queue, calls of one name share what a warm start learns of their imports.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    program = _BOOTSTRAP if name is None else f"# {name}\n{_BOOTSTRAP}"
    return [sys.executable, *flags, "-c", program, _ROOT, path]


def trace_of(path: str) -> str:
    """Return the file for the traceback of a call that is not loud."""
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

    A loud call also prints its exception, for its log.
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
        # An empty entry means the current folder, which can be another one later.
        pickle.dump(([os.path.abspath(each) for each in sys.path], is_loud), file)
        file.write(call)


def take_result(path: str, job: Job) -> Any:
    """Return what a call returned, or raise what it raised; its files are removed.

    JobError if its process left no result.
    """
    try:
        return load_result(path, job)
    finally:
        remove_call(path)


def load_result(path: str, job: Job) -> Any:
    """Return or raise as `take_result` does, and keep the files."""
    try:
        with open(f"{path}{RESULT}", "rb") as file:
            status, description, body = read_result(file)
    except FileNotFoundError:
        raise JobError(f"{job.command}: {job.reason or 'left no result'}", job) from None
    if status == RETURNED:
        return _load(body, job, "what it returned")
    assert description is not None
    name, message, trace = description
    if status == UNPICKLABLE:
        raise RemoteError(
            f"{job.command}: the {name} it returned cannot be sent back ({message});"
            " return plain values or arrays, or write a file",
            job,
        )
    raise _exception(body, job, f"{name}: {message}") from RemoteTraceback(trace)


def remove_call(path: str) -> None:
    """Remove the files of a call."""
    for each in (path, f"{path}{RESULT}", trace_of(path)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)


def _exception(body: bytes, job: Job, text: str) -> BaseException:
    try:
        error = pickle.loads(body) if body else None  # noqa: S301 - from our own worker
    except Exception:
        error = None  # its class cannot be imported, or needs other arguments
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
