"""Settings of a job as text, which `set` and `edit` read and write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from stoker.cli.add_options import READERS, check_log_template, read_labels
from stoker.core.durations import parse_duration
from stoker.core.job import MAX_NAME
from stoker.core.selector import check_name
from stoker.errors import UsageError
from stoker.submit_context import make_absolute
from stoker.wire import MAX_CPUS, MAX_GPUS, MAX_PRIORITY, MAX_RETRIES, Settings, to_wire

NONE = "none"


def _number(least: int, most: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError("write a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"write a number from {least} to {most}")
    return number


def _name(what: str, text: str) -> str:
    if not text or len(text) > MAX_NAME:
        raise ValueError(f"write 1 to {MAX_NAME} characters")
    check_name(what, text)
    return text


def _log(text: str) -> object:
    check_log_template(text, "log=")
    return to_wire(make_absolute(text))


def _command(text: str) -> object:
    if not text.strip():
        raise ValueError("a command cannot be empty")
    return to_wire(os.fsencode(text))


# Each setting: its field of wire.Settings, the reader of its text, and whether it can be `none`.
_FIELDS: dict[str, tuple[str, Callable[[str], Any], bool]] = {
    "name": ("name", partial(_name, "the name"), True),
    "project": ("project", partial(_name, "the project"), True),
    "priority": ("priority", partial(_number, -MAX_PRIORITY, MAX_PRIORITY), False),
    "gpus": ("gpus", partial(_number, 0, MAX_GPUS), False),
    "gpu_mem": (*READERS["gpu_mem"], True),
    "cpus": ("cpus", partial(_number, 1, MAX_CPUS), True),
    "mem": (*READERS["mem"], True),
    "share": (*READERS["share"], False),
    "node": (*READERS["node"], True),
    "on": (*READERS["on"], True),
    "node_label": ("node_labels", lambda text: read_labels("", text.split(",")), True),
    "timeout": ("timeout_s", parse_duration, True),
    "retries": ("retries", partial(_number, 0, MAX_RETRIES), False),
    "begin": (*READERS["begin"], True),
    "after": (*READERS["after"], True),
    "after_any": (*READERS["after_any"], True),
    "log": ("log", _log, True),
    "command": ("command", _command, False),
}
NAMES = tuple(_FIELDS)
OF_RUNNING = ("name", "priority", "timeout", "retries")
"""The settings that can be changed while a job runs."""


def read_settings(pairs: Iterable[tuple[str, str]]) -> Settings:
    """Read settings from names and texts; raises UsageError for the first wrong one."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in _FIELDS:
            raise UsageError(f"there is no setting '{name}'; there are: {', '.join(NAMES)}")
        field, read, can_be_none = _FIELDS[name]
        if field in values:
            raise UsageError(f"{name} is given twice")
        if text == NONE and not can_be_none:
            raise UsageError(f"{name}=none: it must have a value")
        try:
            values[field] = None if text == NONE else read(text)
        except ValueError as error:
            hint = "; none takes it away" if can_be_none else ""
            raise UsageError(f"{name}={text[:50]}: {error}{hint}") from None
    return Settings(**values)
