"""From a queued job to the order that starts it: its words, its log, its surroundings."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from stoker.checkpoints import checkpoint_path
from stoker.core.job import Attempt, Options
from stoker.engine.engine_rules import Order
from stoker.engine.queue import QueueEntry
from stoker.engine.run_folder import LOG, VARIABLE, enter_run_folder, make_run_folder
from stoker.engine.staged_command import COLD, make_words_sync, transfer_of
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.executors.command import DEFAULT_SHELL, MAX_ARGUMENT_BYTES, CommandLine, find_program
from stoker.executors.contract import Executor
from stoker.failpoints import reach
from stoker.home import make_folder
from stoker.store.queue_jobs import Facts, QueueJobs
from stoker.store.submissions import JobEnvironment

_CONTEXTS = 64
_NOTHING: Mapping[str, str] = {}


class LaunchContext:
    """An environment in a folder, made known to the executor under a number."""

    def __init__(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        self.number = number
        self.env = env
        self.cwd = cwd
        self.shell = shell
        self.command_line = CommandLine(shell, env.get("PATH", os.defpath))


class LaunchSpecs:
    """Makes orders; remembers the surroundings used last."""

    def __init__(
        self,
        jobs: QueueJobs,
        executor: Executor,
        home: str,
        sync_limit_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._jobs = jobs
        self._executor = executor
        self._home = home
        self._sync_limit_bytes = sync_limit_bytes
        self._checkpoints = os.path.join(home, "checkpoints")
        self._contexts: OrderedDict[tuple[JobEnvironment, bool, bool], LaunchContext] = (
            OrderedDict()
        )
        self._numbers = 0
        self._made_folders: set[str] = set()

    def prepare(self, attempt: Attempt, entry: QueueEntry) -> Order:
        """How an attempt is to be started; raises OSError where a file of it cannot be made."""
        facts = entry.facts
        assert facts is not None
        context = self._context(facts)
        log = log_path(self._home, facts, attempt.number)
        folder = os.path.dirname(log)
        if facts.log is not None and not os.path.isdir(folder):
            self._made_folders.discard(folder)  # people tidy up where they look
        self._make_folder(folder)
        if attempt.number == 1 and facts.log is not None and b"{index}" in facts.log:
            # Indices begin at 0 in every queue: a file of that name is of another one.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(log)
        if _may_keep(attempt, entry):
            self._make_checkpoint_folder(facts.id)
        words = self._words(facts, context)
        transfer = self._transfer(entry, words)
        if entry.request.options.sync:
            words = self._sync(attempt, entry, words)
        order = Order(words, log, context.number, transfer=transfer)
        if facts.run_dir is not None:
            run_dir = os.fsdecode(facts.run_dir)
            make_run_folder(run_dir, self._jobs.params_of(facts.id))
            argv = enter_run_folder(run_dir, words)
            order = Order(argv, log, context.number, {VARIABLE: run_dir}, transfer=transfer)
        if not entry.request.options.warm:
            return order
        if entry.request.options.sync:
            return msgspec.structs.replace(order, cold=COLD)
        from stoker.engine.warm_launch import make_order_warm

        return make_order_warm(
            order,
            self._plain_words(facts, context),
            entry.request.options.warm,
            cwd=context.cwd,
            home=self._home,
        )

    def _transfer(self, entry: QueueEntry, words: list[str]) -> AttemptTransfer | None:
        facts = entry.facts
        assert facts is not None
        surroundings = self._jobs.surroundings(facts.submission)
        if surroundings.snapshot is None or facts.fresh:
            return None
        return transfer_of(
            words,
            surroundings,
            entry.request.options,
            home=self._home,
            run_dir=None if facts.run_dir is None else os.fsdecode(facts.run_dir),
            limit_bytes=self._sync_limit_bytes(),
        )

    def _sync(self, attempt: Attempt, entry: QueueEntry, words: list[str]) -> list[str]:
        assert entry.facts is not None
        return make_words_sync(
            words,
            attempt,
            self._jobs.surroundings(entry.facts.submission),
            entry.request.options,
            home=self._home,
            is_run=entry.facts.run_dir is not None,
            limit_bytes=self._sync_limit_bytes(),
        )

    def surroundings(self, entry: QueueEntry) -> tuple[list[str] | None, Mapping[str, str]]:
        """The words of a command, None for what only a shell understands, and its environment."""
        facts = entry.facts
        assert facts is not None
        context = self._context(facts)
        return self._plain_words(facts, context), context.env

    def _plain_words(self, facts: Facts, context: LaunchContext) -> list[str] | None:
        if facts.form == "argv":
            return self._words(facts, context)
        return None if is_script(facts) else context.command_line.literal_words(facts.command)

    def _context(self, facts: Facts) -> LaunchContext:
        surroundings = self._jobs.surroundings(facts.submission)
        shares = facts.share is not None
        key = (surroundings, bool(facts.fresh), shares)
        context = self._contexts.get(key)
        if context is None:
            self._numbers += 1
            env = read_environment(self._jobs.environment(surroundings.environment))
            env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            if shares:
                share_memory(env)
            env["STOKER_SUBMIT_DIR"] = os.fsdecode(surroundings.cwd)
            env["STOKER_CHECKPOINTS"] = self._checkpoints
            if surroundings.linger:
                env["STOKER_LINGER"] = "1"
            cwd = run_folder(self._home, surroundings, fresh=bool(facts.fresh))
            context = LaunchContext(self._numbers, env, cwd, surroundings.shell or DEFAULT_SHELL)
            self._contexts[key] = context
            if len(self._contexts) > _CONTEXTS:
                self._contexts.popitem(last=False)
            self._executor.define_context(context.number, env, cwd, context.shell)
        else:
            self._contexts.move_to_end(key)
        return context

    def _words(self, facts: Facts, context: LaunchContext) -> list[str]:
        if facts.form == "argv":
            words = [os.fsdecode(word) for word in split_words(facts.command)]
            program = find_program(words[0], context.env.get("PATH", os.defpath))
            return [program or words[0], *words[1:]]
        if not is_script(facts):
            return context.command_line.words(facts.command)
        script = self._write_script(facts)
        starts_itself = facts.form == "script" and facts.command.startswith(b"#!")
        return [script] if starts_itself else [context.shell, script]

    def _write_script(self, facts: Facts) -> str:
        path = script_path(self._home, facts.id)
        self._make_folder(os.path.dirname(path))
        # A file that somebody still has open for writing cannot be executed.
        with open(
            os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb"
        ) as file:
            file.write(facts.command if facts.command.endswith(b"\n") else facts.command + b"\n")
        reach("script-written")
        os.replace(f"{path}.new", path)
        reach("script-renamed")
        return path

    def _make_checkpoint_folder(self, job: int) -> None:
        path = checkpoint_folder(self._home, job)
        self._make_folder(os.path.dirname(path))
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)  # somebody has tidied up meanwhile

    def _make_folder(self, folder: str) -> None:
        if folder not in self._made_folders:
            is_ours = folder.startswith(self._home + os.sep)
            try:
                make_folder(folder) if is_ours else os.makedirs(folder, exist_ok=True)
            except OSError as error:
                # In text that can be kept, whatever the path is made of.
                name = os.fsencode(error.filename or folder).decode("utf-8", "backslashreplace")
                raise OSError(error.errno, f"{error.strerror}: {name}") from error
            if len(self._made_folders) > 1000:
                self._made_folders.clear()
            self._made_folders.add(folder)


def share_memory(env: dict[str, str], given: Mapping[str, str] = _NOTHING) -> None:
    """Keep frameworks from taking a whole GPU at their start, unless the user has said how.

    What is `given` besides need not be said again.
    """
    for name, value in (
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    ):
        if name not in given:
            env.setdefault(name, value)


def checkpoint_folder(home: str, job: int) -> str:
    """Where a job keeps what its next attempt goes on from: the same over all attempts."""
    return os.path.join(home, "checkpoints", checkpoint_path(job))


def _may_keep(attempt: Attempt, entry: QueueEntry) -> bool:
    """Whether a job finds its checkpoint folder: if it needs a GPU, or has said that it may come again."""
    request, usual = entry.request, Options()
    options = request.options
    return bool(
        request.slots
        or request.retries
        or attempt.number > 1
        or options.requeue
        or options.preemptible
        or (options.stop_signal, options.grace_s) != (usual.stop_signal, usual.grace_s)
    )


def words_of(jobs: QueueJobs, job: int) -> tuple[list[str], str, str | None]:
    """The words of a stored job's command, its folder, and the folder that is its own as a run."""
    facts = jobs.facts(job)
    words = split_words(facts.command) if facts.form == "argv" else facts.command.split()
    cwd = jobs.surroundings(facts.submission).cwd
    run_dir = None if facts.run_dir is None else os.fsdecode(facts.run_dir)
    return [os.fsdecode(word) for word in words], os.fsdecode(cwd), run_dir


def is_script(facts: Facts) -> bool:
    """Whether a job runs from a file of ours: a script, or a line too long for an argument."""
    is_long = facts.form is None and len(facts.command) >= MAX_ARGUMENT_BYTES
    return facts.form == "script" or is_long


def script_path(home: str, job: int) -> str:
    """Where that file is."""
    return os.path.join(home, "scripts", str(job))


def log_path(home: str, facts: Facts, number: int) -> str:
    """Where an attempt's output goes: a file by id, or where the user wants it."""
    if facts.log is None and facts.run_dir is not None:
        return os.path.join(os.fsdecode(facts.run_dir), LOG)
    if facts.log is None:
        return own_log_path(home, facts.id, number)
    return fill_template(os.fsdecode(facts.log), facts.id, facts.name, facts.project)


def own_log_path(home: str, job: int, number: int) -> str:
    """Where an attempt's output goes if nobody wants it elsewhere."""
    return os.path.join(home, "logs", str(job // 1000), f"{job}.{number}.log")


def fill_template(template: str, job: int, name: str | None, project: str | None) -> str:
    """A path with its placeholders filled in."""
    return (
        template.replace("{id}", str(job))
        .replace("{index}", str(job - 1))
        .replace("{name}", name or str(job))
        .replace("{project}", project or "default")
    )


def run_folder(home: str, surroundings: JobEnvironment, *, fresh: bool) -> str:
    """Where a job runs: in its snapshot if it has one."""
    if surroundings.snapshot is None or fresh:
        return os.fsdecode(surroundings.cwd)
    return os.path.join(home, "snapshots", surroundings.snapshot)


def read_environment(block: bytes) -> dict[str, str]:
    """An environment out of its entries."""
    entries = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0") if entry)
    return {name: value for name, _, value in entries}


def join_words(words: list[bytes]) -> bytes:
    """The words of a command as one value."""
    return b"\0".join(words)


def split_words(command: bytes) -> list[bytes]:
    """The words of a command again."""
    return command.split(b"\0")
