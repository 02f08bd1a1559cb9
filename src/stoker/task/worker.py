"""The fresh process that makes one call. Imports only the standard library until it reads the call.

The file of a call has first what Python needs to find modules, then the call. The result is written to
a file beside it, completely or not at all: the status, then the value. A third file gets the traceback of
an exception that is printed nowhere else.
"""

from __future__ import annotations

import _pickle as pickle  # only the C module: the Python one takes milliseconds to import
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

RESULT = ".result"
TRACE = ".trace"
# Status of a call: the first value in its result.
RETURNED = "returned"
RAISED = "raised"
UNPICKLABLE = "unpicklable"
_HIGHEST = -1


class FailedCallError(Exception):
    """Raised by a call that failed and has a value for its caller all the same.

    The value becomes its result, its cause is printed, and its process exits with 1.
    """

    def __init__(self, value: Any) -> None:
        super().__init__("the call failed")
        self.value = value


def main() -> None:
    """Make the call in the file that the only argument names; exit 0 only if the result is written."""
    path = sys.argv[1]
    sys.argv[1:] = []
    with open(path, "rb") as file:
        sys.path[:], is_loud = pickle.load(file)
        try:
            function, args, kwargs = pickle.load(file)
            value = function(*args, **kwargs)
        except FailedCallError as failed:
            _write(path, RETURNED, failed.value)
            sys.stdout.flush()
            sys.stderr.write(_describe(failed.__cause__ or failed)[2])
            raise SystemExit(1) from None
        except BaseException as error:
            _write(path, RAISED, error)
            if not is_loud:
                _append_trace(path, error)
            if isinstance(error, SystemExit):
                raise
            if is_loud:
                sys.stdout.flush()
                sys.stderr.write(_describe(error)[2])
            raise SystemExit(1) from None
    sys.exit(0 if _write(path, RETURNED, value) else 1)


def _write(path: str, status: str, value: Any) -> bool:
    """Write the result; False if it is no value but an exception or the reason why there is none."""
    description = _describe(value) if status == RAISED else None
    try:
        body = _pickle(value)
    except Exception as error:
        body = b""
        if status == RETURNED:  # the text of an exception is enough; a value has none
            status, description = UNPICKLABLE, (type(value).__qualname__, _one_line(error), "")
    with open(f"{path}{RESULT}.new", "wb") as file:
        pickle.dump((status, description), file)
        file.write(body)
    os.replace(f"{path}{RESULT}.new", f"{path}{RESULT}")
    return status == RETURNED


def _append_trace(path: str, error: BaseException) -> None:
    """Append the traceback to the trace file; earlier attempts can have written there."""
    with open(f"{path}{TRACE}", "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(_describe(error)[2])


def _pickle(value: Any) -> bytes:
    try:
        return pickle.dumps(value, _HIGHEST)
    except Exception:
        # Classes of the client's main module cannot be imported here, so they are pickled by value.
        import cloudpickle

        body: bytes = cloudpickle.dumps(value)
        return body


def _describe(error: BaseException) -> tuple[str, str, str]:
    """Return the type, message and traceback of an exception, without the frames of this file."""
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
        return "(its message cannot be read)"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {_message(error)}"


def read_result(file: IO[bytes]) -> tuple[str, tuple[str, str, str] | None, bytes]:
    """Return the status of a call, its description, and the pickled value or exception."""
    status, description = pickle.load(file)
    return status, description, file.read()
