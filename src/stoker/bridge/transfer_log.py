"""Record of the trees that went to a node, for the next bridge if this one ends before their jobs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.executors.contract import AttemptTransfer

_SUFFIX = ".json"


class TransferRecord(msgspec.Struct, frozen=True):
    """A transfer and the name of its copy. An attempt that was revoked and starts again gets a new copy."""

    name: str
    transfer: AttemptTransfer


class TransferLog:
    """Folder with a record for each attempt that has a copy of its tree on a node. `keys` lists them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.keys = self._find()

    def write(self, key: str, record: TransferRecord) -> None:
        """Write the record of an attempt."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_whole(self._path(key), msgspec.json.encode(record), durable=True)
        self.keys.add(key)

    def read(self, key: str) -> TransferRecord | None:
        """Return the record of an attempt; None if there is none or it is damaged, as after a power cut."""
        try:
            with open(self._path(key), "rb") as file:
                return msgspec.json.decode(file.read(), type=TransferRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def void_others(self, keys: Collection[str]) -> None:
        """Discard the results of all recorded attempts but these."""
        for key in self.keys.difference(keys):
            record = self.read(key)
            if record is None or record.transfer.results is None:
                continue
            unwanted = msgspec.structs.replace(record.transfer, results=None)
            try:
                self.write(key, TransferRecord(record.name, unwanted))
            except OSError:  # rather leave the copy on the node than bring its results
                self.forget(key)

    def set_aside(self, key: str) -> str | None:
        """Rename the record to the name of its copy, and return that name: the attempt may start again."""
        record = self.read(key)
        if record is None:
            self.forget(key)
            return None
        self.keys.discard(key)
        with contextlib.suppress(OSError):
            os.replace(self._path(key), self._path(record.name))
            self.keys.add(record.name)
        return record.name

    def forget(self, key: str) -> None:
        """Delete a record, if there is one."""
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
