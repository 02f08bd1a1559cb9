"""Builds the launch spec of a queued job: its words, log, environment and folder."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from stoker.checkpoints import checkpoint_path
from stoker.containers.command import ContainerSettings, container_words, plain_words
from stoker.core.job import Attempt, Options
from stoker.core.sharing.parameters import CommandFacts
from stoker.engine.attempt_starts import LaunchSpec
from stoker.engine.command_log import remove_log
from stoker.engine.framework_settings import limit_threads, share_gpu
from stoker.engine.queue import QueueEntry
from stoker.engine.run_folder import LOG, enter_run_folder, make_run_folder, run_variables
from stoker.executors.command import DEFAULT_SHELL, MAX_ARGUMENT_BYTES, CommandLine, find_program
from stoker.executors.contract import AttemptTransfer, Executor
from stoker.failpoints import reach
from stoker.home import make_folder
from stoker.interactive.session import process_command
from stoker.staging.local_stage import LocalStage, staged_words
from stoker.store.queue_jobs import Facts, QueueJobs
from stoker.store.submissions import JobEnvironment
from stoker.warm.command import AUTO

_CONTEXTS = 64
_COLD_SYNC = "it runs in a copy of its own (--sync)"


_ContextKey = tuple[JobEnvironment, bool, bool, str, int | None]


class LaunchContext:
    """An environment and a folder that the executor knows by a number."""

    def __init__(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        self.number = number
        self.env = env
        self.cwd = cwd
        self.shell = shell
        self.command_line = CommandLine(shell, env.get("PATH", os.defpath))


class LaunchSpecs:
    """Builds the launch specs of queued jobs; caches the launch contexts used last."""

    def __init__(
        self,
        jobs: QueueJobs,
        executor: Executor,
        home: str,
        sync_limit_bytes: Callable[[], int | None] = lambda: None,
        is_warm: Callable[[], bool] = lambda: True,
        threads_of: Callable[[Attempt], int | None] = lambda _attempt: None,
        containers: Callable[[], ContainerSettings] = ContainerSettings,
    ) -> None:
        self._jobs = jobs
        self._executor = executor
        self._home = home
        self._sync_limit_bytes = sync_limit_bytes
        self._is_warm = is_warm
        self._threads_of = threads_of
        self._containers = containers
        self._checkpoints = os.path.join(home, "checkpoints")
        self._contexts: OrderedDict[_ContextKey, LaunchContext] = OrderedDict()
        self._last_number = 0
        self._made_folders: set[str] = set()

    def prepare(self, attempt: Attempt, entry: QueueEntry) -> LaunchSpec:
        """Build the launch spec of an attempt; raises OSError if a file of it cannot be made."""
        facts, options = entry.facts, entry.request.options
        assert facts is not None
        context = self._context(facts, self._threads_of(attempt))
        log = self._prepare_log(attempt, facts)
        if _needs_checkpoints(attempt, entry):
            self._make_checkpoint_folder(facts.id)
        words = self._words(facts, context)
        program = None if options.image is not None else _looked_up_program(facts, words)
        transfer = self._transfer(facts, options, words, program)
        unwrapped = words
        if options.sync:
            words = self._run_in_copy(attempt, facts, options, words)
        if options.interactive is not None:
            words = process_command(options.interactive, self._home, options.client, words)
        env = None
        if facts.run_dir is not None:
            run_dir = os.fsdecode(facts.run_dir)
            make_run_folder(run_dir, self._jobs.params_of(facts.id), context.env)
            words = enter_run_folder(run_dir, words, context.env)
            env = run_variables(run_dir, context.env)
        spec = LaunchSpec(
            words,
            log,
            context.number,
            env,
            transfer=transfer,
            checkpoints=checkpoint_folder(self._home, facts.id),
            program=program if words is unwrapped else None,
        )
        modules = [name for name in options.warm if name != AUTO or self._is_warm()]
        if not modules:
            return spec
        if options.sync:
            return msgspec.structs.replace(spec, cold=_COLD_SYNC)
        plain = self._plain_words(facts, context)
        return spec.start_warm(plain, modules, cwd=context.cwd, home=self._home)

    def _prepare_log(self, attempt: Attempt, facts: Facts) -> str:
        log = log_path(self._home, facts, attempt.number)
        folder = os.path.dirname(log)
        if facts.log is not None and not os.path.isdir(folder):
            self._made_folders.discard(folder)  # the user has removed it
        self._make_folder(folder)
        if attempt.number == 1 and facts.log is not None and b"{index}" in facts.log:
            # Indices begin at 0 in every queue: an existing file belongs to another queue.
            remove_log(log)
        return log

    def _transfer(
        self, facts: Facts, options: Options, words: list[str], program: str | None
    ) -> AttemptTransfer | None:
        """What another node needs to run a job with a snapshot; with --sync, results come back."""
        environment = self._jobs.surroundings(facts.submission)
        if environment.snapshot is None or facts.fresh:
            return None
        identity, _, inside = environment.snapshot.partition("/")
        cwd = os.fsdecode(environment.cwd)
        run, results, target = None, options.results, os.path.join(cwd, options.results)
        if facts.run_dir is not None:
            target = os.fsdecode(facts.run_dir)
            results = os.path.relpath(target, cwd)
            run = (os.path.normpath(os.path.join(inside, results)), target)
        return AttemptTransfer(
            argv=words if program is None else [program, *words[1:]],
            snapshot=os.path.join(self._home, "snapshots", identity),
            inside=inside,
            run=run,
            results=os.path.normpath(os.path.join(inside, results)) if options.sync else None,
            target=target,
            limit_bytes=self._sync_limit_bytes() or sys.maxsize,
        )

    def _run_in_copy(
        self, attempt: Attempt, facts: Facts, options: Options, words: list[str]
    ) -> list[str]:
        """The words that run an attempt of --sync in a copy of its own, on this machine.

        A sweep's run writes to its folder directly: no results are copied back.
        """
        environment = self._jobs.surroundings(facts.submission)
        assert environment.snapshot is not None
        identity, _, inside = environment.snapshot.partition("/")
        stage = LocalStage(
            node_cache=os.path.join(self._home, "node_cache"),
            name=attempt.key,
            snapshot=os.path.join(self._home, "snapshots", identity),
            inside=inside,
            results=None if facts.run_dir is not None else options.results,
            target=os.path.join(os.fsdecode(environment.cwd), options.results),
            limit_bytes=self._sync_limit_bytes() or sys.maxsize,
        )
        return staged_words(stage, words)

    def surroundings(self, entry: QueueEntry) -> tuple[list[str] | None, Mapping[str, str]]:
        """The words of a command, or None if it needs a shell; and its environment."""
        facts = entry.facts
        if facts is None:  # the job waits
            assert entry.known is not None
            facts = self._jobs.facts(entry.known.id)
        context = self._context(facts)
        return self._plain_words(facts, context), context.env

    def _plain_words(self, facts: Facts, context: LaunchContext) -> list[str] | None:
        if facts.form == "argv":
            return self._words(facts, context)
        return None if is_script(facts) else context.command_line.literal_words(facts.command)

    def _context(self, facts: Facts, threads: int | None = None) -> LaunchContext:
        surroundings = self._jobs.surroundings(facts.submission)
        shares = facts.request.share is not None
        on_cut = facts.request.options.on_cut
        key = (surroundings, bool(facts.fresh), shares, on_cut, threads)
        context = self._contexts.get(key)
        if context is None:
            self._last_number += 1
            env = read_environment(self._jobs.environment(surroundings.environment))
            env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            if shares:
                share_gpu(env)
            limit_threads(env, threads)
            env["STOKER_SUBMIT_DIR"] = os.fsdecode(surroundings.cwd)
            env["STOKER_CHECKPOINTS"] = self._checkpoints
            if surroundings.linger:
                env["STOKER_LINGER"] = "1"
            if on_cut != "stop":
                env["STOKER_ON_CUT"] = on_cut
            cwd = run_folder(self._home, surroundings, fresh=bool(facts.fresh))
            context = LaunchContext(
                self._last_number, env, cwd, surroundings.shell or DEFAULT_SHELL
            )
            self._contexts[key] = context
            if len(self._contexts) > _CONTEXTS:
                self._contexts.popitem(last=False)
            self._executor.define_context(context.number, env, cwd, context.shell)
        else:
            self._contexts.move_to_end(key)
        return context

    def _words(self, facts: Facts, context: LaunchContext) -> list[str]:
        image = facts.request.options.image
        if image is not None:
            return self._container_words(image, facts, context)
        if facts.form == "argv":
            words = [os.fsdecode(word) for word in split_words(facts.command)]
            program = find_program(words[0], context.env.get("PATH", os.defpath))
            return [program or words[0], *words[1:]]
        if not is_script(facts):
            return context.command_line.words(facts.command)
        script = self._write_script(facts)
        starts_itself = facts.form == "script" and facts.command.startswith(b"#!")
        return [script] if starts_itself else [context.shell, script]

    def _container_words(self, image: str, facts: Facts, context: LaunchContext) -> list[str]:
        """The words that run a job in an image, in which nothing of this machine's PATH counts."""
        mounts: list[str] = []
        if facts.form == "argv":
            words = [os.fsdecode(word) for word in split_words(facts.command)]
        elif is_script(facts):
            mounts = [self._write_script(facts)]
            starts_itself = facts.form == "script" and facts.command.startswith(b"#!")
            words = mounts if starts_itself else [context.shell, *mounts]
        else:
            words = plain_words(os.fsdecode(facts.command), context.shell)
        request = facts.request
        return container_words(
            image,
            words,
            context.env,
            self._containers(),
            gpus=request.slots,
            mem_bytes=request.mem_bytes,
            mounts=mounts,
        )

    def _write_script(self, facts: Facts) -> str:
        path = script_path(self._home, facts.id)
        self._make_folder(os.path.dirname(path))
        # Renamed after it is closed: the kernel does not execute a file that is open for writing.
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
            os.makedirs(path, exist_ok=True)  # the user has removed its parent

    def _make_folder(self, folder: str) -> None:
        if folder not in self._made_folders:
            is_ours = folder.startswith(self._home + os.sep)
            try:
                make_folder(folder) if is_ours else os.makedirs(folder, exist_ok=True)
            except OSError as error:
                # The database keeps text: escape bytes of the path that are no UTF-8.
                name = os.fsencode(error.filename or folder).decode("utf-8", "backslashreplace")
                raise OSError(error.errno, f"{error.strerror}: {name}") from error
            if len(self._made_folders) > 1000:
                self._made_folders.clear()
            self._made_folders.add(folder)


def _looked_up_program(facts: Facts, words: list[str]) -> str | None:
    """Return the name of a program that was looked up in PATH; None for a path, a script and a shell line."""
    if is_script(facts):
        return None
    first = split_words(facts.command) if facts.form == "argv" else facts.command.split()
    name = os.fsdecode(first[0]) if first else ""
    is_found = "/" not in name and os.path.basename(words[0]) == name
    return name if name and is_found and words[1:2] != ["-c"] else None


def checkpoint_folder(home: str, job: int) -> str:
    """The folder for checkpoints of a job, the same for all its attempts."""
    return os.path.join(home, "checkpoints", checkpoint_path(job))


def _needs_checkpoints(attempt: Attempt, entry: QueueEntry) -> bool:
    """Whether a job gets a checkpoint folder: it needs a GPU, or it can run more than once."""
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


def command_facts(jobs: QueueJobs, job: int) -> CommandFacts:
    """What tells the kind of a stored job."""
    facts = jobs.facts(job)
    words = split_words(facts.command) if facts.form == "argv" else facts.command.split()
    cwd = jobs.surroundings(facts.submission).cwd
    run_dir, params = None, None
    if facts.run_dir is not None:
        run_dir, params = os.fsdecode(facts.run_dir), jobs.params_of(job)
    return CommandFacts(
        [os.fsdecode(word) for word in words],
        os.fsdecode(cwd),
        run_dir,
        None if params is None else msgspec.json.decode(params, type=dict[str, object]),
    )


def is_script(facts: Facts) -> bool:
    """Whether a job runs from a script file: it is a script, or too long for an argument."""
    is_long = facts.form is None and len(facts.command) >= MAX_ARGUMENT_BYTES
    return facts.form == "script" or is_long


def script_path(home: str, job: int) -> str:
    """The script file of a job."""
    return os.path.join(home, "scripts", str(job))


def log_path(home: str, facts: Facts, number: int) -> str:
    """The log file of an attempt: the user's, the run folder's or Stoker's own."""
    if facts.log is None and facts.run_dir is not None:
        return os.path.join(os.fsdecode(facts.run_dir), LOG)
    if facts.log is None:
        return own_log_path(home, facts.id, number)
    return fill_template(os.fsdecode(facts.log), facts.id, facts.name, facts.request.project)


def own_log_path(home: str, job: int, number: int) -> str:
    """The log file of an attempt whose user names no other."""
    return os.path.join(home, "logs", str(job // 1000), f"{job}.{number}.log")


def fill_template(template: str, job: int, name: str | None, project: str | None) -> str:
    """Fill the placeholders of a log path."""
    return (
        template.replace("{id}", str(job))
        .replace("{index}", str(job - 1))
        .replace("{name}", name or str(job))
        .replace("{project}", project or "default")
    )


def run_folder(home: str, surroundings: JobEnvironment, *, fresh: bool) -> str:
    """The working folder of a job: its snapshot, or the folder it was submitted from."""
    if surroundings.snapshot is None or fresh:
        return os.fsdecode(surroundings.cwd)
    return os.path.join(home, "snapshots", surroundings.snapshot)


def read_environment(block: bytes) -> dict[str, str]:
    """Parse an environment from its NUL-separated entries."""
    entries = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0") if entry)
    return {name: value for name, _, value in entries}


def join_words(words: list[bytes]) -> bytes:
    """Join the words of a command to one value for the database."""
    return b"\0".join(words)


def split_words(command: bytes) -> list[bytes]:
    """Split what `join_words` has joined."""
    return command.split(b"\0")
