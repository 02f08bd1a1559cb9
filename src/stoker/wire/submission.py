"""Submissions: new jobs with what they have in common."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.job import MAX_NAME, Options
from stoker.wire.values import (
    Bytes,
    Cpus,
    GpuMemory,
    Gpus,
    Name,
    NodeLabels,
    Priority,
    Ram,
    Retries,
    Share,
    Text,
    TimeLimit,
    UnixTime,
)

MAX_JOBS = 100_000


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What makes a job a run of a sweep: its identity, its own folder, its parameters."""

    identity: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]  # hexadecimal
    dir: Bytes
    params: str  # JSON, as in params.json


class NewJob(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    gc=False,
):
    """One job of a submission: a shell line, the words of a command, or a whole script."""

    command: Bytes | list[Bytes]
    script: bool = False
    name: Name | None = None
    log: Bytes | None = None
    run: NewRun | None = None


class Git(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The commit of the working tree, and whether the tree had changes."""

    commit: Annotated[str, msgspec.Meta(max_length=64)]
    dirty: bool


class Submission(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs and what they have in common. Two requests with the same request id are one submission."""

    request_id: Annotated[str, msgspec.Meta(min_length=8, max_length=64)]
    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=MAX_JOBS)]
    cwd: Bytes
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_b64: str | None = None  # NAME=value entries that are not UTF-8, each ending in NUL
    shell: str | None = None
    project: Name | None = None
    name: Name | None = None
    sweep: Name | None = None  # its runs belong to the sweep of this name in the folder cwd
    log: Bytes | None = None
    gpus: Gpus = 1
    share: Share | None = None
    gpu_mem_bytes: GpuMemory | None = None
    cpus: Cpus | None = None
    mem_bytes: Ram | None = None  # RAM; a job that uses more is ended
    nodes: list[Name] = msgspec.field(default_factory=list)  # one of these
    on: Name | None = None  # a part of the GPU model's name, such as a100
    node_labels: NodeLabels = msgspec.field(default_factory=dict)  # all of these
    priority: Priority = 0
    timeout_s: TimeLimit | None = None
    retries: Retries = 0
    linger: bool = False
    hold: bool = False
    after: str | None = None
    after_any: str | None = None
    begin_at: UnixTime | None = None
    git: Git | None = None
    snapshot: Annotated[str, msgspec.Meta(max_length=4096)] | None = None  # ID or ID/sub/folder
    user: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] | None = None
    # The web page has no environment and no folder of its own: the daemon adds its own environment below
    # `env`, and checks that the folder exists.
    by_page: bool = False

    @property
    def options(self) -> Options:
        """The fields that the store keeps as they are."""
        return Options(**{name: getattr(self, name) for name in Options.__struct_fields__})


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the added jobs, first to last. `repeated`: an earlier request has added them."""

    first: int
    last: int
    repeated: bool = False
    notice: str | None = None


class BatchText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several jobs as one text: a command per line, or GPUPeasy's `NAME;;OUTFILE;;COMMAND;;;`.

    The form `auto` recognises GPUPeasy's text by its `;;;`.
    """

    text: Text
    cwd: str
    form: Literal["auto", "lines", "gpupeasy"] = "auto"


class BatchJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a batch text, as `add` takes them, and all errors in the text."""

    jobs: list[NewJob]
    errors: list[str]
