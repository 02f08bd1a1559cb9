"""Limit of open files: raised for this process, original for the processes that it starts.

Jobs keep the usual limit, because programs that use `select` or close every possible descriptor depend on it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_original: int | None = None  # the soft limit before it was raised


def raise_limit() -> None:
    """Raise the soft limit of this process to its hard limit."""
    import resource  # late: most processes that import this module do not need it

    global _original
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a sandbox may forbid it: keep the old limit
        return
    _original = soft


def with_original_limit(argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` with the limit that this process was started with.

    A shell sets the limit and then executes the program, which keeps its pid. To lower the limit of this
    process for a moment would break its other threads.
    """
    if _original is None:
        return list(argv)
    return ["/bin/sh", "-c", f'ulimit -S -n {_original}; exec "$@"', "sh", *argv]
