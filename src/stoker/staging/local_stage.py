"""Runs a job of --sync on the machine it was added on, in a private copy as on any other node.

The job's own process makes the copy, because the daemon must not be slowed down, and brings the results
back before it ends. Run as `local_stage ORDER WORDS…`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, NamedTuple

from stoker.errors import StokerError
from stoker.interpreter import module_command
from stoker.staging.bundle import pack
from stoker.staging.node_cache import NodeCache
from stoker.staging.transfer import bring_back, ship

_CANNOT_START = 126
# Signals that end a process or belong to the job: the supervisor sends them to the command as well.
_PASSED_OVER = {"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM"}


class LocalStage(NamedTuple):
    """Where a job's tree comes from and, if `results` is set, where its results go."""

    node_cache: str
    name: str
    snapshot: str
    inside: str
    results: str | None
    target: str
    limit_bytes: int


def staged_words(stage: LocalStage, words: list[str]) -> list[str]:
    """Return the command line that runs a command in a private copy."""
    order = json.dumps(stage._asdict())
    return module_command("stoker.staging.local_stage", order, *words)


def main() -> None:
    """Run the command in its copy and exit with its status."""
    order, *words = sys.argv[1:]
    stage = LocalStage(**json.loads(order))
    for name in _PASSED_OVER:
        signal.signal(getattr(signal, name), lambda *_details: None)
    try:
        node_cache = NodeCache(stage.node_cache)
        folder = ship(pack(stage.snapshot, inside=stage.inside), node_cache, stage.name)
        code = _run(words, os.path.join(folder, stage.inside))
        _bring_back(stage, node_cache)
    except StokerError as error:
        _print(str(error))
        sys.exit(_CANNOT_START)
    if code >= 0:
        sys.exit(code)
    with contextlib.suppress(OSError):  # SIGKILL cannot be reset
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


def _run(words: list[str], folder: str) -> int:
    env: dict[str, Any] = dict(os.environ)
    if "PWD" in env:
        env["PWD"] = folder
    try:
        return subprocess.run(words, cwd=folder, env=env, check=False).returncode
    except OSError as error:
        _print(f"cannot start {words[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else _CANNOT_START


def _bring_back(stage: LocalStage, node_cache: NodeCache) -> None:
    if stage.results is None:
        node_cache.done(stage.name)
        return
    results = os.fsencode(os.path.join(stage.inside, stage.results))
    brought = bring_back(node_cache, stage.name, results, stage.target, stage.limit_bytes)
    if brought.notice is not None:
        _print(brought.notice)


def _print(text: str) -> None:
    sys.stderr.write(f"stoker: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
