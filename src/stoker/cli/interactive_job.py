"""Submits an interactive job, waits until it starts, and connects to it.

`stoker shell` has to be fast if a GPU is free: what only a wait needs is imported then.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from stoker.errors import StokerError, UsageError
from stoker.home import find_home, make_folder
from stoker.interactive.session import FOLDER, Folder, is_own
from stoker.submit_context import build_submission, find_folder, to_wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from stoker.cli.arguments import Args
    from stoker.client.client import Client
    from stoker.wire import JobDetail

    T = TypeVar("T")

_QUICK_START_S = 0.4
_ASK_EVERY_S = 1.0
_END_S = 5.0
DEFAULT_FOR = "8h"
DEFAULT_IDLE = "30m"
NEVER = ("never", "none")


def limits_of(args: Args) -> dict[str, Any]:
    """Return the options of a submission for --for, --idle, -g, -p, -N and -P."""
    from stoker.core.durations import parse_option

    if args.gpus < 0:
        raise UsageError(f"-g {args.gpus}: write 0 or more")
    limits = {}
    for option, text in (("--for", args.time_limit), ("--idle", args.idle)):
        limits[option] = None if text in (None, *NEVER) else parse_option(option, text)
    return {
        "timeout_s": limits["--for"],
        "idle_s": limits["--idle"],
        "gpus": args.gpus,
        "priority": args.priority,
        "project": args.project,
    }


class InteractiveJob:
    """A submitted job whose process connects to this client."""

    def __init__(
        self,
        kind: str,
        words: list[str],
        options: dict[str, Any],
        stop_signal: signal.Signals = signal.SIGHUP,
    ) -> None:
        from stoker.client.submit import submit

        self._home = find_home()
        self._is_first = options.get("priority") is None
        path = os.path.join(self._home, FOLDER)
        make_folder(path)
        self._folder = Folder(path)
        self._name = os.urandom(16).hex()
        self._listener = self._folder.listen(self._name)
        command = [to_wire(os.fsencode(word)) for word in words]
        message = build_submission(
            [{"command": command}],
            find_folder(None),
            {
                **options,
                "interactive": kind,
                "client": self._name,
                "stop_signal": stop_signal.value,
            },
        )
        try:
            added = submit(self._home, message)
        except BaseException:
            self.close()
            raise
        self.id: int = added["first"]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        self._folder.remove(f"{self._name}.sock")
        self._folder.close()

    def connect(self, use: Callable[[InteractiveJob], T]) -> T:
        """Return what `use` makes of the job; a signal to this process meanwhile cancels the job."""
        with _ended_by_signal():
            try:
                return use(self)
            except (KeyboardInterrupt, SignalError):
                self._cancel()
                raise
            finally:
                self.close()

    def accept(self) -> Socket:
        """Wait until the job runs; returns the connection of its process."""
        return self._accept() or self._wait()

    def _accept(self, timeout_s: float = _QUICK_START_S) -> Socket | None:
        from _socket import socket as Socket  # noqa: N812

        if not select.select([self._listener], [], [], timeout_s)[0]:
            return None
        fd, _address = self._listener._accept()  # type: ignore[attr-defined]
        connection = Socket(fileno=fd)
        if is_own(connection):
            return connection
        connection.close()
        return None

    def _wait(self) -> Socket:
        from stoker.wire import Move

        line = _WaitLine()
        with self._client() as client, line:
            if self._is_first:
                with contextlib.suppress(StokerError):  # it has started meanwhile
                    client.move(Move(job=str(self.id)))
            while True:
                connection = self._accept(0.0)
                if connection is not None:
                    return connection
                why = client.why(self.id)
                if why.state.value not in ("starting", "running"):
                    self._refuse_ended(client, why.state.value)
                    line.show(why.text)
                connection = self._accept(_ASK_EVERY_S)
                if connection is not None:
                    return connection

    def _refuse_ended(self, client: Client, state: str) -> None:
        if state in ("done", "failed", "killed", "lost", "skipped"):
            job = client.show(self.id)
            raise StokerError(
                f"job {self.id} is {state}{f': {job.reason}' if job.reason else ''};"
                f" see: stoker show {self.id}"
            )

    def _cancel(self) -> None:
        from stoker.wire import Kill

        with contextlib.suppress(StokerError), self._client() as client:
            client.kill(Kill(ids=str(self.id)))

    def outcome(self) -> JobDetail | None:
        """Return the job once it is recorded as ended; None if that takes too long."""
        import time

        deadline = time.monotonic() + _END_S
        with contextlib.suppress(StokerError), self._client() as client:
            while time.monotonic() < deadline:
                job = client.show(self.id)
                if job.ended_at is not None:
                    return job
                time.sleep(0.05)
        return None

    def _client(self) -> Client:
        from stoker.client.client import Client

        return Client(self._home)


class SignalError(Exception):
    """A signal that ends this process."""


class _WaitLine:
    """One line that says what the job waits for; on a terminal it is replaced when that changes."""

    def __init__(self) -> None:
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> _WaitLine:  # noqa: PYI034 - typing has Self, and costs too much
        return self

    def __exit__(self, *_details: object) -> None:
        if self._shown and self._is_terminal:
            sys.stderr.write("\n")

    def show(self, text: str) -> None:
        """Show the line; in a pipe only the first one."""
        from stoker.cli.safe_text import one_line

        if text == self._shown or (self._shown and not self._is_terminal):
            return
        self._shown = text
        if self._is_terminal:
            columns = os.get_terminal_size(2).columns or 80
            sys.stderr.write(
                f"\r\x1b[K{one_line(f'stoker: {text}'.encode(), width=max(20, columns - 1))}"
            )
        else:
            sys.stderr.write(f"stoker: {text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Raise an exception for signals that would end this process without cleaning up."""

    def stop(number: int, _frame: object) -> None:
        for each in old:
            signal.signal(each, signal.SIG_IGN)  # a second one must not interrupt the clean-up
        raise KeyboardInterrupt if number == signal.SIGINT else SignalError(number)

    old = {
        each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def run_in_terminal(words: list[str], options: dict[str, Any]) -> int:
    """Run a command on leased GPUs in this terminal; returns its exit code."""
    from stoker.cli.terminal_client import TerminalClient

    try:
        job = InteractiveJob("terminal", words, options)
        connection = job.connect(InteractiveJob.accept)
    except SignalError as error:
        return 128 + int(error.args[0])
    client = TerminalClient(connection)
    client.run()
    connection.close()
    if client.signal is not None:
        return 128 + client.signal
    status = client.status
    if status is not None and not status & 0x7F:
        return status >> 8
    return _explain_end(job, status)


def _explain_end(job: InteractiveJob, status: int | None) -> int:
    """Say why a job ended that did not end by itself; returns its exit code."""
    from stoker.cli.messages import note

    ended = job.outcome()
    if ended is not None and ended.state.value in ("killed", "lost") and ended.reason:
        note(f"job {job.id} was ended: {ended.reason}")
    elif status is None:
        note(f"the connection to job {job.id} broke: stoker show {job.id} says how it ended")
    if status is None:
        number = None if ended is None else ended.signal
        return 128 + number if number else 1
    return 128 + (status & 0x7F)


def refuse_without_terminal(instead: str) -> None:
    """Refuse to start without a terminal on standard input."""
    if not os.isatty(0):
        raise UsageError(
            f"standard input is no terminal (ssh needs -t): without one write {instead}"
        )
