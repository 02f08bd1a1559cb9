"""The engine of `stoker run`: it ends with its process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from stoker.core.job import Attempt, Request
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate
from stoker.core.slot import Slot
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.build import EngineParts, build_engine, make_foreground_sharing
from stoker.engine.command_reader import Source
from stoker.engine.engine import Engine
from stoker.engine.events import EngineListener
from stoker.engine.foreground_queue import ForegroundQueue
from stoker.engine.host_resources import HostCapacity
from stoker.engine.journal_recovery import name_supervisor, recover
from stoker.engine.poll_driver import PollDriver, boot_clock_s
from stoker.engine.queue import QueueEntry
from stoker.engine.run_folder import LOG, run_variables
from stoker.engine.run_progress import EngineRules
from stoker.engine.slots import SlotTable
from stoker.errors import StokerError
from stoker.executors.command import CommandLine
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.gpus.box_file import RULES_COPY
from stoker.gpus.turn_files import TurnBoard
from stoker.home import find_home
from stoker.store.foreground_runs import ForegroundRun
from stoker.supervisor.launcher import SupervisorProcess

if TYPE_CHECKING:
    from stoker.engine.mps import Mps


class ForegroundSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a foreground run."""

    slots: tuple[Slot, ...]
    shell: str
    env: Mapping[str, str]
    cwd: str
    request: Request = Request()
    log_of: Callable[[Attempt], str | None]
    folder_of: Callable[[bytes], str | None] = lambda _command: (
        None
    )  # a sweep's run has a folder of its own
    max_failures: int | None = None
    in_advance: bool = True
    drain_first: bool = (
        True  # the first signal lets running commands go on; else it asks them to end
    )
    last_freed_first: bool = False
    resume: bool = False
    warm: tuple[str, ...] = ()  # modules that a warm worker imports for python commands
    mps_folder: str | None = None  # for the folders of MPS daemons; None without MPS
    capacity: HostCapacity | None = None  # of this machine, if the commands declare CPUs or RAM


class ForegroundEngine:
    """Runs the commands of a source, in this process and a supervisor that ends with it."""

    def __init__(
        self,
        run: ForegroundRun,
        source: Source,
        settings: ForegroundSettings,
        listener: EngineListener,
        supervisor: SupervisorProcess,
    ) -> None:
        self._run = run
        self._source = source
        self._listener = listener
        self._settings = settings
        self._signals_seen: list[int] = []
        self._signal_count = 0
        if settings.resume:
            self._look_back()
        self.executor = ForegroundExecutor(
            name=name_supervisor("run", run),
            journal=run.journal,
            env=settings.env,
            cwd=settings.cwd,
            shell=settings.shell,
            supervisor=supervisor,
            single=bool(settings.warm),  # each supervisor would import for itself
        )
        self._command_line = CommandLine(settings.shell, settings.env.get("PATH", os.defpath))
        run.database.on_full = self._wait_for_space
        self.engine = self._build_engine()
        self._poll_driver = PollDriver(
            self.engine,
            self.executor,
            run.journal,
            before_wait=self._listen_to_source,
            after_wait=self._heed_signals,
            when_over=self._tell_what_is_gone,
        )
        self.listen = self._poll_driver.listen
        self.unlisten = self._poll_driver.unlisten

    def _build_engine(self) -> Engine:
        run, settings = self._run, self._settings
        queue = ForegroundQueue(self._source, run.jobs, settings.request, resume=settings.resume)
        slot_table = SlotTable(
            settings.slots,
            last_freed_first=settings.last_freed_first,
            capacity=settings.capacity,
        )
        rules = EngineRules(
            max_failures=settings.max_failures,
            in_advance=settings.in_advance and settings.max_failures is None,
        )
        parts = EngineParts(
            slot_table=slot_table,
            queue=queue,
            executor=self.executor,
            database=run.database,
            jobs=run.jobs,
            listener=self._listener,
            rules=rules,
            prepare=self._prepare,
            clock=boot_clock_s,
            mps=self._find_mps(),
            rules_copy=os.path.join(find_home(), RULES_COPY),
            board=TurnBoard() if settings.slots else None,
        )
        if settings.request.share is None and settings.request.gpu_mem is None:
            return build_engine(parts)
        from stoker.core.sharing.parameters import CommandFacts
        from stoker.engine.torch_memory_cap import TorchMemoryCap

        def kind_of(candidate: Candidate) -> CommandFacts:
            return CommandFacts(os.fsdecode(queue.commands[candidate.id]).split(), settings.cwd)

        sharing = make_foreground_sharing(slot_table, run.database, kind_of)
        cap = TorchMemoryCap(self._surroundings)
        return build_engine(msgspec.structs.replace(parts, sharing=sharing, torch_memory_cap=cap))

    def _find_mps(self) -> Mps | None:
        if self._settings.mps_folder is None:
            return None
        from stoker.engine.mps import Mps

        mps = Mps(self._settings.mps_folder, self._listener.on_notice)
        mps.find()
        return mps

    def _surroundings(self, entry: QueueEntry) -> tuple[list[str] | None, Mapping[str, str]]:
        return self._command_line.literal_words(entry.command), self._settings.env

    def _look_back(self) -> None:
        """Record the ends of the earlier run's attempts, and read which commands it has done."""
        copied = recover(self._run.jobs, self._run.journal, self._run.folder_number)
        self._run.database.commit()
        self._run.jobs.remember_earlier()
        counts = self._run.jobs.counts()
        self._listener.on_notice(
            f"resuming run {self._run.name}: {counts.get(State.DONE, 0)} of"
            f" {sum(counts.values())} recorded commands have succeeded"
        )
        if copied:
            self._listener.on_notice(
                f"this run is a copy: {_running_commands(copied)} again here; the original's processes"
                " are left alone"
            )

    def run(self, refresh: Callable[[], float | None] = lambda: None) -> None:
        """Run all commands; the first SIGINT or SIGTERM drains, the second kills all trees.

        Calls `refresh` after each turn; it returns after how many seconds it wants the next call.
        """
        with self._signals():
            try:
                self._poll_driver.turn_until_over(refresh)
            finally:
                if self.engine.gpus.mps is not None:
                    self.engine.gpus.mps.retire()

    def _tell_what_is_gone(self) -> None:
        gone = (
            self._run.jobs.absent()
            if self._settings.resume and self.engine.queue.exhausted()
            else 0
        )
        if gone:
            self._listener.on_notice(
                f"the input has changed: {gone} recorded commands are no longer in it"
            )

    def _listen_to_source(self) -> None:
        """Wait for more commands only while none has been read: the others stay in the pipe."""
        source = self._source
        wanted = not (
            source.always_ready or source.ended or len(source) or self.engine.progress.draining
        )
        if wanted and source.fd not in self._poll_driver:
            self.listen(source.fd, source.read_some)
        elif not wanted and source.fd in self._poll_driver:
            self.unlisten(source.fd)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.listen(reader, lambda: _discard(reader))
        old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        old = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(old_fd)
            self.unlisten(reader)
            os.close(reader)
            os.close(writer)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._signals_seen.append(signum)

    def _heed_signals(self) -> None:
        while self._signals_seen:
            signum = self._signals_seen.pop(0)
            self._signal_count += 1
            if self._signal_count == 1 and not self._settings.drain_first:
                self.engine.end_all("interrupted")
            elif self._signal_count == 1:
                name, count = signal.Signals(signum).name, len(self.engine.slot_table.running)
                still = f"{count} still running, once more to kill them" if count else "none runs"
                self._listener.on_notice(f"{name}: starting no more; {still}")
                self.engine.drain()
            elif self._signal_count == 2 and self.engine.slot_table.running:
                self.engine.kill_all("interrupted")
            else:
                left = ", ".join(str(each.pid) for each in self.engine.slot_table.running.values())
                what = f"pid {left} could not be killed" if left else "leftovers were killed"
                raise StokerError(f"interrupted: {what}")

    def _prepare(self, attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
        words = self._words(attempt, entry)
        folder = self._settings.folder_of(entry.command)
        if folder is None:
            spec = LaunchSpec(words, self._settings.log_of(attempt))
        else:
            log = os.path.join(folder, LOG)
            self._run.jobs.note_log(attempt.job, log)
            spec = LaunchSpec(words, log, env=run_variables(folder, self._settings.env))
        if not self._settings.warm:
            return spec
        return spec.start_warm(
            self._command_line.literal_words(entry.command),
            self._settings.warm,
            cwd=self._settings.cwd,
            home=find_home(),
        )

    def _words(self, attempt: Attempt, entry: QueueEntry) -> list[str]:
        def script_path() -> str:
            return self._run.path("scripts", f"{attempt.key}.sh")

        image, settings = entry.request.options.image, self._settings
        if image is None:
            return self._command_line.words_or_script(entry.command, script_path)
        from stoker.containers.command import ContainerSettings, container_words, line_words

        words, mounts = line_words(os.fsdecode(entry.command), settings.shell, script_path)
        containers = ContainerSettings.from_environment(settings.env)
        gpus = len(settings.slots[0].gpus) if settings.slots else 0
        return container_words(image, words, settings.env, containers, gpus=gpus, mounts=mounts)

    def _wait_for_space(self, message: str) -> None:
        """Wait a second for space on a full disk; a second interrupt ends the run."""
        self.engine.tell_once(f"{message}; waiting for space")
        time.sleep(1.0)
        if len(self._signals_seen) + self._signal_count > 1:
            raise StokerError("interrupted while the disk was full: all commands were killed")


def _running_commands(count: int) -> str:
    if count == 1:
        return "1 command that was running in the original runs"
    return f"{count} commands that were running in the original run"


def _discard(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)
