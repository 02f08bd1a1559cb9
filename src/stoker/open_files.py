"""Raises the limit of open files for this process alone; the processes it starts keep the original limit.

A high limit is no favour to jobs: programs that use `select` or close every possible descriptor
depend on the usual one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_original: int | None = None  # the soft limit before it was raised


def raise_limit() -> None:
    """Let this process have as many open files as its hard limit allows."""
    import resource  # late: most processes that import this module raise nothing

    global _original
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a sandbox may forbid it: the old limit serves
        return
    _original = soft


def with_original_limit(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` with the limit that this process was started with.

    A shell sets the limit and then becomes the program, which keeps its pid. To lower the limit of
    this process for a moment would fail its other threads.
    """
    if _original is None:
        return list(argv)
    return ["/bin/sh", "-c", f'ulimit -S -n {_original}; exec "$@"', "sh", *argv]
