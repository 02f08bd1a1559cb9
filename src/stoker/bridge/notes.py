"""Which trees have gone to a node, on record: whoever sent them may be gone when their jobs end."""

from __future__ import annotations

import contextlib
import os

import msgspec

from stoker.bridge.files import write_whole
from stoker.executors.voyage import Voyage

_SUFFIX = ".json"


class Passage(msgspec.Struct, frozen=True):
    """A voyage under way: an attempt that was taken back may set out again, as another one."""

    name: str
    voyage: Voyage


class Notes:
    """A folder with a note of each attempt that has a copy of its tree on a node, and their `keys`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.keys = self._find()

    def write(self, key: str, passage: Passage) -> None:
        """Have a note of an attempt, in the place of an older one."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        write_whole(self._path(key), msgspec.json.encode(passage), durable=True)
        self.keys.add(key)

    def read(self, key: str) -> Passage | None:
        """What is on record of an attempt; None also where that cannot be read, as after a power cut."""
        try:
            with open(self._path(key), "rb") as file:
                return msgspec.json.decode(file.read(), type=Passage)
        except (OSError, msgspec.DecodeError):
            return None

    def void(self) -> None:
        """Want nothing that attempts have made which went there until now."""
        for key in [*self.keys]:
            passage = self.read(key)
            if passage is not None:
                unwanted = msgspec.structs.replace(passage.voyage, results=None)
                self.write(key, Passage(passage.name, unwanted))

    def set_aside(self, key: str) -> str | None:
        """Keep a note by the name of its copy alone, which is returned: the attempt may set out again."""
        passage = self.read(key)
        if passage is None:
            self.forget(key)
            return None
        self.keys.discard(key)
        with contextlib.suppress(OSError):
            os.replace(self._path(key), self._path(passage.name))
            self.keys.add(passage.name)
        return passage.name

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
