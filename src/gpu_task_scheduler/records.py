"""Records of test instances that have begun or ended, in a file of the scheduler's temp_folder.

Each event is a line that is appended in one write: schedulers can share a folder, and one that is
killed leaves no partial line.
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
    """States of instances, of this run and of earlier ones."""

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
        """Whether an instance has succeeded; a folder of another origin also counts as success."""
        key = self._key(instance)
        if key in self._states:
            return self._states[key] == "finished"
        return os.path.exists(instance.work_dir) and key[0] not in self._known_folders

    def begin(self, instance: Instance) -> None:
        """Record that an instance begins; call it before the folder is made."""
        self._write(instance, "begun")

    def end(self, instance: Instance, *, success: bool) -> None:
        """Record how an instance ended."""
        self._write(instance, "finished" if success else "failed")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _key(self, instance: Instance) -> tuple[str, str]:
        """Return the relative folder (both folders may be moved together) and the instance's hash."""
        folder = os.path.relpath(instance.work_dir, self._folder)
        return folder, hashlib.sha256(instance.text.encode(errors="replace")).hexdigest()

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
                continue  # a line that a full disk has cut
            self._states[key] = state
            self._known_folders.add(key[0])
