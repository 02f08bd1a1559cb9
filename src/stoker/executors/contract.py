"""What every executor promises the engine, and the words they exchange.

An attempt's key is `job.attempt`; under one key at most one process is ever started. A launch that
was asked for ends in exactly one of Ended, Refused, Revoked or Lost. Reports of one attempt come in
order; reports of different attempts need not.

An attempt is over, and Ended or Lost is told, when the last of its processes is gone; until then nothing
starts on its slots. If its first process ends by itself, the processes that it leaves are asked to end
after a second, and are killed after five. A process that may linger is not waited for.

An executor that dies with its client tells that it is lost by raising ExecutorLostError. One that
outlives its client tells first of all what it knows: Started for what runs, Placed for what may run, the
ends that were not acknowledged, and then Synced. Attempts that it does not know by then never started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.executors.node_reports import News
from stoker.warm.messages import ForkRequest


class ExecutorLostError(StokerError):
    """The executor died; what it ran is unknown until recovered."""


class Launch(msgspec.Struct, frozen=True):
    """An order to start an attempt as soon as those ordered before it on its slot have ended.

    Only a launch on one slot may be ordered while something runs there. A launch on several slots
    sees the GPUs of all of them. `env` is more of an environment, for this attempt alone and over all
    else; of executors that outlive their client, only with `warm`: then it may be forked from a process
    with its imports done, or if it cannot be, is started from `argv` as any other.

    With `ahead` it has no slot yet. All such launches wait in one line, in the order given, and the first
    of the offered slots that becomes vacant takes the first of them. `Started` tells which slot that was.
    """

    key: str
    slots: tuple[int, ...]
    argv: list[str]
    log: str | None = None
    context: int = 0
    env: Mapping[str, str] | None = None
    warm: ForkRequest | None = None
    node: str = ""  # where one without slots is to run
    transfer: AttemptTransfer | None = None  # what goes along to another machine
    ahead: bool = False


class Held(msgspec.Struct, frozen=True, array_like=True, tag="held"):
    """The GPUs of a slot are ours until released."""

    slot: int


class Unheld(msgspec.Struct, frozen=True, array_like=True, tag="unheld"):
    """A GPU of the slot is somebody else's, or (with a reason) no lease can be kept.

    With `attempt`, an attempt that the client disowned still runs on it.
    """

    slot: int
    gpu_key: str
    reason: str | None
    attempt: str | None = None


class Released(msgspec.Struct, frozen=True, array_like=True, tag="released"):
    """The GPUs of a slot are free for others."""

    slot: int


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The attempt is a process; `at_s` is when by the boot clock, to which sleep counts too.

    An attempt that was launched ahead also tells which slot took it: `slot` is its number, and `place` its
    label. A client that comes later hears the label alone, because slots may have other numbers by then.
    """

    key: str
    pid: int
    at_us: int
    at_s: float
    slot: int | None = None
    place: str | None = None


class Placed(msgspec.Struct, frozen=True, array_like=True, tag="placed"):
    """A slot took the attempt, which was launched ahead; whether it became a process is not known yet.

    `place` is the slot's label. A client that comes later hears this of attempts whose supervisor was killed
    before it could record their processes.
    """

    key: str
    place: str


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The attempt is over: nothing of it runs. Its first process ended with this wait status.

    `leftovers` are the names of processes that were still running after the first process had ended by
    itself, and were ended for it. `stuck` are the pids of processes that could not be killed.
    """

    key: str
    status: int
    at_us: int
    cpu_us: int
    max_rss_kb: int
    leftovers: tuple[str, ...] = ()
    stuck: tuple[int, ...] = ()


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The attempt could not start; nothing of it ran."""

    key: str
    errno: int
    reason: str


class Revoked(msgspec.Struct, frozen=True, array_like=True, tag="revoked"):
    """The attempt was taken back before it started."""

    key: str


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """The attempt is over, and nobody knows how it ended; `cut_off` is whether for its machine's sake."""

    key: str
    reason: str
    cut_off: bool = False


class Synced(msgspec.Struct, frozen=True, array_like=True, tag="synced"):
    """All that was known from before has been told: `keys` are the attempts that run or have ended.

    With `fresh` the executor has begun anew and holds no slot. It tells of one node alone, if it has
    several.
    """

    keys: frozenset[str]
    fresh: bool
    node: str = ""


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="finished"):
    """Nothing that was launched is left."""


class Strays(msgspec.Struct, frozen=True, array_like=True, tag="strays"):
    """These processes outlive their attempts; they have a few seconds before they are killed."""

    pids: list[int]


class Cold(msgspec.Struct, frozen=True, array_like=True, tag="cold"):
    """The attempt was to be forked from a warm worker, and is started anew because it cannot be."""

    key: str
    reason: str


class Warmed(msgspec.Struct, frozen=True, array_like=True, tag="warmed"):
    """A warm worker has imported these modules, and attempts are forked from it from now on."""

    pid: int
    modules: list[str]


class Cooled(msgspec.Struct, frozen=True, array_like=True, tag="cooled"):
    """A warm worker is gone."""

    pid: int


Heard = (
    Cold
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
    | Strays
    | Synced
    | Warmed
)
"""What supervisors tell; whoever has several machines hears of those too."""
Report = Heard | News


class Executor(Protocol):
    """Makes processes of attempts, on slots it holds."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `observe` has something to tell."""

    def define_slots(self, slots: Sequence[Slot]) -> None:
        """Make known the slots that later calls number."""

    def define_context(self, number: int, env: Mapping[str, str], cwd: str, shell: str) -> None:
        """Make known the environment, folder and shell that later launches number."""

    def hold(self, slot: int) -> None:
        """Ask for a slot's GPUs; answered by Held or Unheld."""

    def release(self, slot: int, gpu_keys: Sequence[str]) -> None:
        """Give GPUs of a slot back; answered by Released."""

    def offer(self, slots: Sequence[Slot]) -> None:
        """Let these slots, and no others, take what is launched ahead when they become vacant."""

    def launch(self, launches: Sequence[Launch]) -> None:
        """Start attempts whose intent is on record."""

    def observe(self) -> list[Report]:
        """Return what has happened since the last call, without waiting."""

    def acknowledge(self, keys: Sequence[str]) -> None:
        """Say that the ends of these attempts are on record and need not be told again."""

    def revoke(self, key: str) -> None:
        """Take back an attempt that waits for its slot; answered by Revoked if in time.

        Others that were launched ahead may be taken back with it.
        """

    def signal(self, key: str, signum: int, grace_s: float | None = None) -> None:
        """Signal the attempt's whole process tree once.

        With a grace the signal is to end the attempt: whatever of it runs when the grace is over is
        killed, whether or not its first process has ended.
        """

    def kill(self, key: str) -> None:
        """Kill the attempt's whole process tree until nothing of it is left."""

    def finish(self) -> None:
        """Say that no more launches will come; answered by Finished, leftovers' grace included."""

    def close(self) -> None:
        """Let go; what still runs is ended, unless the executor outlives its client."""
