"""The fresh process in which one call is made. Standard library only until the call itself is read.

A call lies in a file: first what Python needs to find the modules it names, then the call. Its result
is written beside it, whole or not at all: how it went, then the value. An exception that is printed
nowhere else is told in a third file.
"""

from __future__ import annotations

import _pickle as pickle  # its C half alone: the rest costs every fresh process milliseconds
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

RESULT = ".result"
TRACE = ".trace"
# How a call went: the first thing in its result.
RETURNED = "returned"
RAISED = "raised"
UNPICKLABLE = "unpicklable"
_HIGHEST = -1


def main() -> None:
    """Make the call in the file that is the only argument; exit 0 only if it returned a value."""
    path = sys.argv[1]
    sys.argv[1:] = []
    with open(path, "rb") as file:
        sys.path[:], is_loud = pickle.load(file)
        try:
            function, args, kwargs = pickle.load(file)
            value = function(*args, **kwargs)
        except BaseException as error:
            _write(path, RAISED, error)
            if not is_loud:
                _keep_trace(path, error)
            if isinstance(error, SystemExit):
                raise
            if is_loud:
                sys.stdout.flush()
                sys.stderr.write(_tell(error)[2])
            raise SystemExit(1) from None
    sys.exit(0 if _write(path, RETURNED, value) else 1)


def _write(path: str, how: str, value: Any) -> bool:
    """Write a result; whether it is the value itself, and not only why it cannot be told."""
    story = _tell(value) if how == RAISED else None
    try:
        body = _pickle(value)
    except Exception as error:
        # An exception that cannot be pickled is told by its text; a value has none.
        story = story if how == RAISED else (type(value).__qualname__, _one_line(error), "")
        how, body = (how, b"") if how == RAISED else (UNPICKLABLE, b"")
    with open(f"{path}{RESULT}.new", "wb") as file:
        pickle.dump((how, story), file)
        file.write(body)
    os.replace(f"{path}{RESULT}.new", f"{path}{RESULT}")
    return how == RETURNED


def _keep_trace(path: str, error: BaseException) -> None:
    """Let it be known why the call failed where no log tells; behind what earlier attempts told."""
    with open(f"{path}{TRACE}", "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(_tell(error)[2])


def _pickle(value: Any) -> bytes:
    try:
        return pickle.dumps(value, _HIGHEST)
    except Exception:
        # What was defined in the client's main module exists here by value alone.
        import cloudpickle

        body: bytes = cloudpickle.dumps(value)
        return body


def _tell(error: BaseException) -> tuple[str, str, str]:
    """The name, the message and the traceback of an exception, without the lines of this file."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return type(error).__qualname__, _message(error), "".join(lines)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be told)"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {_message(error)}"


def read_result(file: IO[bytes]) -> tuple[str, tuple[str, str, str] | None, bytes]:
    """How a call went, what is told of it, and the value or exception, still pickled."""
    how, story = pickle.load(file)
    return how, story, file.read()
