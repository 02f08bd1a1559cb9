"""The words between a process and its private engine: msgpack, each message after its length.

Paths, commands and variables are bytes, for they need not be text.
"""

from __future__ import annotations

import msgspec

_LENGTH = 4


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """What kind of engine is wanted; the first message, answered by Ready or Failed.

    `gpus` is as for `stoker run --gpus`, `""` for none at all; `cpu_places` is how many jobs that need
    no GPU may run at once. With `record`, what has been done is kept under that key; with `resume`
    it is gone on with, if there is any. `gpu_mem` is how many bytes of its GPU each job needs.
    """

    env: dict[bytes, bytes]
    cwd: bytes
    gpus: str | None = None
    jobs_per_gpu: int = 1
    cpu_places: int = 0
    shell: str | None = None
    record: dict[str, bytes] | None = None
    resume: bool = False
    max_failures: int | None = None
    in_advance: bool = True
    last_freed_first: bool = False
    gpu_mem: int | None = None


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit", omit_defaults=True):
    """A job. Its command is a shell line, unless `argv` says what to execute.

    `env` is added to the session's environment. With `ask`, the client is asked for more of it once
    the job has its slots. A job with a `folder` has it made when it starts, with `params` inside, and
    its output goes there. With `warm` a python command finds imported what the first job of that name
    has imported. How it shares its GPU is said in `share`; None if it does not. What it raised can be
    read in `trace`, where that is not in a log.
    """

    number: int
    command: bytes
    argv: list[bytes] | None = None
    env: dict[bytes, bytes] = {}
    cwd: bytes | None = None
    log: bytes | None = None
    folder: bytes | None = None
    params: str | None = None
    slots: int = 1
    priority: int = 0
    timeout_s: float | None = None
    retries: int = 0
    ask: bool = False
    warm: str | None = None
    share: str | None = None
    trace: bytes | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What the client says to Asked: more environment, or why the job cannot start."""

    number: int
    env: dict[bytes, bytes] = {}
    error: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """End a job: one that waits at once, and one that runs with its whole tree if `running` says so."""

    number: int
    running: bool = False
    reason: str = "cancelled"


class Close(msgspec.Struct, frozen=True, tag="close"):
    """No more jobs will come; with `kill` what runs is killed, and what waits is not begun."""

    kill: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine runs; `folder` is its own, and gone after it unless there is a record."""

    folder: bytes
    slots: list[str]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot go on; a fault of usage if `usage`."""

    message: str
    usage: bool = False


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """A job has its slots (their numbers and GPUs) and wants its environment: an Answer is due."""

    number: int
    slots: list[int]
    gpus: list[str]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A job is a process."""

    number: int
    id: int
    attempt: int
    slots: list[int]
    gpus: list[str]
    pid: int
    at: float
    log: bytes | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A job has come to its end, or (`retried`) gets another attempt.

    `state` is a final one of the lifecycle. What never was a process has no exit code and no times.
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


class Passed(msgspec.Struct, frozen=True, tag="passed"):
    """A job is passed over: the record says that it has succeeded before."""

    number: int


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """Something a person should know."""

    text: str


class Over(msgspec.Struct, frozen=True, tag="over"):
    """All jobs have ended, and nothing of them is left; the last message."""


Order = Open | Submit | Answer | Cancel | Close
Event = Ready | Failed | Asked | Started | Ended | Passed | Notice | Over

_encoder = msgspec.msgpack.Encoder()


def pack(message: Order | Event) -> bytes:
    """A message as it goes over the wire."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH, "little") + body


class Unpacker:
    """Cuts a stream of bytes into messages; keeps what is not whole yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take more of the stream; the bodies of the messages that are whole now."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        at = 0
        while len(buffer) >= at + _LENGTH:
            end = at + _LENGTH + int.from_bytes(buffer[at : at + _LENGTH], "little")
            if len(buffer) < end:
                break
            bodies.append(bytes(buffer[at + _LENGTH : end]))
            at = end
        del buffer[:at]
        return bodies
