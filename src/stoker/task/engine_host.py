"""The private child that hosts the engine: it serves one client and dies with it, and so do its jobs."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
from collections.abc import Iterator, Mapping

import msgspec

from stoker.core.job import Attempt, Outcome
from stoker.core.planner import Candidate
from stoker.core.slot import Slot
from stoker.engine.build import EngineParts, build_engine, make_foreground_sharing
from stoker.engine.engine import Engine
from stoker.engine.engine_rules import EngineRules, Order
from stoker.engine.gpu_models import largest_of, models_of, refuse_too_large
from stoker.engine.journal_recovery import name_supervisor, recover
from stoker.engine.launch_spec import share_memory
from stoker.engine.poll_driver import PollDriver, boot_clock_s
from stoker.engine.queue import QueueEntry
from stoker.engine.run_folder import LOG, VARIABLE, make_run_folder
from stoker.engine.slots import RunningAttempt, SlotTable
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.errors import StokerError, UsageError
from stoker.executors.command import CommandLine, find_program, resolve_shell
from stoker.executors.contract import Ended, Launch
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.gpus.nvml import Nvml
from stoker.gpus.slot_grammar import default_slots, parse_slots
from stoker.home import find_home
from stoker.store import foreground_runs
from stoker.supervisor.launcher import SupervisorProcess
from stoker.task import messages
from stoker.task.environment_query import EnvironmentQueryExecutor
from stoker.task.queue import TaskEntry, TaskQueue
from stoker.warm.command import AUTO

_orders = msgspec.msgpack.Decoder(messages.Order)


class ClientGoneError(Exception):
    """The process that this engine works for is gone."""


class EngineWire:
    """The line to the client: what is said is sent when it can be, and never waited for."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._unpacker = messages.Unpacker()
        self._outbox = bytearray()
        sock.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def receive(self) -> list[messages.Order]:
        """What has arrived; ClientGoneError once nothing more can."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ClientGoneError from error
        if not data:
            raise ClientGoneError
        return [_orders.decode(body) for body in self._unpacker.feed(data)]

    def wait(self) -> messages.Order:
        """The first message."""
        while not (orders := self.receive()):
            select.select([self], [], [])
        return orders[0]

    def wait_for_end(self) -> None:
        """Wait until the client has hung up, having read all it wants to: a ClientGoneError."""
        while True:
            select.select([self], [], [])
            self.receive()

    def say(self, event: messages.Event) -> None:
        """Let the client know; it is sent by `flush`."""
        self._outbox += messages.pack(event)

    def flush(self) -> bool:
        """Send as much as can be sent; whether that was all."""
        while self._outbox:
            try:
                sent = self._socket.send(self._outbox)
            except BlockingIOError:
                return False
            except OSError as error:
                raise ClientGoneError from error
            del self._outbox[:sent]
        return True

    def flush_all(self) -> None:
        """Send everything that is left, however long it takes the client to read it."""
        self._socket.setblocking(True)
        self.flush()
        self._socket.setblocking(False)


class EngineHost:
    """An engine whose jobs come over a wire, and whose events go there."""

    def __init__(
        self,
        wire: EngineWire,
        client_pid: int,
        asked_for: messages.Open,
        record: foreground_runs.ForegroundRun,
        supervisor: SupervisorProcess,
    ) -> None:
        self._wire = wire
        self._record = record
        self._nvml = None if asked_for.gpus == "" else Nvml.open()
        self._mind_others = asked_for.gpus is None
        self._env = _text_env(asked_for.env)
        self._env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self._cwd = os.fsdecode(asked_for.cwd)
        self._shell = resolve_shell(asked_for.shell)
        self._command_line = CommandLine(self._shell, self._env.get("PATH", os.defpath))
        slots = _slots(asked_for, self._nvml, self._env.get("CUDA_VISIBLE_DEVICES"))
        if self._nvml is not None:
            largest = largest_of(slots, models_of(self._nvml.gpus()))
            refuse_too_large(asked_for.gpu_mem, largest)
        self._contexts: dict[str, int] = {self._cwd: 0}
        if asked_for.resume:
            recover(record.jobs, record.journal, record.folder_number)
            record.database.commit()
            record.jobs.remember_earlier()
        self._name = name_supervisor("task", record)
        local = ForegroundExecutor(
            name=self._name,
            journal=record.journal,
            env=self._env,
            cwd=self._cwd,
            shell=self._shell,
            supervisor=supervisor,
            single=True,  # a job may ask for any slots
        )
        self._executor = EnvironmentQueryExecutor(local, self._ask)
        self._queue = TaskQueue(
            record.jobs,
            lambda number: wire.say(messages.Passed(number)),
            resume=asked_for.resume,
            gpu_mem=asked_for.gpu_mem,
        )
        self._key_of: dict[int, str] = {}
        self._engine = self._build_engine(slots, asked_for)
        self._poll_driver = PollDriver(self._engine, local, record.journal)
        self._client = os.pidfd_open(client_pid)
        record.database.on_full = self._wait_for_space
        wire.say(messages.Ready(os.fsencode(record.folder), [slot.label for slot in slots]))

    def _build_engine(self, slots: tuple[Slot, ...], asked_for: messages.Open) -> Engine:
        slot_table = SlotTable(
            slots, cpu_places=asked_for.cpu_places, last_freed_first=asked_for.last_freed_first
        )
        rules = EngineRules(
            max_failures=asked_for.max_failures,
            in_advance=asked_for.in_advance and asked_for.max_failures is None,
        )
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
            sharing=make_foreground_sharing(slot_table, self._record.database, self._kind_of),
            torch_memory_cap=TorchMemoryCap(self._surroundings),
        )
        return build_engine(parts)

    def _kind_of(self, candidate: Candidate) -> tuple[list[str], str, str | None]:
        job = self._queue.job(candidate.id)
        folder = None if job.folder is None else os.fsdecode(job.folder)
        cwd = self._cwd if job.cwd is None else os.fsdecode(job.cwd)
        return os.fsdecode(job.command).split(), cwd, folder

    def _surroundings(self, entry: QueueEntry) -> tuple[list[str] | None, Mapping[str, str]]:
        job = _job(entry)
        plain = self._command_line.literal_words(job.command)
        found = plain if job.argv is None else [os.fsdecode(word) for word in job.argv]
        return found, {**self._env, **_text_env(job.env)}

    def serve(self) -> None:
        """Work until the client wants no more; ClientGoneError if it goes before that."""
        with self._watching():
            # A fork of the client would hold the socket open: its end alone proves nothing.
            self._poll_driver.listen(self._client, _raise_gone)
            self._poll_driver.listen(self._wire.fileno(), self._hear)
            self._poll_driver.turn_until_over(self._flush)
        self._wire.say(messages.Over())
        self._wire.flush_all()

    def on_launch(self, running: RunningAttempt) -> None:
        """Say nothing yet."""
        self._key_of[_number(running)] = running.key

    def on_start(self, running: RunningAttempt) -> None:
        """Tell that a job is a process."""
        assert running.pid is not None
        assert running.started_at_us is not None
        self._wire.say(
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
        """Tell how an attempt ended."""
        number = _number(running)
        self._key_of.pop(number, None)
        self._wire.say(
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
        """Pass it on."""
        self._wire.say(messages.Notice(text))

    def _hear(self) -> None:
        for order in self._wire.receive():
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
            self._executor.answer(key, _text_env(answer.env), answer.error)

    def _on_cancel(self, order: messages.Cancel) -> None:
        key = self._key_of.get(order.number)
        if self._queue.cancel(order.number):
            self._tell_cancelled(order.number, order.reason)
        elif order.running and key is not None:
            running = self._engine.slot_table.running[key]
            self._engine.termination.kill(running, order.reason)

    def _on_close(self, order: messages.Close) -> None:
        self._queue.closed = True
        if order.kill:
            for number in self._queue.cancel_all():
                self._tell_cancelled(number, "cancelled")
            self._engine.kill_all("the session was closed")

    def _tell_cancelled(self, number: int, reason: str) -> None:
        self._wire.say(messages.Ended(number=number, state="killed", reason=reason))

    def _flush(self) -> float | None:
        """Send what was said in this turn; where the client does not listen, when it does again."""
        events = select.POLLIN if self._wire.flush() else select.POLLIN | select.POLLOUT
        self._poll_driver.listen(self._wire.fileno(), self._hear, events)
        return None

    def _ask(self, launch: Launch) -> bool:
        running = self._engine.slot_table.running[launch.key]
        job = _job(running.entry)
        if job.ask:
            slots = [slot.index for slot in running.slots]
            self._wire.say(messages.Asked(job.number, slots, running.gpus))
        return job.ask

    def _prepare(self, attempt: Attempt, entry: QueueEntry) -> Order:
        job = _job(entry)
        env = _text_env(job.env)
        if job.share is not None:
            share_memory(env, self._env)
        if job.argv is not None:
            argv = [os.fsdecode(word) for word in job.argv]
            path = env.get("PATH") or self._env.get("PATH", os.defpath)
            argv[0] = find_program(argv[0], path) or argv[0]
        else:
            argv = self._command_line.words_or_script(
                job.command, lambda: self._record.path("scripts", f"{attempt.key}.sh")
            )
        log = None if job.log is None else os.fsdecode(job.log)
        if job.folder is not None:
            folder = env[VARIABLE] = os.fsdecode(job.folder)
            make_run_folder(folder, job.params)
            log = log or os.path.join(folder, LOG)
            self._record.jobs.note_log(attempt.job, log)
        trace = None if job.trace is None else os.fsdecode(job.trace)
        order = Order(argv, log, self._context(job), env, trace=trace)
        if job.warm is None:
            return order
        from stoker.engine.warm_launch import make_order_warm

        cwd = self._cwd if job.cwd is None else os.fsdecode(job.cwd)
        plain = argv if job.argv is not None else self._command_line.literal_words(job.command)
        return make_order_warm(order, plain, [AUTO], cwd=cwd, home=find_home(), name=job.warm)

    def _context(self, job: messages.Submit) -> int:
        if job.cwd is None:
            return 0
        cwd = os.fsdecode(job.cwd)
        number = self._contexts.get(cwd)
        if number is None:
            number = self._contexts[cwd] = len(self._contexts)
            self._executor.define_context(number, self._env, cwd, self._shell)
        return number

    def _wait_for_space(self, message: str) -> None:
        """Wait a moment for a full disk to be emptied, but for no client that is gone."""
        self._engine.tell_once(f"{message}; waiting for space")
        self._wire.flush()
        if select.select([self._client], [], [], 1.0)[0]:
            raise ClientGoneError

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        if self._nvml is None:
            yield
            return
        from stoker.engine.gpu_monitor import GpuMonitor
        from stoker.engine.process_owners import ProcessOwners

        gpu_monitor = GpuMonitor(
            self._nvml,
            self._engine.slot_table,
            self,
            ProcessOwners(self._engine.slot_table, self._name, lambda: [os.getpid()]),
            mind_others=self._mind_others,
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


def _job(entry: QueueEntry) -> messages.Submit:
    assert isinstance(entry, TaskEntry)
    assert entry.job is not None
    return entry.job


def _number(running: RunningAttempt) -> int:
    return _job(running.entry).number


def _text_env(env: dict[bytes, bytes]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}


def _slots(asked_for: messages.Open, nvml: Nvml | None, visible: str | None) -> tuple[Slot, ...]:
    if asked_for.gpus == "":
        return ()
    known = None if nvml is None else nvml.gpus()
    if asked_for.gpus is None:
        return default_slots(known, visible, asked_for.jobs_per_gpu)
    return parse_slots(asked_for.gpus, known, visible, asked_for.jobs_per_gpu)


def _open_record(asked_for: messages.Open) -> foreground_runs.ForegroundRun:
    home = find_home()
    if asked_for.record is None:
        return foreground_runs.create_private(home)
    key = {name: os.fsdecode(value) for name, value in asked_for.record.items()}
    earlier = foreground_runs.latest(home, key) if asked_for.resume else None
    return earlier or foreground_runs.create(home, key)


def serve(sock: socket.socket, client_pid: int, supervisor: SupervisorProcess) -> None:
    """Serve a client to its end, or to one's own: the supervisor ends what then still runs."""
    wire = EngineWire(sock)
    with contextlib.suppress(ClientGoneError, ProcessLookupError), _telling(wire):
        asked_for = wire.wait()
        assert isinstance(asked_for, messages.Open)
        record = _open_record(asked_for)
        try:
            with _telling(wire):
                EngineHost(wire, client_pid, asked_for, record, supervisor).serve()
            wire.wait_for_end()
        finally:
            record.close()
            if asked_for.record is None:
                shutil.rmtree(record.folder, ignore_errors=True)


@contextlib.contextmanager
def _telling(wire: EngineWire) -> Iterator[None]:
    try:
        yield
    except StokerError as error:
        wire.say(messages.Failed(str(error), isinstance(error, UsageError)))
        wire.flush_all()
