"""The settings of a job as text: what `set` and `edit` read and write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from stoker.cli.add_options import read_labels, split_nodes
from stoker.cli.log_path_template import check_template
from stoker.cli.times import parse_moment
from stoker.core.durations import parse_duration
from stoker.core.job import MAX_NAME
from stoker.core.selector import check_name
from stoker.core.sharing.rules import parse_share
from stoker.core.size import parse_size
from stoker.errors import UsageError
from stoker.submit_context import make_absolute
from stoker.wire import MAX_GPUS, MAX_PRIORITY, MAX_RETRIES, Settings, to_wire

NONE = "none"


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise UsageError(f"{name}={text}: a whole number is wanted") from None
        if not least <= number <= most:
            raise UsageError(f"{name}={text}: from {least} to {most}")
        return number

    return read


def _name(name: str, text: str) -> str:
    if not text or len(text) > MAX_NAME:
        raise UsageError(f"{name}={text[:50]}: from 1 to {MAX_NAME} characters; none takes it away")
    check_name(f"the {name}", text)
    return text


def _checked(read: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def read_or_refuse(name: str, text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise UsageError(f"{name}={text}: {error}") from None

    return read_or_refuse


def _ids(name: str, text: str) -> str:
    if not text:
        raise UsageError(f"{name}=: name jobs (1,5-9), or none")
    return text


def _nodes(name: str, text: str) -> list[str]:
    nodes = split_nodes(text)
    if not nodes:
        raise UsageError(f"{name}=: name one, or several: gpu1,gpu2; none takes it away")
    return nodes


def _on(name: str, text: str) -> str:
    if not 0 < len(text) <= MAX_NAME:
        raise UsageError(f"{name}=: name a kind of GPU: a100; none takes it away")
    return text


def _log(_name: str, text: str) -> object:
    check_template(text, "log=")
    return to_wire(make_absolute(text))


def _command(_name: str, text: str) -> object:
    if not text.strip():
        raise UsageError("command=: a command cannot be empty")
    return to_wire(os.fsencode(text))


# What can be set: its field on the wire, how its text is read, and whether `none` takes it away.
_FIELDS: dict[str, tuple[str, Callable[[str, str], Any], bool]] = {
    "name": ("name", _name, True),
    "project": ("project", _name, True),
    "priority": ("priority", _number(-MAX_PRIORITY, MAX_PRIORITY), False),
    "gpus": ("gpus", _number(0, MAX_GPUS), False),
    "gpu_mem": ("gpu_mem_bytes", _checked(parse_size), True),
    "share": ("share", _checked(lambda text: parse_share(text).text), False),
    "node": ("nodes", _nodes, True),
    "on": ("on", _on, True),
    "node_label": ("node_labels", lambda _name, text: read_labels("", text.split(",")), True),
    "timeout": ("timeout_s", lambda _name, text: parse_duration(text), True),
    "retries": ("retries", _number(0, MAX_RETRIES), False),
    "begin": ("begin_at", lambda _name, text: parse_moment(text, time.time()), True),
    "after": ("after", _ids, True),
    "after_any": ("after_any", _ids, True),
    "log": ("log", _log, True),
    "command": ("command", _command, False),
}
NAMES = tuple(_FIELDS)
OF_RUNNING = ("name", "priority", "timeout", "retries")
"""What can still be set while a job runs."""


def read_settings(pairs: Iterable[tuple[str, str]]) -> Settings:
    """Settings from names and texts; raises UsageError for the first that makes no sense."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in _FIELDS:
            raise UsageError(f"there is no setting '{name}'; there are: {', '.join(NAMES)}")
        field, read, can_be_none = _FIELDS[name]
        if field in values:
            raise UsageError(f"{name} is given twice")
        if text == NONE and not can_be_none:
            raise UsageError(f"{name}=none: it must have a value")
        values[field] = None if text == NONE else read(name, text)
    return Settings(**values)
