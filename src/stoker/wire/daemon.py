"""The daemon itself: its status, configuration and web page, its end, and refused requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoker.core.job import MAX_NAME
from stoker.core.lifecycle import State


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that jobs share: its capacity for them, the reserved and the used memory."""

    capacity_bytes: int
    reserved_bytes: int
    used_bytes: int
    foreign_bytes: int
    sm: float
    capped: int = 0  # number of jobs that cannot use more memory than is reserved for them
    kept_for: int | None = None


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, its jobs, and why it can take none."""

    label: str
    jobs: list[int]
    closed: str | None
    held: bool
    drained: str | None = None
    paused: bool = False
    shared: Shared | None = None
    reserved_until: float | None = None  # by the queue's user


class WarmWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that Stoker forks jobs from: its imported modules and its memory.

    `left_out` says which import it leaves out and why.
    """

    pid: int
    modules: list[str]
    mem_bytes: int | None
    left_out: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the daemon and its queue."""

    version: str
    pid: int
    supervisor_pids: list[int]
    home: str
    since: float
    counts: dict[State, int]
    slots: list[SlotInfo]
    cpu_places: int
    notices: list[str]
    queue_paused: str | None = None
    projects_paused: dict[str, str] = {}
    no_project_paused: str | None = (
        None  # why jobs without a project are paused; None: they are not
    )
    eta_s: float | None = None
    warm: list[WarmWorker] = []


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the configuration."""

    name: str
    value: str
    default: str
    meaning: str


class NewSetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new value for an entry of the configuration; None restores the default."""

    name: str
    value: str | None


class WebOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Open, move or close the web page. By default it is at 127.0.0.1 and the user's own port.

    With the host "none" it has no TCP port, only its unix socket.
    """

    action: Literal["open", "close"]
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    new_token: bool = False


class WebPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the web page, TCP and unix socket, and the file with its token."""

    host: str
    port: int
    token_file: str
    socket: str


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop the daemon; with `kill` also the running jobs."""

    kill: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None  # the field of the request that is wrong
