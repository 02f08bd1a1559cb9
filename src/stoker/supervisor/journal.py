"""The supervisor's journal: what was started and how it ended.

    boot   BOOT_ID NAME .                      a supervisor began, under this name in cookies
    spawn  KEY [PLACE] .                       from here on the attempt may have run
    start  KEY PID TICKS UNTIL AT_US .         it runs since a moment between these ticks since boot
    exit   KEY STATUS AT_US CPU_US RSS_KB .    its first process has ended so, others of its processes run
    end    KEY STATUS AT_US CPU_US RSS_KB .    its wait status, when it was over, and what it used
    left   KEY NAMES PIDS .                    processes that it left and were killed, or could not be
    refuse KEY ERRNO REASON .                  it could not be started
    lose   KEY REASON .                        it is over, and nobody knows how it ended
    ack    KEY .                               the client has its end on record

A KEY is `job.attempt`, a REASON is JSON without blanks. So is PLACE, the label of the slot that took an
attempt from the common line: the client does not know it before. The closing dot tells a whole line from a
torn one. No `spawn` line means never started; a `spawn` without an end means that the outcome is not
known.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import json
import os
from collections.abc import Container, Sequence
from typing import IO, NamedTuple

from stoker import failpoints


class Ending(NamedTuple):
    """How an attempt ended, as the supervisor saw it.

    `leftovers` are the names of processes that it left when it ended by itself and that were ended for
    it. `stuck` are the pids of processes that could not be killed.
    """

    status: int
    at_us: int
    cpu_us: int
    max_rss_kb: int
    leftovers: tuple[str, ...] = ()
    stuck: tuple[int, ...] = ()


class Start(NamedTuple):
    """A process, and when it was started: between these ticks since boot, and by the calendar."""

    pid: int
    ticks: int
    until: int
    at_us: int


class Refusal(NamedTuple):
    """Why an attempt could not be started."""

    errno: int
    reason: str


class Record(NamedTuple):
    """All that one attempt's lines say; `boot` is the id of the boot it was started in."""

    pid: int | None = None
    ticks: int | None = None
    ending: Ending | None = None
    until: int | None = None
    at_us: int | None = None
    refusal: Refusal | None = None
    loss: str | None = None
    boot: str | None = None
    exit: Ending | None = None  # of its first process, while others of its processes run
    place: str | None = None

    @property
    def last_known(self) -> Ending | None:
        """How it ended; if nobody saw its last process go, how its first process did."""
        return self.ending or self.exit

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be heard of it."""
        return not (self.ending is None and self.refusal is None and self.loss is None)

    def lines(self, key: str) -> str:
        """Tell all of it again."""
        told = spawn_line(key, self.place)
        if self.pid is not None:
            told += f"start {key} {self.pid} {self.ticks} {self.until} {self.at_us} .\n"
        if self.exit is not None and self.ending is None:
            told += exit_line(key, self.exit)
        if self.ending is not None:
            told += end_line(key, self.ending)
        if self.refusal is not None:
            told += refuse_line(key, self.refusal)
        if self.loss is not None:
            told += lose_line(key, self.loss)
        return told


def spawn_line(key: str, place: str | None) -> str:
    """What the journal says before an attempt is started."""
    return f"spawn {key} .\n" if place is None else f"spawn {key} {_word(place)} .\n"


def end_line(key: str, ending: Ending) -> str:
    """What the journal says of an end."""
    status, at_us, cpu_us, max_rss_kb, leftovers, stuck = ending
    line = f"end {key} {status} {at_us} {cpu_us} {max_rss_kb} .\n"
    if leftovers or stuck:
        return f"{line}left {key} {_word(leftovers)} {_word(stuck)} .\n"
    return line


def exit_line(key: str, ending: Ending) -> str:
    """What the journal says of the end of an attempt's first process while others of its processes run."""
    status, at_us, cpu_us, max_rss_kb, *_rest = ending
    return f"exit {key} {status} {at_us} {cpu_us} {max_rss_kb} .\n"


def refuse_line(key: str, refusal: Refusal) -> str:
    """What the journal says of a start that failed."""
    return f"refuse {key} {refusal.errno} {_word(refusal.reason)} .\n"


def lose_line(key: str, reason: str) -> str:
    """What the journal says of an end without a witness."""
    return f"lose {key} {_word(reason)} .\n"


def _word(value: str | Sequence[object]) -> str:
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


class Journal:
    """Appends whole lines; what has not been written yet, or was refused by a full disk, is kept."""

    def __init__(self) -> None:
        self.size = 0
        self._path = ""
        self._fd = -1
        self._kept = b""
        self._notes: list[str] = []
        self.note = self._notes.append
        """Keep a line about what has happened for the next `intend` or `flush`."""

    def open(self, path: str) -> None:
        """Append to a file, and lock it: who wants its last word waits until this process is gone."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._begin(path)

    def claim(self, path: str) -> JournalStory:
        """Append to a file that nobody else has locked, and tell what is in it; else BlockingIOError."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise
            if _is_at(fd, path):
                break
            os.close(fd)  # it was compacted between open and lock
        self._fd = fd
        self._begin(path)
        story = JournalStory({}, set())
        with io.FileIO(fd, closefd=False) as raw, io.BufferedReader(raw) as file:
            _read_lines(file, story, None)
        return story

    def _begin(self, path: str) -> None:
        self._path = path
        self.size = os.fstat(self._fd).st_size
        self._kept = b"\n" if self.size else b""  # the last line may be torn

    @property
    def is_written(self) -> bool:
        """Whether everything is in the file."""
        return not self._kept and not self._notes

    def intend(self, lines: str) -> None:
        """Append lines before the deed they announce; raises OSError, and then nothing is announced."""
        self._gather()
        told = len(self._kept)
        data = self._kept + lines.encode("ascii")
        written = self._append(data)
        if written == len(data):
            self._kept = b""
            return
        # What was torn gets a line of its own, so that it cannot be read as something else.
        self._kept = data[written:told] if written < told else b"~\n"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        """Write what is kept, as far as the disk takes it."""
        self._gather()
        if self._kept:
            self._kept = self._kept[self._append(self._kept) :]

    def rewrite(self, lines: str) -> None:
        """Let a new file with these lines take the old one's place, and its lock; OSError if it cannot."""
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
    """Where one of several supervisors writes: the first to `base` itself."""
    return f"{base}.{number}" if number else base


class JournalStory(NamedTuple):
    """What journals tell: about attempts, and the names of the supervisors that wrote them."""

    records: dict[str, Record]
    names: set[str]


def read_journals(base: str, keys: Container[str] | None = None) -> JournalStory:
    """What the journals of all supervisors tell about some attempts (or all), once those are gone."""
    story = JournalStory({}, set())
    paths = map(journal_path, itertools.repeat(base), itertools.count())
    for path in itertools.takewhile(os.path.exists, paths):
        _read(path, story, keys)
    return story


def read_journal(path: str) -> dict[str, Record]:
    """Everything one journal tells; a missing file tells nothing."""
    story = JournalStory({}, set())
    _read(path, story, None)
    return story.records


def _read(path: str, story: JournalStory, keys: Container[str] | None) -> None:
    is_read = False
    while not is_read:
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                is_read = _is_at(file.fileno(), path)
                if is_read:
                    _read_lines(file, story, keys)
        except FileNotFoundError:
            return


def _is_at(fd: int, path: str) -> bool:
    here = os.fstat(fd)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _read_lines(file: IO[bytes], story: JournalStory, keys: Container[str] | None) -> None:
    boot: str | None = None
    for raw in file:
        words = raw.decode("ascii", "replace").split()
        if len(words) == 4 and words[0] == "boot" and words[3] == ".":
            boot = words[1]
            story.names.add(words[2])
        elif len(words) > 2 and words[-1] == "." and (keys is None or words[1] in keys):
            with contextlib.suppress(ValueError):  # two torn lines may have grown together
                _read_words(words[:-1], story.records, boot)


def _read_words(words: list[str], records: dict[str, Record], boot: str | None) -> None:
    key = words[1]
    record = records.get(key, Record(boot=boot))
    match words:
        case ["spawn", _]:
            pass
        case ["spawn", _, place]:
            record = record._replace(place=str(json.loads(place)))
        case ["start", _, pid, ticks, until, at_us]:
            record = record._replace(
                pid=int(pid), ticks=int(ticks), until=int(until), at_us=int(at_us), boot=boot
            )
        case ["exit", _, *figures] if len(figures) == 4:
            record = record._replace(exit=_ending(figures))
        case ["end", _, *figures] if len(figures) == 4:
            record = record._replace(ending=_ending(figures))
        case ["left", _, names, pids] if record.ending is not None:
            left = tuple(map(str, json.loads(names)))
            stuck = tuple(map(int, json.loads(pids)))
            record = record._replace(ending=record.ending._replace(leftovers=left, stuck=stuck))
        case ["refuse", _, number, reason]:
            record = record._replace(refusal=Refusal(int(number), str(json.loads(reason))))
        case ["lose", _, reason]:
            record = record._replace(loss=str(json.loads(reason)))
        case ["ack", _]:
            records.pop(key, None)
            return
        case _:
            return
    records[key] = record


def _ending(figures: list[str]) -> Ending:
    status, at_us, cpu_us, max_rss_kb = map(int, figures)
    return Ending(status, at_us, cpu_us, max_rss_kb)
