"""Imports of a warm worker: makes them one by one, and finds those that no fork can follow.

Standard library only, as the worker.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import sys
import time

from .import_settings import end_pools
from .late_imports import LateImports, reads_of_environment
from .messages import LATE, stamp_file
from .static_imports import StaticImports, load_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    from .messages import FileStamp

_SLOW_IMPORT_S = 0.001
_THREAD_END_S = 0.5
# Modules that a package imports only when training starts. The script may set what they read before that.
_LATE = {"torch": ("torch.optim", "torch._dynamo")}


class UnfitError(Exception):
    """No job can be forked from this process, for the reason given.

    `culprits` are the packages whose import is the reason, if jobs can be forked without them.
    """

    def __init__(self, reason: str, culprits: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.culprits = culprits


class ImportWatch:
    """What happened while modules were imported.

    `stamps` are those of the imported sources from before they were read: they may be saved meanwhile.
    `thread_starters` are the packages that were being imported when the first thread appeared, the innermost
    first.
    """

    def __init__(self) -> None:
        self.stamps: dict[str, FileStamp] = {}
        self.thread_starters: tuple[str, ...] = ()
        self._stack: list[str] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all imports from files."""
        source: Any = importlib.machinery.SourceFileLoader
        extension: Any = importlib.machinery.ExtensionFileLoader
        ask = source.path_stats

        def path_stats(loader: object, path: str) -> object:
            stamp = stamp_file(path)
            if stamp is not None:
                self.stamps.setdefault(path, stamp)
            return ask(loader, path)

        run, create, init = source.exec_module, extension.create_module, extension.exec_module

        def run_source(loader: Any, module: ModuleType) -> None:
            with self._importing(module.__name__):
                run(loader, module)

        def create_extension(loader: Any, spec: Any) -> Any:
            with self._importing(spec.name):
                return create(loader, spec)

        def init_extension(loader: Any, module: ModuleType) -> None:
            with self._importing(module.__name__):
                init(loader, module)

        source.path_stats, source.exec_module = path_stats, run_source
        extension.create_module, extension.exec_module = create_extension, init_extension
        try:
            yield
        finally:
            source.path_stats = ask
            del source.exec_module  # it is inherited
            extension.create_module, extension.exec_module = create, init

    @contextlib.contextmanager
    def _importing(self, name: str) -> Iterator[None]:
        self._stack.append(name.partition(".")[0])
        try:
            yield
            # The number of links of this folder: quicker than to list it, after each of thousands of modules.
            if not self.thread_starters and os.stat("/proc/self/task").st_nlink > 3:
                self.thread_starters = tuple(dict.fromkeys(reversed(self._stack)))
        finally:
            self._stack.pop()


class Imports:
    """The modules that a worker imports: the user's own list, and those that an earlier run imported.

    `first` are those that the script makes first, and `late` those that it makes later. `without` are
    packages that are left out of all but the user's list.
    """

    def __init__(
        self,
        named: list[str],
        first: StaticImports,
        learned: list[str],
        without: list[str],
        late: LateImports | None = None,
    ) -> None:
        self._late = LateImports() if late is None or LATE in without else late
        self.is_ahead = False  # whether it has imported ahead of the script
        self._named = named
        # Private packages last: the packages that they belong to import them, and are named if one fails.
        names = sorted(dict.fromkeys([*first.names, *learned]), key=_is_private)
        self._learned = [name for name in names if _top(name) not in without]
        self._parts = [each for each in first.parts if _top(each[0]) not in without]
        self._without = without
        self.watch = ImportWatch()

    def make(self) -> list[str]:
        """Import; return the named modules, and the learned ones whose import was slow.

        Raises UnfitError at the first import after which no job can be forked.
        """
        with self.watch.watching():
            for name in self._named:
                try:
                    importlib.import_module(name)
                except BaseException as error:
                    raise UnfitError(f"import {name}: {_one_line(error)}") from error
                for part in _LATE.get(name, ()):
                    _import_if_there(part)
                self._check(name, is_named=True)
            took = self._import_all(self._learned, self._parts) + self._import_ahead()
            slow = [name for s, name in sorted(took, reverse=True) if s >= _SLOW_IMPORT_S]
            return self._named + slow

    def _import_ahead(self) -> list[tuple[float, str]]:
        """Import what the script imports late; raises UnfitError if the script could tell."""
        skipped = {*sys.modules, *self._without}
        names = [each for each in self._late.names if skipped.isdisjoint((each, _top(each)))]
        parts = [each for each in self._late.parts if each[0] in names]
        self.is_ahead = bool(names)
        before = _count_output()
        with reads_of_environment(self._late.variables) as read:
            took = self._import_all(names, parts) + self._import_late_parts(names)
        if read:
            raise UnfitError(
                f"import {took[0][1]}: it reads {min(read)}, which the script sets", (LATE,)
            )
        if took and _count_output() > before:
            raise UnfitError(f"import {took[0][1]}: it writes to the output", (LATE,))
        return took

    def _import_late_parts(self, late: list[str]) -> list[tuple[float, str]]:
        """Import what the packages of the script import when training starts, if the script cannot tell."""
        packages = {*self._learned, *late} if self._late.is_safe else ()
        parts = [part for package in packages for part in _LATE.get(package, ())]
        missing = [part for part in parts if part not in sys.modules]
        self.is_ahead = self.is_ahead or bool(missing)
        return [self._import_one(name, _import_if_there) for name in missing]

    def _import_one(self, name: str, import_it: Callable[[str], None]) -> tuple[float, str]:
        """Import a module that the user has not named; return the time that it took."""
        began = time.monotonic()
        import_it(name)
        took = time.monotonic() - began
        self._check(name, is_named=False)
        return took, name

    def _import_all(
        self, names: list[str], parts: list[tuple[str, str]]
    ) -> list[tuple[float, str]]:
        """Import modules and load their parts; return the time that each module took."""
        took = []
        for name in names:
            if name in sys.modules:
                continue
            took.append(self._import_one(name, _import_learned))
        for module, part in parts:
            load_part(module, part)
            self._check(module, is_named=False)
        return took

    def _check(self, name: str, *, is_named: bool) -> None:
        """Raise UnfitError if a fork would lack something that the last import has made."""
        reason = _why_no_fork()
        if reason is None:
            self.watch.thread_starters = ()
            return
        package = _top(name)
        culprits = self.watch.thread_starters or (package,)
        if is_named:
            raise UnfitError(f"import {name}: it {reason}")
        public = [each for each in culprits if not _is_private(each)]
        raise UnfitError(f"import {(public or culprits)[0]}: it {reason}", (*culprits, package))


def _count_output() -> int:
    """Return how many bytes the imports have written: stdout and stderr of a worker are one file."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.fstat(1).st_size


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_private(name: str) -> bool:
    return name.startswith("_")


def _why_no_fork() -> str | None:
    """Return what this process has that a fork would lack; None if there is nothing."""
    if _count_threads() > 1 and not _threads_end():
        return "started threads, which a fork would not have"
    if _has_gpu_open():
        return "has opened the GPU, which a fork could not use"
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return "has initialised CUDA, which a fork could not use"
    return None


def _threads_end() -> bool:
    """Whether no second thread is left after a fork, or a moment later.

    Numeric libraries end their idle threads before a fork, and start them again when needed.
    """
    end_pools()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + _THREAD_END_S
    while _count_threads() > 1 and time.monotonic() < until:
        time.sleep(0.01)
    return _count_threads() == 1


def _has_gpu_open() -> bool:
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            return True
    return False


def _count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _import_if_there(name: str) -> None:
    """Import a module that was not requested: it may be missing, or fail."""
    with contextlib.suppress(BaseException):
        importlib.import_module(name)


def _import_learned(name: str) -> None:
    """Import a module that an earlier run has imported; it may have been removed since.

    Raises UnfitError if its package fails: what is left of it might break the import of a job.
    """
    package = _top(name)
    try:
        importlib.import_module(name)
    except BaseException as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == package
        if package not in sys.modules and not is_missing:
            raise UnfitError(f"import {package}: {_one_line(error)}", (package,)) from error


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
