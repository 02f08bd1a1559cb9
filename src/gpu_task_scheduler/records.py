"""Which test instances have begun and which have finished: kept in the scheduler's temp_folder.

A line for each event, appended in one write: schedulers that share a folder do not disturb each other,
and one that is killed leaves every line whole or none.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_task_scheduler.config_manager import Instance

_FILE = "stoker-finished.jsonl"


class Records:
    """Knows what has become of instances, in this run and in earlier ones."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._states: dict[tuple[str, str], str] = {}
        self._known_folders: set[str] = set()
        self._path = os.path.join(folder, _FILE)
        self._read()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o666)

    def is_done(self, instance: Instance) -> bool:
        """Whether it has finished with success; so has what lies in a folder that we did not make."""
        key = self._key(instance)
        if key in self._states:
            return self._states[key] == "finished"
        return os.path.exists(instance.work_dir) and key[0] not in self._known_folders

    def begin(self, instance: Instance) -> None:
        """Record that it begins; to be called before its folder is made."""
        self._write(instance, "begun")

    def end(self, instance: Instance, *, success: bool) -> None:
        """Record how it ended."""
        self._write(instance, "finished" if success else "failed")

    def close(self) -> None:
        """Record no more."""
        os.close(self._file)

    def _key(self, instance: Instance) -> tuple[str, str]:
        """Where it lies as seen from here, so that both may be moved, and which it is."""
        place = os.path.relpath(instance.work_dir, self._folder)
        return place, hashlib.sha256(instance.text.encode(errors="replace")).hexdigest()

    def _write(self, instance: Instance, state: str) -> None:
        key = self._key(instance)
        self._states[key] = state
        line = {"folder": key[0], "instance": key[1], "state": state}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def _read(self) -> None:
        try:
            with open(self._path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                key, state = (entry["folder"], entry["instance"]), entry["state"]
            except (ValueError, TypeError, KeyError):
                continue  # the end of a line that a full disk has cut
            self._states[key] = state
            self._known_folders.add(key[0])
