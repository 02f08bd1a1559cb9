"""Which trees have gone to a node, on record: whoever sent them may be gone when their jobs end."""

from __future__ import annotations

import contextlib
import os

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.executors.contract import AttemptTransfer

_SUFFIX = ".json"


class TransferRecord(msgspec.Struct, frozen=True):
    """A transfer under way: an attempt that was taken back may set out again, as another one."""

    name: str
    transfer: AttemptTransfer


class TransferLog:
    """A folder with a note of each attempt that has a copy of its tree on a node, and their `keys`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.keys = self._find()

    def write(self, key: str, transfer_record: TransferRecord) -> None:
        """Have a note of an attempt, in the place of an older one."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_whole(self._path(key), msgspec.json.encode(transfer_record), durable=True)
        self.keys.add(key)

    def read(self, key: str) -> TransferRecord | None:
        """What is on record of an attempt; None also where that cannot be read, as after a power cut."""
        try:
            with open(self._path(key), "rb") as file:
                return msgspec.json.decode(file.read(), type=TransferRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def void(self) -> None:
        """Want nothing that attempts have made which went there until now."""
        for key in [*self.keys]:
            transfer_record = self.read(key)
            if transfer_record is not None:
                unwanted = msgspec.structs.replace(transfer_record.transfer, results=None)
                self.write(key, TransferRecord(transfer_record.name, unwanted))

    def set_aside(self, key: str) -> str | None:
        """Keep a note by the name of its copy alone, which is returned: the attempt may set out again."""
        transfer_record = self.read(key)
        if transfer_record is None:
            self.forget(key)
            return None
        self.keys.discard(key)
        with contextlib.suppress(OSError):
            os.replace(self._path(key), self._path(transfer_record.name))
            self.keys.add(transfer_record.name)
        return transfer_record.name

    def forget(self, key: str) -> None:
        """Delete a note, if there is one."""
        self.keys.discard(key)
        with contextlib.suppress(OSError):
            os.unlink(self._path(key))

    def _find(self) -> set[str]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return set()
        return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}{_SUFFIX}")
