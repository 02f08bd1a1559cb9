"""What a job learns of its own imports, for the workers of later jobs.

Standard library only, as the worker.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import os
import sys
import time

from .messages import stamp_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from .messages import FileStamp, Learned

JOB_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "STOKER_GPU_UUIDS",
    "CUDA_MPS_PIPE_DIRECTORY",
)
"""Variables that no import reads. A worker has no value for them, so a change by an import does not count."""
_EARLY_REPORT_S = 0.5  # of imports, after which a job reports what it has imported


class ChildSettings:
    """The first variable that a job sets itself, and the modules that were imported before.

    Modules that are imported later may read the variable; in a worker they would read it too early.
    `import_s` is the time that the job has spent on imports, since `started_ns`.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.before: set[str] = set()
        self.import_s = 0.0
        self.started_ns = time.time_ns()

    def watch(self, report: Callable[[], None]) -> None:
        """Watch until a variable is set. Every change of `os.environ` calls one of these two functions.

        Calls `report` when imports have taken long, and again when they have taken twice as long.
        """
        put, unset = os.putenv, os.unsetenv

        def note(name: Any, value: Any = None) -> None:
            shown = os.fsdecode(name)
            if shown in JOB_VARIABLES:
                return
            wanted = None if value is None else os.fsdecode(value)
            if os.environ.get(shown) != wanted and not _is_importing(sys._getframe(2)):
                self.name, self.before = shown, set(sys.modules)
                os.putenv, os.unsetenv = put, unset

        def putenv(name: Any, value: Any) -> None:
            note(name, value)
            put(name, value)

        def unsetenv(name: Any) -> None:
            note(name)
            unset(name)

        os.putenv, os.unsetenv = putenv, unsetenv
        self._time_imports(report)

    def _time_imports(self, report: Callable[[], None]) -> None:
        """Add up the time of all imports of modules in source files, nested ones once."""
        loader: Any = importlib.machinery.SourceFileLoader
        execute = loader.exec_module
        depth, due_s = 0, _EARLY_REPORT_S

        def exec_module(itself: object, module: object) -> None:
            nonlocal depth, due_s
            began, depth = time.monotonic(), depth + 1
            try:
                execute(itself, module)
            finally:
                depth -= 1
                if not depth:
                    self.import_s += time.monotonic() - began
            if not depth and self.import_s >= due_s:
                due_s = 2 * self.import_s
                with contextlib.suppress(Exception):
                    report()

        loader.exec_module = exec_module


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an installed module is being imported: it would do the same in a worker."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith("<frozen importlib"):
            return True
        if not path.startswith("<frozen ") and not is_installed(path):
            return False
        frame = frame.f_back
    return False


def is_installed(path: str) -> bool:
    """Whether a file belongs to the interpreter or to an installed package."""
    library = os.path.dirname(os.__file__)
    return "/site-packages/" in path or "/dist-packages/" in path or path.startswith(f"{library}/")


def find_learned(base: set[str], made: int, settings: ChildSettings) -> Learned | str:
    """Return the installed modules that a job has imported besides `base`, in their order, for later jobs.

    If the job set variables before most of its imports, return that as the reason to learn nothing. Its
    worker has made `made` imports for it.
    """
    names, sources = [], []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        path = getattr(spec, "origin", None)
        if name in base or not isinstance(path, str):
            continue
        if is_installed(path):
            names.append(name)
        elif os.path.isfile(path):
            sources.append(_stamp_source(path, settings.started_ns))
    found: Learned = {
        "partial": False,
        "modules": names,
        "seconds": settings.import_s,
        "sources": sources,
    }
    if settings.name is not None:
        early = [name for name in names if name in settings.before]
        late = [name.partition(".")[0] for name in names if name not in settings.before]
        found["modules"] = early
        if len(late) > len(early) + made:
            most = max(dict.fromkeys(late), key=late.count)
            return f"it sets {settings.name} before it imports {most}, which would not see it"
    return found


def _stamp_source(path: str, started_ns: int) -> FileStamp:
    """Return the stamp of a module's source as the job read it; one that never holds if it changed since."""
    stamp = stamp_file(path)
    return stamp if stamp is not None and stamp[1] < started_ns else (path, 0, 0)


def write_learned(path: str, learned: Learned | str) -> bool:
    """Write what a job has learned; False if that fails: the next job will learn."""
    try:
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(learned, file)
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        return False
    return True
