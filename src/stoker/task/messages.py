"""Messages between a process and its private engine: msgpack, each after its length.

Paths, commands and variables are bytes, because they need not be valid text.
"""

from __future__ import annotations

import msgspec

from stoker.core.job import Request

_LENGTH_BYTES = 4


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """The engine's options; the first message. The answer is Ready or Failed.

    `gpus` is as for `stoker run --gpus`, `""` for none. `cpu_places` jobs that need no GPU may run at
    once. `record` is the key under which successes are kept; `resume` skips what has succeeded there.
    `gpu_mem` is the memory in bytes that each job needs on its GPU.
    """

    env: dict[bytes, bytes]
    cwd: bytes
    gpus: str | None = None
    jobs_per_gpu: int = 1
    cpu_places: int = 0
    shell: str | None = None
    record: dict[bytes, bytes] | None = None
    resume: bool = False
    max_failures: int | None = None
    in_advance: bool = True
    gpu_mem: int | None = None


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit", omit_defaults=True):
    """A job. Its command is a shell line; with `argv`, only the job's name.

    `env` is added to the session's environment. `log` is the file of the first attempt's output; a
    retry has its own (`start_log`). With `ask`, the engine sends Asked when the job has
    its slots, and starts it after the Answer. The engine creates `folder` when the job starts, with `params`
    in params.json, the output in log.txt and the path in STOKER_RUN_DIR. With `warm`, a Python command
    starts with the modules that the first job of that name imported. An exception that is in no log is
    read from `trace`.
    """

    number: int
    command: bytes
    request: Request
    argv: list[bytes] | None = None
    env: dict[bytes, bytes] = {}
    log: bytes | None = None
    folder: bytes | None = None
    params: str | None = None
    ask: bool = False
    warm: str | None = None
    trace: bytes | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to Asked: more environment variables, or why the job cannot start."""

    number: int
    env: dict[bytes, bytes] = {}
    error: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a job that waits; with `running` also one that runs, with its whole process tree."""

    number: int
    running: bool = False
    reason: str = "cancelled"


class Close(msgspec.Struct, frozen=True, tag="close"):
    """No more jobs will come; `kill` ends those that run or wait."""

    kill: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine runs. Its `folder` is removed at its end, unless there is a record."""

    folder: bytes
    slots: list[str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot go on; `usage` if an option is wrong."""

    message: str
    usage: bool = False


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """A job has its slots (numbers and GPUs) and waits for an Answer."""

    number: int
    slots: list[int]
    gpus: list[str]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The process of a job has started."""

    number: int
    id: int
    attempt: int
    slots: list[int]
    gpus: list[str]
    pid: int
    at: float
    log: bytes | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A job has ended, or (`retried`) waits for its next attempt.

    `state` is a final state of the lifecycle. A job without a process has no exit code and no times.
    """

    number: int
    state: str
    retried: bool = False
    reason: str | None = None
    exit_code: int | None = None
    attempt: int = 0
    at: float | None = None
    cpu_s: float | None = None
    max_rss_kb: int | None = None


class Skipped(msgspec.Struct, frozen=True, tag="skipped"):
    """A job is skipped: it has succeeded before, according to the record."""

    number: int


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A text for the user."""

    text: str


class Over(msgspec.Struct, frozen=True, tag="over"):
    """All jobs have ended and left no process; the last message."""


Order = Open | Submit | Answer | Cancel | Close
Event = Ready | Failed | Asked | Started | Ended | Skipped | Notice | Over

_encoder = msgspec.msgpack.Encoder()


def pack(message: Order | Event) -> bytes:
    """Return a message with its length in front."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class Unpacker:
    """Cuts a stream of bytes into messages; keeps an incomplete one for later."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies of the messages that these bytes complete."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        at = 0
        while len(buffer) >= at + _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little")
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[at + _LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
        return bodies
