"""Settings that keep libraries from starting threads while a warm worker imports them.

A fork has only the thread that called it. So the worker sets a variable for each library of the table, and
only while it imports. The variables are set for C code alone: neither an import nor a job sees them in
`os.environ`. A fork gives each library the number of threads that it would have after a cold start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Restore = Callable[[], None]

# library: the variable, its value during imports, and what the value is appended to if the user has set one.
# OpenBLAS (numpy and scipy have one each): `restore_openblas` sets the number of threads in each fork.
# jemalloc in pyarrow: without its background thread it returns memory when it allocates; nothing to restore.
# numexpr reads its variable from `os.environ`: `end_pools` ends its threads after the import instead.
TABLE = {
    "openblas": ("OPENBLAS_NUM_THREADS", "1", None),
    "pyarrow": ("JE_ARROW_MALLOC_CONF", "background_thread:false", ","),
}
# The variables that OpenBLAS reads for its number of threads, in their order.
_OPENBLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
_OPENBLAS_SYMBOLS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "", "_64")
)


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Set the variables of the table while modules are imported."""
    for variable, value, separator in TABLE.values():
        theirs = os.environ.get(variable)
        joined = f"{theirs}{separator}{value}" if theirs and separator else value
        os.putenv(variable, joined)
    try:
        yield
    finally:
        for variable, _value, _separator in TABLE.values():
            if variable in os.environ:  # the user's value, or that of an import
                os.putenv(variable, os.environ[variable])
            else:
                os.unsetenv(variable)


def end_pools() -> None:
    """End the threads of imported libraries that can start them again in a fork."""
    numexpr = sys.modules.get("numexpr")
    if numexpr is not None:
        with contextlib.suppress(Exception):
            numexpr.set_num_threads(1)


def find_restores() -> list[Restore]:
    """Return what a fork must call to have the threads of a cold start, for the loaded libraries."""
    found: list[Restore] = []
    for path in sorted(_loaded_libraries("openblas")):
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        symbol = next((name for name in _OPENBLAS_SYMBOLS if hasattr(library, name)), None)
        if symbol is not None:
            found.append(_openblas_restore(getattr(library, symbol)))
    numexpr = sys.modules.get("numexpr")
    if numexpr is not None:
        found.append(lambda: numexpr.set_num_threads(numexpr.nthreads))
    return found


def _openblas_restore(set_threads: Callable[[int], object]) -> Restore:
    def restore() -> None:
        count = count_openblas_threads()
        if count > 1:
            set_threads(count)

    return restore


def count_openblas_threads() -> int:
    """Return how many threads OpenBLAS uses in a fresh process with this environment."""
    processors = len(os.sched_getaffinity(0))
    for variable in _OPENBLAS_VARIABLES:
        digits = os.environ.get(variable, "").strip().partition(",")[0]
        if digits.isdecimal() and int(digits) > 0:
            return min(int(digits), processors)
    return processors


def _loaded_libraries(name: str) -> set[str]:
    """Return the files of loaded libraries whose own name contains this one."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.rstrip("\n").partition("/")[2] for line in file if name in line}
    return {f"/{path}" for path in paths if name in os.path.basename(path)}
