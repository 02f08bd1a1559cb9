"""Journal of a supervisor: which attempts were started and how they ended.

    boot   BOOT_ID NAME .                      a supervisor began, under this name in cookies
    spawn  KEY [SLOT] .                        from here on the attempt may have run
    limit  KEY BYTES USED .                    the RAM that it may use; and with how much it was killed, or 0
    start  KEY PID TICKS UNTIL AT_US .         it was started between these ticks since boot
    exit   KEY STATUS AT_US CPU_US RSS_KB .    its first process has ended, others of its processes run
    end    KEY STATUS AT_US CPU_US RSS_KB .    its wait status, when it ended, and what it used
    left   KEY NAMES PIDS .                    processes that it left: those killed, those that could not be
    peak   KEY BYTES .                         the most GPU memory that it used, by its own report
    refuse KEY ERRNO REASON .                  it could not be started
    lose   KEY REASON .                        it is over, and its exit status is unknown
    ack    KEY .                               the client has recorded its end

A KEY is `job.attempt`, a REASON is JSON without blanks. So is SLOT, the label of the slot that took an
attempt which was launched ahead. A line without its closing dot is torn. Without a `spawn` line, an attempt
was never started. With `spawn` but without an end, its outcome is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import json
import os
import signal
from collections.abc import Container, Sequence
from typing import IO, NamedTuple

from stoker import failpoints


class Ending(NamedTuple):
    """How an attempt ended, as the supervisor saw it.

    `leftovers` are the names of processes that the attempt left and the supervisor ended. `stuck` are the
    pids of processes that could not be killed. `gpu_peak_bytes` is the most GPU memory that the attempt used,
    by its own report; 0 if it has made none. `over_mem_bytes` is the RAM that it used when the supervisor
    killed it because that was too much; else 0.
    """

    status: int
    at_us: int
    cpu_us: int
    max_rss_kb: int
    leftovers: tuple[str, ...] = ()
    stuck: tuple[int, ...] = ()
    gpu_peak_bytes: int = 0
    over_mem_bytes: int = 0

    def killed_with(self, used_bytes: int) -> Ending:
        """Return the same end; if a kill ended the attempt, the kill was because it used so much RAM."""
        killed = self.status & 0x7F == signal.SIGKILL
        return self._replace(over_mem_bytes=used_bytes) if killed else self


class Start(NamedTuple):
    """A started process, with the time of its start: between two ticks since boot, and by the calendar."""

    pid: int
    ticks: int
    until: int
    at_us: int


class Refusal(NamedTuple):
    """Why an attempt could not be started."""

    errno: int
    reason: str


class Loss(NamedTuple):
    """Why the exit status of an attempt is unknown."""

    reason: str


class Record(NamedTuple):
    """All that the journal says about one attempt.

    `boot` is the id of the boot in which it was started. `exit` is how its first process ended, while others
    of its processes run. `slot` is the label of the slot that took it, if it was launched ahead. `mem_bytes`
    is the RAM that it may use, and `over_mem_bytes` with how much it was killed; 0 if it was not.
    """

    pid: int | None = None
    ticks: int | None = None
    outcome: Ending | Refusal | Loss | None = None
    until: int | None = None
    at_us: int | None = None
    boot: str | None = None
    exit: Ending | None = None
    slot: str | None = None
    mem_bytes: int = 0
    over_mem_bytes: int = 0

    @property
    def last_known(self) -> Ending | None:
        """How it ended; if that is unknown, how its first process ended."""
        return self.outcome if isinstance(self.outcome, Ending) else self.exit

    def lines(self, key: str) -> str:
        """Return the lines that say all of this."""
        label = "" if self.slot is None else f"{_word(self.slot)} "
        text = spawn_lines(key, label, self.mem_bytes, self.over_mem_bytes)
        if self.pid is not None:
            text += f"start {key} {self.pid} {self.ticks} {self.until} {self.at_us} .\n"
        if self.exit is not None and not isinstance(self.outcome, Ending):
            text += exit_line(key, self.exit)
        match self.outcome:
            case Ending():
                text += end_line(key, self.outcome)
            case Refusal():
                text += refuse_line(key, self.outcome)
            case Loss(reason):
                text += lose_line(key, reason)
        return text


def end_line(key: str, ending: Ending) -> str:
    """Return the lines about the end of an attempt."""
    status, at_us, cpu_us, max_rss_kb, leftovers, stuck, gpu_peak_bytes, _over = ending
    lines = f"end {key} {status} {at_us} {cpu_us} {max_rss_kb} .\n"
    if leftovers or stuck:
        lines += f"left {key} {_word(leftovers)} {_word(stuck)} .\n"
    if gpu_peak_bytes:
        lines += f"peak {key} {gpu_peak_bytes} .\n"
    return lines


def exit_line(key: str, ending: Ending) -> str:
    """Return the line about the end of an attempt's first process while others of its processes run."""
    status, at_us, cpu_us, max_rss_kb, *_rest = ending
    return f"exit {key} {status} {at_us} {cpu_us} {max_rss_kb} .\n"


def spawn_lines(key: str, label: str, mem_bytes: int = 0, over_mem_bytes: int = 0) -> str:
    """Return the lines that precede the start of an attempt; `label` is empty or ends with a blank."""
    line = f"spawn {key} {label}.\n"
    return line + limit_line(key, mem_bytes, over_mem_bytes) if mem_bytes else line


def limit_line(key: str, mem_bytes: int, over_mem_bytes: int = 0) -> str:
    """Return the line about the RAM that an attempt may use, and with how much it was killed."""
    return f"limit {key} {mem_bytes} {over_mem_bytes} .\n"


def refuse_line(key: str, refusal: Refusal) -> str:
    """Return the line about a start that failed."""
    return f"refuse {key} {refusal.errno} {_word(refusal.reason)} .\n"


def lose_line(key: str, reason: str) -> str:
    """Return the line about an end with an unknown exit status."""
    return f"lose {key} {_word(reason)} .\n"


def _word(value: str | Sequence[object]) -> str:
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


class Journal:
    """Appends whole lines. Lines that a full disk refuses are kept and written later."""

    def __init__(self) -> None:
        self.size = 0
        self._path = ""
        self._fd = -1
        self._kept = b""
        self._notes: list[str] = []
        self.note = self._notes.append
        """Keep a line for the next `intend` or `flush`."""

    def open(self, path: str) -> None:
        """Append to a file, and lock it until this process ends: readers wait for that."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._begin(path)

    def claim(self, path: str) -> JournalContents:
        """Lock a file, read it, and append to it. Raises BlockingIOError if another process has locked it."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise
            if is_at(fd, path):
                break
            os.close(fd)  # it was compacted between open and lock
        self._fd = fd
        self._begin(path)
        contents = JournalContents({}, set())
        with io.FileIO(fd, closefd=False) as raw, io.BufferedReader(raw) as file:
            _read_lines(file, contents, None)
        return contents

    def _begin(self, path: str) -> None:
        self._path = path
        self.size = os.fstat(self._fd).st_size
        self._kept = b"\n" if self.size else b""  # the last line may be torn

    @property
    def is_written(self) -> bool:
        """Whether everything is in the file."""
        return not self._kept and not self._notes

    def intend(self, lines: str) -> None:
        """Append lines before the action that they announce. After an OSError they are not in the file."""
        self._gather()
        kept_bytes = len(self._kept)
        data = self._kept + lines.encode("ascii")
        written = self._append(data)
        if written == len(data):
            self._kept = b""
            return
        # End a torn line, so that it cannot be read as something else.
        self._kept = data[written:kept_bytes] if written < kept_bytes else b"~\n"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def flush(self) -> None:
        """Write the kept lines, as much as the disk takes."""
        self._gather()
        if self._kept:
            self._kept = self._kept[self._append(self._kept) :]

    def rewrite(self, lines: str) -> None:
        """Replace the file by a locked new one with these lines. After an OSError, the old one stays."""
        path, data = f"{self._path}.new", lines.encode("ascii")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            failpoints.reach("supervisor-before-rename")
            os.fdatasync(fd)
            os.rename(path, self._path)
            failpoints.reach("supervisor-after-rename")
        except OSError:
            os.close(fd)
            os.unlink(path)
            raise
        os.close(self._fd)
        self._fd, self.size = fd, len(data)
        self._kept = b""
        self._notes.clear()

    def _gather(self) -> None:
        if self._notes:
            self._kept += "".join(self._notes).encode("ascii")
            self._notes.clear()

    def _append(self, data: bytes) -> int:
        try:
            written = os.write(self._fd, data)
        except OSError:
            return 0
        self.size += written
        return written


def journal_path(base: str, number: int) -> str:
    """Return the journal of one of several supervisors; the first one has `base` itself."""
    return f"{base}.{number}" if number else base


class JournalContents(NamedTuple):
    """Records of attempts, and the names of the supervisors that wrote them."""

    records: dict[str, Record]
    names: set[str]


def read_journals(base: str, keys: Container[str] | None = None) -> JournalContents:
    """Read the journals of all supervisors of a run, once those are gone. Without `keys`, all attempts."""
    contents = JournalContents({}, set())
    paths = map(journal_path, itertools.repeat(base), itertools.count())
    for path in itertools.takewhile(os.path.exists, paths):
        _read(path, contents, keys)
    return contents


def read_journal(path: str) -> dict[str, Record]:
    """Read one journal; a missing file has no records."""
    contents = JournalContents({}, set())
    _read(path, contents, None)
    return contents.records


def _read(path: str, contents: JournalContents, keys: Container[str] | None) -> None:
    is_read = False
    while not is_read:
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                is_read = is_at(file.fileno(), path)
                if is_read:
                    _read_lines(file, contents, keys)
        except FileNotFoundError:
            return


def is_at(fd: int, path: str) -> bool:
    """Whether an open file still has this path."""
    here = os.fstat(fd)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _read_lines(file: IO[bytes], contents: JournalContents, keys: Container[str] | None) -> None:
    boot: str | None = None
    for raw in file:
        words = raw.decode("ascii", "replace").split()
        if len(words) == 4 and words[0] == "boot" and words[3] == ".":
            boot = words[1]
            contents.names.add(words[2])
        elif len(words) > 2 and words[-1] == "." and (keys is None or words[1] in keys):
            with contextlib.suppress(ValueError):  # two torn lines may look like one
                _read_words(words[:-1], contents.records, boot)


def _read_words(words: list[str], records: dict[str, Record], boot: str | None) -> None:
    key = words[1]
    record = records.get(key, Record(boot=boot))
    match words:
        case ["spawn", _]:
            pass
        case ["spawn", _, slot]:
            record = record._replace(slot=str(json.loads(slot)))
        case ["start", _, pid, ticks, until, at_us]:
            record = record._replace(
                pid=int(pid), ticks=int(ticks), until=int(until), at_us=int(at_us), boot=boot
            )
        case ["limit", _, mem_bytes, used_bytes]:
            record = record._replace(mem_bytes=int(mem_bytes), over_mem_bytes=int(used_bytes))
        case ["exit", _, *figures] if len(figures) == 4:
            record = record._replace(exit=_ending(figures, record))
        case ["ack", _]:
            records.pop(key, None)
            return
        case _:
            outcome = _read_outcome(words, record)
            if outcome is None:
                return
            record = record._replace(outcome=outcome)
    records[key] = record


def _read_outcome(words: list[str], record: Record) -> Ending | Refusal | Loss | None:
    """Return the outcome that a line tells or completes; None if it tells none."""
    match words:
        case ["end", _, *figures] if len(figures) == 4:
            return _ending(figures, record)
        case ["left" | "peak", _, *details] if isinstance(record.outcome, Ending):
            return _with_details(record.outcome, details)
        case ["refuse", _, number, reason]:
            return Refusal(int(number), str(json.loads(reason)))
        case ["lose", _, reason]:
            return Loss(str(json.loads(reason)))
    return None


def _with_details(ending: Ending, details: list[str]) -> Ending:
    """Add the fields of a `left` or `peak` line to an ending."""
    match details:
        case [names, pids]:
            left = tuple(map(str, json.loads(names)))
            return ending._replace(leftovers=left, stuck=tuple(map(int, json.loads(pids))))
        case [gpu_peak_bytes]:
            return ending._replace(gpu_peak_bytes=int(gpu_peak_bytes))
    return ending


def _ending(figures: list[str], record: Record) -> Ending:
    status, at_us, cpu_us, max_rss_kb = map(int, figures)
    return Ending(status, at_us, cpu_us, max_rss_kb).killed_with(record.over_mem_bytes)
