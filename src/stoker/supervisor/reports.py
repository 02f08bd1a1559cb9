"""Reports of a supervisor to its client: one function for each returns it as JSON.

The client decodes them to the structs of the same names in `stoker.executors.contract` and `.connection`,
which need msgspec. A test compares the names, order and defaults of all fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from stoker.supervisor.journal import Ending


def hello(protocol: int, pid: int, name: str = "", version: str = "") -> str:
    """The supervisor is ready, and uses this version of the protocol. The same in every version."""
    return json.dumps(("hello", protocol, pid, name, version))


def busy() -> str:
    """The supervisor does not stop as ordered, because something runs."""
    return json.dumps(("busy",))


def held(slot: int) -> str:
    """The client holds the GPUs of a slot."""
    return json.dumps(("held", slot))


def unheld(
    slot: int,
    gpu_key: str,
    reason: str | None,
    attempt: str | None = None,
    gathered: Sequence[str] = (),
) -> str:
    """The client cannot hold a slot, because of this GPU; it holds the `gathered` ones."""
    return json.dumps(("unheld", slot, gpu_key, reason, attempt, gathered))


def released(slot: int) -> str:
    """The GPUs of a slot are released."""
    return json.dumps(("released", slot))


def started(key: str, pid: int, at_us: int, at_s: float, taken: str = "") -> str:
    """The attempt runs; `taken` is the text of `taken_by` if it was launched ahead."""
    return f'["started","{key}",{pid},{at_us},{at_s}{taken}]'


def taken_by(slot: int | None, place: str) -> str:
    """Return the last fields of `started`: the slot that took the attempt."""
    return f",{json.dumps(slot)},{json.dumps(place)}"


def placed(key: str, place: str) -> str:
    """A slot took the attempt; it is unknown whether a process was started."""
    return json.dumps(("placed", key, place))


def ended(key: str, ending: Ending) -> str:
    """The attempt has ended."""
    status, at_us, cpu_us, max_rss_kb, *rest = ending
    if any(rest):
        return json.dumps(("ended", key, *ending))
    return f'["ended","{key}",{status},{at_us},{cpu_us},{max_rss_kb}]'


def refused(key: str, errno: int, reason: str) -> str:
    """The attempt could not be started."""
    return json.dumps(("refused", key, errno, reason))


def revoked(key: str) -> str:
    """The attempt was taken back before it started."""
    return json.dumps(("revoked", key))


def lost(key: str, reason: str, cut_off: bool = False) -> str:
    """The attempt is over with an unknown exit status."""
    return json.dumps(("lost", key, reason, cut_off))


def synced(keys: Sequence[str], fresh: bool) -> str:
    """All attempts on record have been reported."""
    return json.dumps(("synced", keys, fresh))


def checkpoints(key: str, is_over: bool) -> str:
    """The attempt has written checkpoints on its node; with `is_over` its end follows."""
    return json.dumps(("checkpoints", key, is_over))


def stayed(key: str, reason: str) -> str:
    """The node keeps the checkpoints of an attempt whose end follows."""
    return json.dumps(("stayed", key, reason))


def finished() -> str:
    """No process of any attempt is left."""
    return json.dumps(("finished",))


def strays(pids: Sequence[int]) -> str:
    """These processes have outlived their attempts."""
    return json.dumps(("strays", pids))


def cold(key: str, reason: str) -> str:
    """The attempt starts as a new process, because no warm worker can fork it."""
    return json.dumps(("cold", key, reason))


def partly_warm(key: str, reason: str) -> str:
    """The attempt is forked from a warm worker that leaves out some of its imports."""
    return json.dumps(("partly_warm", key, reason))


def warmed(pid: int, modules: Sequence[str], left_out: str = "") -> str:
    """A warm worker has imported these modules; `left_out` says why it leaves out others."""
    return json.dumps(("warmed", pid, modules, left_out))


def cooled(pid: int) -> str:
    """A warm worker has ended."""
    return json.dumps(("cooled", pid))
