"""The shepherd: parents all jobs, is their subreaper, journals, and never outlives its purpose.

Its client sends lines of JSON, each a list of messages; it answers with lines of one report each.
It ends every tree the moment its client is gone; after `finish` it waits for leftovers and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.executors.shepherd import trees
from stoker.executors.shepherd.journal import Journal
from stoker.executors.shepherd.places import Attempt, Context, Leases, Place

PROTOCOL = 2
LEFTOVER_GRACE_S = 5.0
_START_REPORT_DELAY_S = 0.02
_SWEEP_PERIOD_S = 0.5
_TOUCH_PERIOD_S = 3600.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Python ignores some signals and the shepherd others; jobs get all of them back as they should be.
_RESET_SIGNALS = [
    int(getattr(signal, name))
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM", "SIGCHLD")
]


class Shepherd:
    """All state of the process, and one method per message."""

    def __init__(self, client: socket.socket, client_fd: int) -> None:
        self.client = client
        self.journal = Journal()
        self.name = ""
        self.cookie = b""
        self.contexts: dict[int, Context] = {}
        self.places: dict[int, Place] = {}
        self.composites: list[Place] = []
        self.leases = Leases()
        self.running: dict[int, Attempt] = {}
        self.pids: dict[str, int] = {}
        self.occupied: set[Place] = set()
        self.doomed: dict[str, int] = {}
        self.orphans: dict[int, float] = {}
        self.reports: list[str] = []
        self.urgent = False
        self.inbox = b""
        self.outbox = b""
        self.blocked = False
        self.sweep_at = float("inf")
        self.touch_at = time.monotonic() + _TOUCH_PERIOD_S
        self.finishing = False
        self.cwd = ""
        self.verbs: dict[str, Callable[..., None]] = {
            "open": self.on_open,
            "context": self.on_context,
            "place": self.on_place,
            "hold": self.on_hold,
            "release": self.on_release,
            "start": self.on_start,
            "revoke": self.on_revoke,
            "signal": self.on_signal,
            "kill": self.on_kill,
            "finish": self.on_finish,
        }
        self.poll = select.epoll()
        self.poll.register(client.fileno(), select.EPOLLIN)
        self.wake = _wake_on_child()
        self.poll.register(self.wake, select.EPOLLIN)
        self.client_fd = client_fd
        self.poll.register(self.client_fd, select.EPOLLIN)

    def serve(self) -> None:
        """Work until the client is gone or has finished."""
        self.tell("hello", PROTOCOL, os.getpid())
        self.flush()
        while True:
            events = self.poll.poll(self.patience())
            for fd, _event in events:
                if fd == self.wake:
                    os.read(self.wake, 4096)
                elif fd == self.client_fd or not self.receive():
                    self.slay_all()
                    self.journal.flush()
                    return
            self.reap()
            if time.monotonic() >= self.sweep_at:
                self.sweep()
            if time.monotonic() >= self.touch_at:
                self.touch_leases()
            if self.finishing and self.is_done():
                self.client.setblocking(True)
                self.flush(late=True)
                return
            self.flush(late=not events)

    def is_done(self) -> bool:
        """Whether nothing is left, or only what cannot even be killed (another user's, or stuck)."""
        left = self.running.keys() | trees.living_children()
        given_up = time.monotonic() - 2 * LEFTOVER_GRACE_S
        return all(self.orphans.get(pid, float("inf")) < given_up for pid in left)

    def patience(self) -> float:
        """How long to wait for the next event before a promise falls due."""
        if self.reports:
            return _START_REPORT_DELAY_S
        return max(0.0, min(self.sweep_at, self.touch_at) - time.monotonic())

    def receive(self) -> bool:
        """Carry out what the client sent; False once it has closed its end."""
        try:
            data = self.client.recv(1 << 18)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if not data:
            return False
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            for verb, *rest in json.loads(line):
                self.verbs[verb](*rest)
        return True

    def flush(self, late: bool = False) -> None:
        """Report; a start waits a moment for company, which spares very short jobs a report of their own."""
        self.journal.flush()
        if self.urgent or (late and self.reports):
            self.outbox += "\n".join([*self.reports, ""]).encode()
            self.reports.clear()
            self.urgent = False
        if not self.outbox:
            return
        try:
            sent = self.client.send(self.outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the client is gone: its pidfd or end-of-file tells the loop
        self.outbox = self.outbox[sent:]
        if bool(self.outbox) != self.blocked:
            self.blocked = not self.blocked
            wanted = select.EPOLLIN | (select.EPOLLOUT if self.blocked else 0)
            self.poll.modify(self.client.fileno(), wanted)

    def tell(self, *words: object) -> None:
        """Report something that is not frequent."""
        self.reports.append(json.dumps(words))
        self.urgent = True

    def on_open(self, name: str, journal: str) -> None:
        """Begin to keep a journal, under a name that is unique on this host."""
        self.name = name
        outer = os.environ.get(trees.COOKIE)
        self.cookie = (f"{outer}/{name}:" if outer else f"{name}:").encode()
        self.journal.open(journal)
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            self.journal.note(f"boot {file.read().strip()} {name} .\n")

    def on_context(self, number: int, env: dict[str, str], cwd: str, shell: str) -> None:
        """Remember what many starts share."""
        self.contexts[number] = Context(_bytes_env(env), cwd, shell)

    def on_place(
        self, number: int, env: dict[str, str], keys: list[str], parts: list[int] | None = None
    ) -> None:
        """Remember a set of GPUs; with parts it is made of other places, or with none needs no room."""
        whole = None if parts is None else tuple(self.places[part] for part in parts)
        place = self.places[number] = Place(_bytes_env(env), keys, whole)
        if parts:
            self.composites.append(place)
            self.leases.fit([place])

    def on_hold(self, number: int) -> None:
        """Take the leases of a place: all of them or none."""
        missing = self.leases.take(self.places[number].keys, self.name)
        if missing is None:
            self.leases.fit(self.places.values())
            self.tell("held", number)
        else:
            self.tell("unheld", number, *missing)

    def on_release(self, number: int, keys: list[str]) -> None:
        """Give back the named leases of a place."""
        self.leases.release(keys)
        self.leases.fit(self.places.values())
        self.tell("released", number)

    def on_start(
        self, key: str, context: int, place: int, argv: list[str], log: str | None
    ) -> None:
        """Start an attempt: now, or when those before it on its place have ended."""
        there = self.places[place]
        there.queue.append(Attempt(key, self.contexts[context], there, argv, log))
        self.start_next(there)

    def on_revoke(self, key: str) -> None:
        """Take an attempt back, unless it has started."""
        for place in self.places.values():
            for attempt in place.queue:
                if attempt.key == key:
                    place.queue.remove(attempt)
                    self.tell("revoked", key)
                    return

    def on_signal(self, key: str, signum: int) -> None:
        """Signal a job's whole tree once."""
        if key in self.pids:
            trees.send(self.members(key, self.pids[key]), signum)

    def on_kill(self, key: str) -> None:
        """Kill a job's whole tree, again and again until nothing of it is left."""
        if key in self.pids:
            # The group at once, so that a shell does not go on to its next command.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pids[key], signal.SIGKILL)
            self.doomed[key] = self.pids[key]
            self.sweep_at = 0.0

    def on_finish(self) -> None:
        """No more jobs will come: end when the last process has, or its grace is over."""
        self.finishing = True
        self.sweep_at = 0.0
        strays = trees.living_children()
        if strays:
            self.tell("strays", sorted(strays))

    def start_next(self, place: Place) -> None:
        """Start the first attempt that waits for a place, if the place is free."""
        queue = place.queue
        while queue and self.occupied.isdisjoint(place.parts):
            attempt = queue.popleft()
            try:
                self.journal.intend(f"spawn {attempt.key} .\n")
                self.spawn(attempt)
            except OSError as error:
                self.tell("refused", attempt.key, error.errno or 0, _reason_of(error))

    def spawn(self, attempt: Attempt) -> None:
        """Make a process of an attempt whose intent is on record; OSError if it cannot be."""
        context, place = attempt.context, attempt.place
        key = attempt.key.encode()
        env = context.environment(place).copy()
        env[b"STOKER_JOB_ID"], _, env[b"STOKER_ATTEMPT"] = key.partition(b".")
        env[trees.COOKIE_BYTES] = self.cookie + key
        actions = place.lease_actions
        log_fd = -1
        try:
            if context.cwd != self.cwd:
                os.chdir(context.cwd)
                self.cwd = context.cwd
            if attempt.log is not None:
                log_fd = _open_log(attempt.log)
                actions = [
                    (os.POSIX_SPAWN_DUP2, log_fd, 1),
                    (os.POSIX_SPAWN_DUP2, log_fd, 2),
                    *actions,
                ]
            at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            started_us = time.time_ns() // 1000
            pid = _posix_spawn(attempt.argv, env, actions, context.shell)
        finally:
            if log_fd >= 0:
                os.close(log_fd)
        self.running[pid] = attempt
        self.occupied.update(place.parts)
        self.pids[attempt.key] = pid
        self.journal.note(f"start {attempt.key} {pid} {int(at_s * _TICKS_PER_S)} .\n")
        self.reports.append(f'["started","{attempt.key}",{pid},{started_us},{at_s:.3f}]')

    def reap(self) -> None:
        """Record every end, and start what waited for it."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.orphans.pop(pid, None)
            attempt = self.running.pop(pid, None)
            if attempt is not None:
                self.end(attempt, status, usage)

    def end(self, attempt: Attempt, status: int, usage: Any) -> None:
        """An attempt is over when its first process is."""
        key, at_us = attempt.key, time.time_ns() // 1000
        cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
        rss_kb = usage.ru_maxrss
        self.journal.note(f"end {key} {status} {at_us} {cpu_us} {rss_kb} .\n")
        self.reports.append(f'["ended","{key}",{status},{at_us},{cpu_us},{rss_kb}]')
        del self.pids[key]
        place = attempt.place
        self.occupied.difference_update(place.parts)
        for part in place.parts:
            self.start_next(part)
        for composite in self.composites:
            self.start_next(composite)
        # While the place has more to do, the client need not be woken for this end alone.
        self.urgent = self.urgent or not place.queue
        if self.sweep_at == float("inf"):
            self.sweep_at = time.monotonic() + _SWEEP_PERIOD_S

    def touch_leases(self) -> None:
        """Keep cleaners of old files away from the leases."""
        self.touch_at = time.monotonic() + _TOUCH_PERIOD_S
        self.leases.touch()

    def members(self, key: str, pid: int) -> set[int]:
        """The living processes of a job."""
        return trees.members(pid, f"{self.name}:{key}", trees.living_children())

    def sweep(self) -> None:
        """Kill what is doomed, and leftovers whose grace is over; come back while any are left."""
        now = time.monotonic()
        for key, pid in list(self.doomed.items()):
            found = self.members(key, pid)
            trees.send(found, signal.SIGKILL)
            if not found and key not in self.pids:
                del self.doomed[key]
        strays = trees.living_children() - self.running.keys()
        table = trees.processes() if strays else {}
        for pid in strays:
            if pid not in table or self.belongs_to_running(table[pid]):
                continue
            if now - self.orphans.setdefault(pid, now) >= LEFTOVER_GRACE_S:
                trees.send(trees.members(pid, f"stray-{pid}", {pid}), signal.SIGKILL)
        if self.doomed:
            self.sweep_at = now + 0.01
        elif self.orphans.keys() & strays:
            self.sweep_at = now + 0.1
        else:
            self.orphans.clear()
            self.sweep_at = float("inf")

    def belongs_to_running(self, process: trees.Process) -> bool:
        """Whether a daemonised process is part of a job that still runs."""
        if {process.group, process.session} & self.running.keys():
            return True
        cookies = (trees.cookie_of(process.pid) or "").split("/")
        return any(f"{self.name}:{key}" in cookies for key in self.pids)

    def slay_all(self) -> None:
        """Kill every tree: what loses its parent becomes our child, so the loop ends with none left.

        Unless something cannot be killed: another user's, by sudo, or stuck in the kernel.
        """
        for pid in self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for place in self.places.values():
            place.queue.clear()
        give_up_at = time.monotonic() + 2 * LEFTOVER_GRACE_S
        while (children := trees.living_children()) and time.monotonic() < give_up_at:
            trees.send(children, signal.SIGKILL)
            time.sleep(0.001)
            self.reap()
        self.reap()


def _posix_spawn(
    argv: list[str], env: dict[bytes, bytes], actions: list[tuple[int, int, int]], shell: str
) -> int:
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=_RESET_SIGNALS,
        )
    except OSError:
        if argv[0] == shell:
            raise
        # Not an executable after all: the shell knows what to do or what to say.
        return _posix_spawn([shell, "-c", '"$0" "$@"', *argv], env, actions, shell)


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _reason_of(error: OSError) -> str:
    text = error.strerror or str(error)
    if isinstance(error.filename, str):
        name = os.fsencode(error.filename).decode("utf-8", "backslashreplace")
        return f"{text}: {name}"
    return text


def _bytes_env(env: dict[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def _wake_on_child() -> int:
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
    return reader


def main() -> None:
    """Serve the client on descriptor 3, whose pid is the only argument."""
    gc.disable()
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    client = socket.socket(fileno=os.dup(3))  # a duplicate is not inherited by jobs
    os.close(3)
    client.setblocking(False)
    trees.become_subreaper()
    with contextlib.suppress(ProcessLookupError):  # the client is gone already
        Shepherd(client, os.pidfd_open(int(sys.argv[1]))).serve()
