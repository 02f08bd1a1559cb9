"""Identity of a home, which distinguishes the home from its copies.

The identity is a name. The files of the supervisor and the environments of jobs contain it. The database
records it with the machine and the folder (device and inode) of the home. A home that is found in another
folder is a copy and gets a new identity: the supervisor, jobs and leases belong to the original. A renamed
home is still the same folder and keeps its identity.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import NamedTuple

from stoker.core.job import Outcome
from stoker.core.lifecycle import Event, State
from stoker.engine.context import QueueContext
from stoker.errors import StokerError
from stoker.store.database import Database
from stoker.store.named_values import NamedValues
from stoker.supervisor.process_tree import boot_id

_IDENTITY, _MACHINE, _FOLDER = "identity", "machine", "folder"


class Folder(NamedTuple):
    """Location of a home. Device numbers are valid for one boot of the machine."""

    device: int
    inode: int
    boot: str
    path: str

    @classmethod
    def of(cls, home: str) -> Folder:
        """Read the location of a home."""
        found = os.stat(home)
        return cls(found.st_dev, found.st_ino, boot_id(), os.path.realpath(home))

    @classmethod
    def from_text(cls, text: str) -> Folder:
        """Parse the text that `to_text` returns."""
        device, inode, boot, path = text.split(" ", 3)
        return cls(int(device), int(inode), boot, path)

    def to_text(self) -> str:
        """The text for the database."""
        return f"{self.device} {self.inode} {self.boot} {self.path}"

    def is_same(self, other: Folder) -> bool:
        """Whether both are one folder; a restart of the machine can change device numbers."""
        return self.inode == other.inode and (
            self.device == other.device or self.boot != other.boot
        )


class Identity(NamedTuple):
    """The name of a home; for a new copy also the name and path of the original."""

    name: str
    original: str | None = None
    original_path: str = ""


def identify(database: Database, home: str) -> Identity:
    """Read or make the identity of a home; `settle_copy` records the new name of a copy."""
    records = NamedValues(database)
    recorded, folder = records.get(_IDENTITY), records.get(_FOLDER)
    here = Folder.of(home)
    if recorded is None:
        identity = Identity(_new_name())
        _record(database, identity.name, here, machine=_machine_id())
        return identity
    if records.get(_MACHINE) != _machine_id():
        raise StokerError(
            f"{database.path} belongs to another machine: name a folder of this one in STOKER_HOME"
        )
    name = recorded.decode("ascii")
    known = here if folder is None else Folder.from_text(os.fsdecode(folder))
    if not known.is_same(here):
        return Identity(_new_name(), name, known.path)
    if folder is None or known != here:
        _record(database, name, here)
    return Identity(name)


def settle_copy(context: QueueContext, identity: Identity) -> None:
    """Make a copied home independent of its original.

    Live attempts belong to the original: the copy records them as lost. So do reservations: the copy
    forgets them. Waiting jobs could run in both homes: the copy's queue is paused until a user resumes it.
    """
    if identity.original is None:
        return
    live = context.jobs.live_facts()
    reason = f"this home is a copy of {identity.original_path}, where the attempt belongs"
    pending = sum(
        context.jobs.count(state) for state in (State.WAITING, State.BLOCKED, State.DELAYED)
    )
    context.reservations.end(*context.reservations.all)
    with context.database.transaction(durable=True):
        for facts in live:
            context.jobs.end(facts.id, Outcome(event=Event.LOSE, reason=reason))
        for facts in live:
            context.engine.queue.on_over(facts.id)
        if pending and context.admission.queue_paused is None:
            context.admission.pause_queue(f"copy of {identity.original_path}")
        _write(context.database, identity.name, Folder.of(context.home))
    for suffix in ("sock", "journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(context.home, f"supervisor-{identity.original}.{suffix}"))
    paused = "; the queue is paused: stoker resume --queue starts what waits" if pending else ""
    context.publisher.on_notice(
        f"this home is a copy of {identity.original_path}: it leaves that home's processes alone,"
        f" and calls {len(live)} attempts lost that were running there{paused}"
    )


def _record(database: Database, name: str, folder: Folder, machine: bytes | None = None) -> None:
    with database.transaction(durable=True):
        _write(database, name, folder)
        if machine is not None:
            NamedValues(database).put(_MACHINE, machine)


def _write(database: Database, name: str, folder: Folder) -> None:
    records = NamedValues(database)
    records.put(_IDENTITY, name.encode("ascii"))
    records.put(_FOLDER, os.fsencode(folder.to_text()))


def _new_name() -> str:
    return uuid.uuid4().hex[:12]


def _machine_id() -> bytes:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, "rb") as file:
                return file.read().strip()
        except OSError:
            continue
    return os.uname().nodename.encode()
