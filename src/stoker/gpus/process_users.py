"""User and command of a pid that the driver reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker.accounts import name_of, printable

if TYPE_CHECKING:
    from stoker.gpus.driver import GpuProcess

_DEAD = {"Z", "X"}
_COMMAND_CHARACTERS = 1000


class GpuUser(msgspec.Struct, frozen=True):
    """A process that uses a GPU. User and command are None if our /proc does not show the pid."""

    pid: int
    user: str | None
    command: str | None
    mem_bytes: int | None

    @property
    def is_visible(self) -> bool:
        """Whether the pid is in our pid namespace."""
        return self.user is not None


def is_dead(pid: int) -> bool:
    """Whether a process that was seen before is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return True
    return text[text.rindex(b")") + 2 :][:1].decode() in _DEAD


def look_up(process: GpuProcess) -> GpuUser | None:
    """Return the user of a GPU process; None if the process is a zombie."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="utf-8", errors="replace") as file:
            status = dict(line.rstrip("\n").split(":", 1) for line in file if ":" in line)
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return GpuUser(process.pid, None, None, process.mem_bytes)
    if status["State"].split()[0] in _DEAD:
        return None
    # A process may have erased its command line; the kernel still has a short name.
    text = b" ".join(words).decode(errors="replace") or status["Name"].strip()
    user, command = name_of(int(status["Uid"].split()[0])), printable(text, _COMMAND_CHARACTERS)
    return GpuUser(process.pid, user, command, process.mem_bytes)
