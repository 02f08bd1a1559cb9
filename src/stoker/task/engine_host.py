"""The process of a private engine: serves one client, and ends with it, as all its jobs do."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
from collections.abc import Iterator

import msgspec

from stoker.core.job import Attempt, Outcome
from stoker.core.planner import Candidate
from stoker.core.sharing.parameters import CommandFacts
from stoker.core.slot import Slot
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.build import EngineParts, build_engine, make_foreground_sharing
from stoker.engine.engine import Engine
from stoker.engine.framework_settings import limit_threads
from stoker.engine.gpu_models import largest_of, models_of, refuse_too_large
from stoker.engine.journal_recovery import name_supervisor, recover
from stoker.engine.poll_driver import PollDriver, boot_clock_s
from stoker.engine.queue import QueueEntry
from stoker.engine.run_progress import EngineRules
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.engine.thread_share import fair_threads
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.errors import StokerError, UsageError
from stoker.executors.contract import Ended, Launch
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.gpus.box_file import RULES_COPY
from stoker.gpus.drivers import open_driver
from stoker.gpus.slot_grammar import default_slots, parse_slots
from stoker.gpus.turn_files import TurnBoard
from stoker.home import find_home
from stoker.machine import count_cpus
from stoker.store import foreground_runs
from stoker.supervisor.launcher import SupervisorProcess
from stoker.task import messages
from stoker.task.client_connection import ClientConnection, ClientGoneError
from stoker.task.environment_query import EnvironmentQueryExecutor
from stoker.task.job_commands import JobCommands, job_of
from stoker.task.options import decode_texts
from stoker.task.queue import TaskQueue


class EngineHost:
    """An engine whose jobs come from a client, and whose events go there."""

    def __init__(
        self,
        client: ClientConnection,
        client_pid: int,
        opening: messages.Open,
        record: foreground_runs.ForegroundRun,
        supervisor: SupervisorProcess,
    ) -> None:
        self._client = client
        self._opening = opening
        self._record = record
        self._nvml = None if opening.gpus == "" else open_driver()
        self._commands = JobCommands(opening, record)
        slots = self._find_slots()
        self._cpus, self._places = count_cpus(), len(slots) or opening.cpu_places
        if opening.resume:
            recover(record.jobs, record.journal, record.folder_number)
            record.database.commit()
            record.jobs.remember_earlier()
        self._name = name_supervisor("task", record)
        local = ForegroundExecutor(
            name=self._name,
            journal=record.journal,
            env=self._commands.env,
            cwd=self._commands.cwd,
            shell=self._commands.shell,
            supervisor=supervisor,
            single=True,  # a job may ask for any slots
        )
        self._executor = EnvironmentQueryExecutor(local, self._ask)
        self._queue = TaskQueue(
            record.jobs,
            lambda number: client.send(messages.Skipped(number)),
            resume=opening.resume,
        )
        self._key_of: dict[int, str] = {}
        self._engine = self._build_engine(slots)
        self._poll_driver = PollDriver(self._engine, local, record.journal)
        self._client_pidfd = os.pidfd_open(client_pid)
        record.database.on_full = self._wait_for_space
        client.send(messages.Ready(os.fsencode(record.folder), [slot.label for slot in slots]))

    def _find_slots(self) -> tuple[Slot, ...]:
        opening = self._opening
        if opening.gpus == "":
            return ()
        known = None if self._nvml is None else self._nvml.gpus()
        visible = self._commands.env.get("CUDA_VISIBLE_DEVICES")
        if opening.gpus is None:
            slots = default_slots(known, visible, opening.jobs_per_gpu)
        else:
            slots = parse_slots(opening.gpus, known, visible, opening.jobs_per_gpu)
        if known is not None:
            refuse_too_large(opening.gpu_mem, largest_of(slots, models_of(known)))
        return slots

    def _build_engine(self, slots: tuple[Slot, ...]) -> Engine:
        opening = self._opening
        slot_table = SlotTable(slots, cpu_places=opening.cpu_places)
        rules = EngineRules(
            max_failures=opening.max_failures,
            in_advance=opening.in_advance and opening.max_failures is None,
        )

        def kind_of(candidate: Candidate) -> CommandFacts:
            return self._commands.kind_of(self._queue.job(candidate.id))

        parts = EngineParts(
            slot_table=slot_table,
            queue=self._queue,
            executor=self._executor,
            database=self._record.database,
            jobs=self._record.jobs,
            listener=self,
            rules=rules,
            prepare=self._prepare,
            clock=boot_clock_s,
            rules_copy=os.path.join(find_home(), RULES_COPY),
            board=TurnBoard() if slots else None,
            sharing=make_foreground_sharing(slot_table, self._record.database, kind_of),
            torch_memory_cap=TorchMemoryCap(self._commands.words_and_env),
        )
        return build_engine(parts)

    def _prepare(self, attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
        """Return how to start an attempt, with a fair number of threads."""
        spec = self._commands.prepare(attempt, entry)
        env = dict(spec.env or {})
        threads = fair_threads(entry.request, self._cpus, self._places)
        limit_threads(env, threads, self._commands.env)
        return msgspec.structs.replace(spec, env=env)

    def serve(self) -> None:
        """Run until the session is closed and all jobs have ended; ClientGoneError if the client goes."""
        with self._gpus_monitored():
            # A fork of the client keeps the socket open: an open socket does not prove that the client lives.
            self._poll_driver.listen(self._client_pidfd, _raise_gone)
            self._poll_driver.listen(self._client.fileno(), self._receive)
            self._poll_driver.turn_until_over(self._flush)
        self._client.send(messages.Over())
        self._client.flush_all()

    def on_launch(self, running: RunningAttempt) -> None:
        """Remember the key of the attempt."""
        self._key_of[_number(running)] = running.key

    def on_start(self, running: RunningAttempt) -> None:
        """Send that the process of a job has started."""
        assert running.pid is not None
        assert running.started_at_us is not None
        self._client.send(
            messages.Started(
                number=_number(running),
                id=running.attempt.job,
                attempt=running.attempt.number,
                slots=[slot.index for slot in running.slots],
                gpus=running.gpus,
                pid=running.pid,
                at=running.started_at_us / 1e6,
                log=None if running.log is None else os.fsencode(running.log),
            )
        )

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Send how an attempt ended."""
        number = _number(running)
        self._key_of.pop(number, None)
        self._client.send(
            messages.Ended(
                number=number,
                state=outcome.state.value,
                retried=retried,
                reason=outcome.reason,
                exit_code=outcome.exit_code,
                attempt=running.attempt.number,
                at=ended.at_us / 1e6 if ended else None,
                cpu_s=ended.cpu_us / 1e6 if ended else None,
                max_rss_kb=ended.max_rss_kb if ended else None,
            )
        )

    def on_notice(self, text: str) -> None:
        """Send a text for the user."""
        self._client.send(messages.Notice(text))

    def _receive(self) -> None:
        for order in self._client.receive():
            match order:
                case messages.Submit():
                    self._queue.submit(order)
                case messages.Answer():
                    self._on_answer(order)
                case messages.Cancel():
                    self._on_cancel(order)
                case messages.Close():
                    self._on_close(order)
                case messages.Open():
                    raise StokerError("an engine is opened once")

    def _on_answer(self, answer: messages.Answer) -> None:
        key = self._key_of.get(answer.number)
        if key is not None:
            self._executor.answer(key, decode_texts(answer.env), answer.error)

    def _on_cancel(self, order: messages.Cancel) -> None:
        key = self._key_of.get(order.number)
        if self._queue.cancel(order.number):
            self._send_cancelled(order.number, order.reason)
        elif order.running and key is not None:
            running = self._engine.slot_table.running[key]
            self._engine.termination.kill(running, order.reason)

    def _on_close(self, order: messages.Close) -> None:
        self._queue.closed = True
        if order.kill:
            for number in self._queue.cancel_all():
                self._send_cancelled(number, "cancelled")
            self._engine.kill_all("the session was closed")

    def _send_cancelled(self, number: int, reason: str) -> None:
        self._client.send(messages.Ended(number=number, state="killed", reason=reason))

    def _flush(self) -> float | None:
        """Send the messages of this turn; what the client does not read now, when it reads again."""
        events = select.POLLIN if self._client.flush() else select.POLLIN | select.POLLOUT
        self._poll_driver.listen(self._client.fileno(), self._receive, events)
        return None

    def _ask(self, launch: Launch) -> bool:
        running = self._engine.slot_table.running[launch.key]
        job = job_of(running.entry)
        if job.ask:
            slots = [slot.index for slot in running.slots]
            self._client.send(messages.Asked(job.number, slots, running.gpus))
        return job.ask

    def _wait_for_space(self, message: str) -> None:
        """Wait a second for free disk space; ClientGoneError if the client goes."""
        self._engine.tell_once(f"{message}; waiting for space")
        self._client.flush()
        if select.select([self._client_pidfd], [], [], 1.0)[0]:
            raise ClientGoneError

    @contextlib.contextmanager
    def _gpus_monitored(self) -> Iterator[None]:
        if self._nvml is None:
            yield
            return
        from stoker.engine.gpu_monitor import GpuMonitor  # late: only with GPUs
        from stoker.engine.process_owners import ProcessOwners

        gpu_monitor = GpuMonitor(
            self._nvml,
            self._engine.slot_table,
            self.on_notice,
            ProcessOwners(self._engine.slot_table, self._name, lambda: [os.getpid()]),
            mind_others=self._opening.gpus is None,
        )
        nvml = self._nvml
        self._engine.gpus.watch(gpu_monitor, lambda: models_of(nvml.gpus()))
        self._poll_driver.listen(gpu_monitor.fileno(), gpu_monitor.review)
        try:
            yield
        finally:
            self._poll_driver.unlisten(gpu_monitor.fileno())
            gpu_monitor.stop()


def _raise_gone() -> None:
    raise ClientGoneError


def _number(running: RunningAttempt) -> int:
    return job_of(running.entry).number


def _open_record(opening: messages.Open) -> foreground_runs.ForegroundRun:
    home = find_home()
    if opening.record is None:
        return foreground_runs.create_private(home)
    key = decode_texts(opening.record)
    earlier = foreground_runs.latest(home, key) if opening.resume else None
    return earlier or foreground_runs.create(home, key)


def serve(sock: socket.socket, client_pid: int, supervisor: SupervisorProcess) -> None:
    """Serve a client until it goes. The supervisor then ends what still runs."""
    client = ClientConnection(sock)
    with contextlib.suppress(ClientGoneError, ProcessLookupError), _reporting_errors(client):
        opening = client.wait()
        assert isinstance(opening, messages.Open)
        record = _open_record(opening)
        try:
            with _reporting_errors(client):
                EngineHost(client, client_pid, opening, record, supervisor).serve()
            client.wait_for_end()
        finally:
            record.close()
            if opening.record is None:
                shutil.rmtree(record.folder, ignore_errors=True)


@contextlib.contextmanager
def _reporting_errors(client: ClientConnection) -> Iterator[None]:
    try:
        yield
    except StokerError as error:
        client.send(messages.Failed(str(error), isinstance(error, UsageError)))
        client.flush_all()
