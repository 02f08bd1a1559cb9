"""The last values in a file of JSON lines, without decoding all of it.

A sweep of 2,000 runs with 5,000 lines each has ten million lines, of which a table of results shows the last
values. Counting bytes is twenty times faster than decoding them.
"""

from __future__ import annotations

from typing import Any

import msgspec

_FEWEST_BYTES = 8192  # less is decoded as fast
_ENDS = 4  # lines at each end that tell which names there are
_MOST_NAMES = 30
_decode = msgspec.json.Decoder().decode


def last_values(data: bytes) -> dict[str, Any] | None:
    """Return the last value of each name in whole lines of flat objects.

    None if the file may say something else than its ends: names that are not there, nested objects, lines
    that cannot be read. Then all of it has to be decoded.
    """
    lines = data.count(b"\n")
    if len(data) < _FEWEST_BYTES or not data.endswith(b"\n"):
        return None
    if not lines == data.count(b"}\n") == data.count(b"{"):
        return None
    head = data[: _end_of(data, _ENDS)].splitlines()
    tail = data[_begin_of_last(data, _ENDS) :].splitlines()
    try:
        entries = [_decode(line) for line in (*head, *tail)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not all(isinstance(entry, dict) for entry in entries):
        return None
    names = dict.fromkeys(name for entry in entries for name in entry)
    keys = {name: b'"%s":' % name.encode() for name in names}
    if len(names) > _MOST_NAMES or data.count(b'":') != sum(map(data.count, keys.values())):
        return None
    return _last_of_each(data, keys)


def _last_of_each(data: bytes, keys: dict[str, bytes]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, key in keys.items():
        if name in found:
            continue
        at = data.rfind(key)
        line = data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)]
        try:
            entry = _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not isinstance(entry, dict) or name not in entry:
            return None
        found[name] = entry[name]
    return found


def _end_of(data: bytes, lines: int) -> int:
    at = 0
    for _ in range(lines):
        at = data.find(b"\n", at) + 1 or len(data)
    return at


def _begin_of_last(data: bytes, lines: int) -> int:
    at = len(data) - 1
    for _ in range(lines):
        at = data.rfind(b"\n", 0, max(0, at))
        if at < 0:
            return 0
    return at + 1
