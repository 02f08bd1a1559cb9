"""Reader of what `wandb.log` records in a run's folder, without wandb.

The file `run-*.wandb` is a log of records in Protocol Buffers, in blocks of 32 KiB, as LevelDB writes
its log. A record is in one part, or in several: parts do not cross the end of a block.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import msgspec

from stoker.sweep_results.metric_files.byte_tail import ByteTail
from stoker.sweep_results.metric_files.entry import UNREADABLE, Batch, Entry, flatten, to_numbers
from stoker.sweep_results.metric_files.protobuf import DAMAGED, fields

SUFFIX = ".wandb"

_MAGIC = b":W&B"
_FILE_HEADER = 7
_BLOCK = 32 << 10
_PART = struct.Struct("<IHB")  # checksum, length, kind
_FULL, _FIRST, _LAST = 1, 2, 4
_MOST_RECORD = 16 << 20
# Numbers of fields in W&B's messages.
_HISTORY, _SUMMARY = 2, 3
_ITEM, _STEP, _STEP_NUMBER = 1, 2, 1
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16

_NOT_FINITE = re.compile(rb"\bNaN\b|-?\bInfinity\b")
_decode = msgspec.json.Decoder().decode


class WandbFile:
    """Reads one run of W&B: an entry for each step that was logged, and for each update of the summary."""

    def __init__(self, path: str) -> None:
        self._tail = ByteTail(path)
        self._record = b""
        self._logged: Entry = {}
        self._is_damaged = False

    def read(self, *, is_last: bool) -> Batch:  # noqa: ARG002 - a record counts when it is whole
        """Return the entries that were added."""
        found: list[Entry] = []
        if self._is_damaged:
            return Batch(found)
        for data in self._tail.chunks():
            try:
                self._tail.accept(self._take(data, self._tail.offset, found))
            except DAMAGED:
                self._is_damaged = True
                break
        return Batch(found)

    def _take(self, data: bytes, start: int, found: list[Entry]) -> int:
        """Add the entries of the records that begin at this offset of the file; return the bytes used."""
        at = 0
        if start == 0:
            self._record = b""
            self._logged.clear()
            if len(data) < _FILE_HEADER:
                return 0
            if not data.startswith(_MAGIC):
                raise ValueError("no file of W&B")
            at = _FILE_HEADER
        while True:
            room = _BLOCK - (start + at) % _BLOCK
            if room < _PART.size:
                if at + room > len(data):
                    return at
                at += room
                continue
            if at + _PART.size > len(data):
                return at
            _checksum, length, kind = _PART.unpack_from(data, at)
            end = at + _PART.size + length
            if end > len(data):
                return at
            self._add_part(kind, data[at + _PART.size : end], found)
            at = end

    def _add_part(self, kind: int, part: bytes, found: list[Entry]) -> None:
        self._record = part if kind in (_FULL, _FIRST) else self._record + part
        if len(self._record) > _MOST_RECORD:
            raise ValueError("a record is too long")
        if kind in (_FULL, _LAST):
            found += filter(None, self._entries(self._record))

    def _entries(self, record: bytes) -> Iterator[Entry]:
        """Yield what was logged; of the summary only what the script has set itself."""
        for number, content in fields(record):
            if number == _HISTORY and isinstance(content, bytes):
                entry = _entry(content)
                self._logged.update(entry)
                yield entry
            elif number == _SUMMARY and isinstance(content, bytes):
                yield {
                    name: value
                    for name, value in _entry(content).items()
                    if repr(self._logged.get(name)) != repr(value)
                }


def _entry(content: bytes) -> Entry:
    """Return the numbers of a record of the history or of the summary."""
    found: Entry = {}
    for number, item in fields(content):
        if isinstance(item, bytes) and number == _ITEM:
            found.update(_item(item))
        elif isinstance(item, bytes) and number == _STEP:
            found["_step"] = dict(fields(item)).get(_STEP_NUMBER, 0)
    step = found.get("_step")
    numbers = {name: value for name, value in to_numbers(found).items() if name[0] != "_"}
    if not numbers or not isinstance(step, int):
        return numbers
    return {"step": step, **numbers}


def _item(item: bytes) -> Entry:
    """Return the name and value of an item; keys that are nested are joined by dots."""
    keys: list[str] = []
    value = b""
    for number, content in fields(item):
        if number in (_KEY, _NESTED_KEY) and isinstance(content, bytes):
            keys.append(content.decode("utf-8", "replace"))
        elif number == _VALUE and isinstance(content, bytes):
            value = content
    try:
        decoded = _decode(_NOT_FINITE.sub(rb'"\g<0>"', value))
    except UNREADABLE:
        return {}
    named = flatten(decoded, ".".join(filter(None, keys)) + ".")
    return {name: number for name, number in named.items() if _is_number(number)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity")
