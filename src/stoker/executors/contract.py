"""Contract of all executors: the calls of the engine and the reports that answer them.

The key of an attempt is `job.attempt`. At most one process is ever started under one key. Each launch ends
in exactly one of Ended, Refused, Revoked or Lost. Reports of one attempt come in order; reports of different
attempts need not.

An attempt is over, and Ended or Lost is reported, when the last of its processes is gone. Until then nothing
starts on its slots. If its first process ends by itself, the processes that it leaves are asked to end
after a second, and are killed after five. The executor does not wait for a process that may linger.

An executor that dies with its client raises ExecutorLostError when it is lost. An executor that outlives its
client first reports all it knows: Started for running attempts, Placed for attempts that may run, the ends
that were not acknowledged, and then Synced. Attempts that it does not know by then never started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.node_reports import NodeReport
from stoker.warm.messages import ForkRequest


class ExecutorLostError(StokerError):
    """The executor died; the state of its attempts is unknown until recovery."""


class AttemptTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of files that goes with an attempt to another machine, and the results that come back.

    The command `argv` runs in a copy of the tree `snapshot`, in its folder `inside`. `run` is the path of a
    run's folder in the tree and its folder on the head. The content of `results`, a path in the tree, comes
    back to the folder `target`.
    """

    argv: list[str]
    snapshot: str
    inside: str = ""
    run: tuple[str, str] | None = None
    results: str | None = None
    target: str = ""
    limit_bytes: int = 0


class Launch(msgspec.Struct, frozen=True):
    """An order to start an attempt as soon as the attempts ordered before it on its slot have ended.

    Only a launch on one slot may be ordered while an attempt runs there. A launch on several slots gets the
    GPUs of all of them. `env` extends and overrides the environment for this attempt alone; executors that
    outlive their client accept it only with `warm`. With `warm` the attempt may be forked from a warm worker;
    if that is impossible, it is started from `argv`.

    With `ahead` it has no slot yet. All such launches wait in one line, in the order given. The first of the
    offered slots that becomes vacant takes the first of them. `Started` reports the slot.
    """

    key: str
    slots: tuple[int, ...]
    argv: list[str]
    log: str | None = None
    context: int = 0
    env: Mapping[str, str] | None = None
    warm: ForkRequest | None = None
    node: str = ""  # where a launch without slots runs
    transfer: AttemptTransfer | None = None  # of an attempt on another machine
    ahead: bool = False
    checkpoints: str | None = None  # the folder of this machine to send along to another one
    program: str | None = (
        None  # the name of the program, which another machine looks up in its own PATH
    )
    mem_bytes: int = 0  # RAM of all its processes: with more it is killed; 0 is no limit
    cpus: int = 0  # what all its processes get at most, where that can be limited; 0 is no limit


class Restore(msgspec.Struct, frozen=True):
    """A suspended attempt that goes on instead of a launch. Its engine resumes it, not the executor."""

    key: str


class Held(msgspec.Struct, frozen=True, array_like=True, tag="held"):
    """The client holds the GPUs of a slot until it releases them."""

    slot: int


class Unheld(msgspec.Struct, frozen=True, array_like=True, tag="unheld"):
    """A GPU of the slot is in use by another process, or (with a reason) its lease cannot be taken.

    With `attempt`, an attempt that the client disowned still runs on it. `gathered` are the keys of the slot
    that the client holds nevertheless.
    """

    slot: int
    gpu_key: str
    reason: str | None
    attempt: str | None = None
    gathered: tuple[str, ...] = ()


class Released(msgspec.Struct, frozen=True, array_like=True, tag="released"):
    """The GPUs of a slot are free for others."""

    slot: int


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The attempt is a process since `at_s` of the boot clock, which includes suspended time.

    For an attempt that was launched ahead, `slot` is the number of the slot that took it, and `place` its
    label. A later client gets the label alone, because slots may have other numbers by then.
    """

    key: str
    pid: int
    at_us: int
    at_s: float
    slot: int | None = None
    place: str | None = None


class Placed(msgspec.Struct, frozen=True, array_like=True, tag="placed"):
    """A slot took an attempt that was launched ahead; whether it became a process is not known yet.

    `place` is the slot's label. A later client gets this report for attempts whose supervisor was killed
    before it recorded their processes.
    """

    key: str
    place: str


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The attempt is over: none of its processes runs. Its first process ended with this wait status.

    `leftovers` are the names of processes that still ran after the first process had ended by itself, and
    that the supervisor ended. `stuck` are the pids of processes that could not be killed. `gpu_peak_bytes` is
    the most GPU memory that the attempt used, by its own report: it may be wrong. 0 if it has made none.
    `over_mem_bytes` is the RAM that it used when it was killed because that was above its limit; else 0.
    """

    key: str
    status: int
    at_us: int
    cpu_us: int
    max_rss_kb: int
    leftovers: tuple[str, ...] = ()
    stuck: tuple[int, ...] = ()
    gpu_peak_bytes: int = 0
    over_mem_bytes: int = 0


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The attempt could not start."""

    key: str
    errno: int
    reason: str


class Revoked(msgspec.Struct, frozen=True, array_like=True, tag="revoked"):
    """The attempt was taken back before it started."""

    key: str


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """The attempt is over with an unknown status; `cut_off`: it was ended because of its machine."""

    key: str
    reason: str
    cut_off: bool = False


class Checkpoints(msgspec.Struct, frozen=True, array_like=True, tag="checkpoints"):
    """The attempt has written checkpoints on its node; with `is_over` its end follows."""

    key: str
    is_over: bool


class Stayed(msgspec.Struct, frozen=True, array_like=True, tag="stayed"):
    """The node keeps the checkpoints of an attempt whose end follows: they do not travel."""

    key: str
    reason: str


class Synced(msgspec.Struct, frozen=True, array_like=True, tag="synced"):
    """All earlier attempts have been reported: `keys` are those that run or have ended.

    With `fresh` the executor has started again and holds no slot. An executor of several nodes reports this
    for each node.
    """

    keys: frozenset[str]
    fresh: bool
    node: str = ""


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """All launched attempts are over."""


class Strays(msgspec.Struct, frozen=True, array_like=True, tag="strays"):
    """These processes outlive their attempts; they have a few seconds before they are killed."""

    pids: list[int]


class Cold(msgspec.Struct, frozen=True, array_like=True, tag="cold"):
    """The attempt starts cold, because it cannot be forked from a warm worker."""

    key: str
    reason: str


class PartlyWarm(msgspec.Struct, frozen=True, array_like=True, tag="partly_warm"):
    """The attempt is forked from a warm worker that leaves out some of its imports, for this reason."""

    key: str
    reason: str


class Warmed(msgspec.Struct, frozen=True, array_like=True, tag="warmed"):
    """A warm worker has imported these modules and is ready to fork attempts.

    `left_out` says which import it leaves out and why; it is empty if there is none.
    """

    pid: int
    modules: list[str]
    left_out: str = ""


class Cooled(msgspec.Struct, frozen=True, array_like=True, tag="cooled"):
    """A warm worker has ended."""

    pid: int


SupervisorReport = (
    Checkpoints
    | Cold
    | Cooled
    | Finished
    | Held
    | Unheld
    | Released
    | Placed
    | Started
    | Ended
    | Refused
    | Revoked
    | Lost
    | PartlyWarm
    | Stayed
    | Strays
    | Synced
    | Warmed
)
Report = SupervisorReport | NodeReport


class Executor(Protocol):
    """Runs attempts as processes, on slots that it holds."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `observe` has reports."""

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Define the slots that later calls name by number."""

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Define the environment, folder and shell that later launches name by number."""

    def hold(self, slot: int, *, gather: bool = False) -> None:
        """Ask for a slot's GPUs; answered by Held or Unheld.

        If some of them are in use, the client gets the others with `gather`, and none of them without.
        """

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give GPUs of a slot back; answered by Released."""

    def reserve(self, leases: Mapping[str, float]) -> None:
        """Keep these leases until their times of the boot clock when the client is gone.

        Replaces the leases of the call before. Only an executor that outlives its client can do it.
        """

    def offer(self, slots: Sequence[Slot]) -> None:
        """Let these slots, and no others, take attempts launched ahead when they become vacant."""

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts whose start is already recorded."""

    def observe(self) -> list[Report]:
        """Return the reports since the last call, without waiting."""

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Confirm that the ends of these attempts are recorded and need not be reported again."""

    def revoke(self, key: str) -> None:
        """Take back an attempt that waits for its slot; answered by Revoked if in time.

        Other attempts that were launched ahead may be revoked with it.
        """

    def move(self, key: str, slots: tuple[int, ...] | None) -> None:
        """Let a running attempt leave its slots (None), or occupy these. Its process is not touched."""

    def limit(self, key: str, mem_bytes: int) -> None:
        """Change the RAM limit of a running attempt that was launched with one; 0 is no limit."""

    def signal(
        self, key: str, signum: int, grace_s: float | None = None, *, main_only: bool = False
    ) -> None:
        """Signal the attempt's whole process tree once; with `main_only`, its main process alone.

        The main process is the first one; if that is a shell, the shell and the programs that it runs.
        With a grace, processes of the attempt that still run when the grace is over are killed, whether
        or not its first process has ended.
        """

    def kill(self, key: str) -> None:
        """Kill the attempt's whole process tree until nothing of it is left."""

    def finish(self) -> None:
        """Announce that no launch follows; answered by Finished, after the grace of leftovers."""

    def close(self) -> None:
        """Close. Running attempts are ended, unless the executor outlives its client."""
