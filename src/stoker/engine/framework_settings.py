"""Variables for the frameworks of jobs that run beside others, unless the user sets them.

They let frameworks share a GPU, keep what they compile, and start a fair number of threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

_NOTHING: Mapping[str, str] = {}
_UNUSED_S = 30 * 86400.0
# OpenMP, and what follows its variable: torch, MKL, OpenBLAS, BLIS, numexpr. Variables of their own would win
# over OMP_NUM_THREADS where a program sets it itself, so they are left alone. TensorFlow does not follow it.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


def share_gpu(env: dict[str, str], given: Mapping[str, str] = _NOTHING) -> None:
    """Keep frameworks from taking a whole GPU, and let the runs of a sweep compile once.

    `given` are variables that are set elsewhere.
    """
    variables = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    known = {**given, **env}
    folder = jax_cache(known)
    if folder is not None and "JAX_COMPILATION_CACHE_DIR" not in known:
        variables["JAX_COMPILATION_CACHE_DIR"] = folder
        # By default JAX keeps only what took a second to compile.
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    for name, value in variables.items():
        if name not in given:
            env.setdefault(name, value)


def limit_threads(
    env: dict[str, str], threads: int | None, given: Mapping[str, str] = _NOTHING
) -> None:
    """Let libraries start so many threads in each process; None for as many as they like.

    `given` are variables that are set elsewhere.
    """
    if threads is not None:
        for name in _THREAD_VARIABLES:
            if name not in given:
                env.setdefault(name, str(threads))


def jax_cache(env: Mapping[str, str]) -> str | None:
    """Return the user's folder for what JAX has compiled; None without a home folder.

    JAX executes what it finds there, so it is no folder that others can write to.
    """
    home = env.get("HOME", "")
    caches = env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    if not os.path.isabs(caches) or not os.path.isdir(home):
        return None
    return os.path.join(caches, "stoker", "jax")


def remove_unused_programs(folder: str) -> None:
    """Remove compiled programs that no run has read for a month."""
    oldest = time.time() - _UNUSED_S
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
            if (
                entry.is_file(follow_symlinks=False)
                and max(found.st_atime, found.st_mtime) < oldest
            ):
                os.unlink(entry.path)
        except OSError:
            continue  # another process has removed it
